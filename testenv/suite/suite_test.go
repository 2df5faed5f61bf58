package suite

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

func TestContractEmbedded(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Embedded(t), testenv.Embedded(t), topology.ReaderShare, topology.GuaranteeAtLeastOnce})
}

// An old source is read through a consumer group, and an old target takes
// idempotent writes.
func TestContractEmbedded28(t *testing.T) {
	t.Parallel()
	old := testenv.EmbeddedOptions{MaxVersions: kversion.V2_8_0()}
	Run(t, World{testenv.Embedded(t, old), testenv.Embedded(t, old), topology.ReaderPartition, topology.GuaranteeAtLeastOnce})
}

func TestContractReal44To44(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Real(t, "4.4.0"), testenv.Real(t, "4.4.0"), topology.ReaderShare, topology.GuaranteeAtLeastOnce})
}

func TestContractReal39To44(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Real(t, "3.9.2"), testenv.Real(t, "4.4.0"), topology.ReaderPartition, topology.GuaranteeAtLeastOnce})
}

func TestContractReal44To39(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Real(t, "4.4.0"), testenv.Real(t, "3.9.2"), topology.ReaderShare, topology.GuaranteeAtLeastOnce})
}

// Exactly once (G6), whatever the versions on either side: order is kept, and not a
// record is there twice.
func TestContractExactlyOnceEmbedded(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Embedded(t), testenv.Embedded(t), topology.ReaderPartition, topology.GuaranteeExactlyOnce})
}

func TestContractExactlyOnceReal44To44(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Real(t, "4.4.0"), testenv.Real(t, "4.4.0"), topology.ReaderPartition, topology.GuaranteeExactlyOnce})
}

func TestContractExactlyOnceReal39To44(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Real(t, "3.9.2"), testenv.Real(t, "4.4.0"), topology.ReaderPartition, topology.GuaranteeExactlyOnce})
}

func TestContractExactlyOnceReal44To39(t *testing.T) {
	t.Parallel()
	Run(t, World{testenv.Real(t, "4.4.0"), testenv.Real(t, "3.9.2"), topology.ReaderPartition, topology.GuaranteeExactlyOnce})
}
