package suite

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn/wire"
)

func TestContractEmbedded(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Embedded(t), Target: testenv.Embedded(t), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce})
}

// An old source is read through a consumer group, and an old target takes
// idempotent writes.
func TestContractEmbedded28(t *testing.T) {
	t.Parallel()
	old := testenv.EmbeddedOptions{MaxVersions: kversion.V2_8_0()}
	Run(t, World{Source: testenv.Embedded(t, old), Target: testenv.Embedded(t, old), Reader: topology.ReaderPartition, Guarantee: topology.GuaranteeAtLeastOnce})
}

func TestContractReal44To44(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Real(t, "4.4.0"), Target: testenv.Real(t, "4.4.0"), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce})
}

func TestContractReal39To44(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Real(t, "3.9.2"), Target: testenv.Real(t, "4.4.0"), Reader: topology.ReaderPartition, Guarantee: topology.GuaranteeAtLeastOnce})
}

func TestContractReal44To39(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Real(t, "4.4.0"), Target: testenv.Real(t, "3.9.2"), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce})
}

// Exactly once (G6), whatever the versions on either side: order is kept, and not a
// record is there twice.
func TestContractExactlyOnceEmbedded(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Embedded(t), Target: testenv.Embedded(t), Reader: topology.ReaderPartition, Guarantee: topology.GuaranteeExactlyOnce})
}

func TestContractExactlyOnceReal44To44(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Real(t, "4.4.0"), Target: testenv.Real(t, "4.4.0"), Reader: topology.ReaderPartition, Guarantee: topology.GuaranteeExactlyOnce})
}

func TestContractExactlyOnceReal39To44(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Real(t, "3.9.2"), Target: testenv.Real(t, "4.4.0"), Reader: topology.ReaderPartition, Guarantee: topology.GuaranteeExactlyOnce})
}

func TestContractExactlyOnceReal44To39(t *testing.T) {
	t.Parallel()
	Run(t, World{Source: testenv.Real(t, "4.4.0"), Target: testenv.Real(t, "3.9.2"), Reader: topology.ReaderPartition, Guarantee: topology.GuaranteeExactlyOnce})
}

// Exactly once inside one cluster (G7): share acknowledgements in the transaction
// of the copies.
func TestContractBoundEmbedded(t *testing.T) {
	t.Parallel()
	for _, d := range []wire.Draft{wire.DraftType, wire.DraftTypes, wire.DraftGaps} {
		t.Run(fmt.Sprintf("Draft%d", d), func(t *testing.T) {
			t.Parallel()
			form := wire.Form{Key: d.Key(), Draft: d}
			c := testenv.Embedded(t, testenv.EmbeddedOptions{Share: &testenv.ShareOptions{Form: form}})
			Run(t, World{Source: c, Target: c, Reader: topology.ReaderShare, Guarantee: topology.GuaranteeExactlyOnce, Form: form})
		})
	}
}

// Share groups of the embedded broker's own, without KIP-1289.
func TestContractShareEmbedded(t *testing.T) {
	t.Parallel()
	share := testenv.EmbeddedOptions{Share: &testenv.ShareOptions{}}
	Run(t, World{Source: testenv.Embedded(t, share), Target: testenv.Embedded(t), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce})
}
