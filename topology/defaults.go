package topology

import (
	"fmt"
	"strconv"
	"time"
)

// The defaults that are not zero values, see the fields' comments.
const (
	defaultClientID  = "onceover"
	defaultQuickName = "quick"
)

// NewFlow returns a flow of that name with every default filled in; its
// clusters and topics are still to be set.
func NewFlow(name string) *Flow {
	return &Flow{
		Name:      name,
		Rename:    placeTopic,
		Guarantee: GuaranteeAuto,
		Read:      ReaderAuto,
		Ordered:   OrderedAuto,
		Start:     StartEarliest,
		OnError:   OnErrorStop,

		OnGap:            OnGapStop,
		OnRecreate:       OnRecreateStop,
		OnTargetRecreate: OnTargetRecreateStop,

		Provenance:  true,
		Lanes:       2,
		Create:      Create{Enabled: true, ReplicationFactor: -1},
		Transaction: Transaction{Timeout: 30 * time.Second, Interval: 250 * time.Millisecond},
		Ledger:      Ledger{Shards: 8, ReplicationFactor: -1},
		Limits: Limits{
			Records:  5000,
			Bytes:    8 << 20,
			Refresh:  30 * time.Second,
			Shutdown: 30 * time.Second,
			Lock:     30 * time.Second,
		},
	}
}

// takePollRecords lets max.poll.records, Kafka's name for it, set
// Limits.Records of the flows that don't say limits.records themselves.
func (t *Topology) takePollRecords(f *findings) {
	for i, flow := range t.Flows {
		path := fmt.Sprintf("flows[%d]", i)
		_, written := t.lines[path+".limits.records"]
		own, given := flow.Properties[flowLevel.consumer+keyPollRecords]
		v := own
		if !given {
			v = t.Properties[workerLevel.consumer+keyPollRecords]
		}
		n, err := strconv.Atoi(v.Text)
		switch {
		case err != nil:
		case !written:
			flow.Limits.Records = n
		case given && n != flow.Limits.Records:
			f.add(path+".properties."+flowLevel.consumer+keyPollRecords, fmt.Sprintf("contradicts limits.records: %d", flow.Limits.Records), "remove one of them")
		}
	}
}
