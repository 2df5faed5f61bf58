package topology

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// KIP1289 switches a flow inside one cluster to exactly-once through a share
// group: the acknowledgements of what was read are part of the transaction that
// holds the copies (KIP-1289). No released Kafka speaks it, and a flow that
// declares it does not start where it is not spoken.
//
// The request had three api keys in three published drafts and has no assigned
// one, so both the key and the layout are named here.
type KIP1289 struct {
	// Key is the api key of TxnShareAcknowledge at the brokers; 93 to 32767.
	// Default: the one that Draft was published with: 93, 94 or 95.
	Key int16
	// Draft is the layout of the request: 1 has one type for a range of offsets,
	// 2 has a type for each offset, 3 allows gaps among them too. Default: 3.
	Draft int8
}

// MaxKIP1289Timeout is the longest transaction of a flow with [KIP1289], and its
// default [Transaction.Timeout]; a longer one counts as this. What a process that
// dies had in its transaction is handed out to nobody until that has run out:
// unlike a shard, a share group has no next owner who would end it.
const MaxKIP1289Timeout = 15 * time.Second

const (
	firstDraft, lastDraft int8 = 1, 3
	// firstDraftKey is the key of draft 1; each draft took the next one.
	firstDraftKey int16 = 93
)

// NewKIP1289 returns what an empty kip1289 stands for: the newest draft under
// the key that it was published with.
func NewKIP1289() *KIP1289 { return &KIP1289{Key: draftKey(lastDraft), Draft: lastDraft} }

// draftKey is the key that a draft was published with.
func draftKey(draft int8) int16 { return firstDraftKey + int16(draft-firstDraft) }

// text is how the setting is shown beside others.
func (k *KIP1289) text() string {
	if k == nil {
		return "off"
	}
	return fmt.Sprintf("key %d, draft %d", k.Key, k.Draft)
}

// kip1289 reads the setting; nothing in place of a mapping leaves it off.
func (p *parser) kip1289(f *Flow) setter {
	return func(n *yaml.Node, path string) {
		if n.Kind == yaml.ScalarNode && n.Anchor == "" && n.ShortTag() == "!!null" {
			return
		}
		k := NewKIP1289()
		f.KIP1289 = k
		p.object(n, path, fields{"key": p.int16(&k.Key), "draft": p.int8(&k.Draft)})
		_, given := p.lines[path+".key"]
		if !given && firstDraft <= k.Draft && k.Draft <= lastDraft {
			k.Key = draftKey(k.Draft)
		}
	}
}

// boundTimeout is the transaction timeout of a flow that was declared without
// one.
func (p *parser) boundTimeout(f *Flow, path string) {
	if _, given := p.lines[path+".transaction.timeout"]; !given && f.KIP1289 != nil {
		f.Transaction.Timeout = MaxKIP1289Timeout
	}
}

// checkKIP1289 looks at the setting and at what can't stand beside it.
func (t *Topology) checkKIP1289(flow *Flow, path string, f *findings) {
	k := flow.KIP1289
	if k == nil {
		return
	}
	at := path + ".kip1289"
	within(f, at+".draft", int(k.Draft), int(firstDraft), int(lastDraft))
	if k.Key < firstDraftKey {
		f.add(at+".key", fmt.Sprintf("expected %d to 32767, got %d", firstDraftKey, k.Key),
			"smaller keys belong to other requests of Kafka; drafts 1, 2 and 3 were published with 93, 94 and 95")
	}
	switch {
	case flow.Sink != nil:
		f.add(at, "needs a Kafka target: a file sink takes part in no transaction", "remove kip1289, or copy to the cluster that the flow reads")
	case flow.From != flow.To && flow.From != "" && flow.To != "":
		f.add(at, fmt.Sprintf("one transaction can't hold acknowledgements at %s and copies at %s: kip1289 is for flows inside one cluster", flow.From, flow.To),
			"remove kip1289: between two clusters guarantee: exactly-once keeps a ledger")
	}
	if flow.Guarantee == GuaranteeAtLeastOnce {
		f.add(path+".guarantee", "at-least-once contradicts kip1289, which gives exactly-once or nothing", "remove one of them")
	}
	if flow.Read == ReaderPartition {
		f.add(path+".read", "partition contradicts kip1289, which reads through a share group", "remove one of them")
	}
	if own := flow.Properties[flowLevel.consumer+keyProtocol].Text; readerOf(own) == ReaderPartition {
		f.add(path+".properties."+flowLevel.consumer+keyProtocol, own+" contradicts kip1289, which reads through a share group", "remove one of them")
	}
	if flow.Ordered == OrderedTrue {
		f.add(path+".ordered", "true contradicts kip1289, which reads through a share group: that keeps no order", "remove one of them")
	}
	t.checkIdle(flow, path, f)
}

// checkIdle looks for what was written down and has no effect.
func (t *Topology) checkIdle(flow *Flow, path string, f *findings) {
	written := func(key string) bool {
		_, given := t.lines[path+"."+key]
		return given
	}
	if d := flow.Transaction.Timeout; written("transaction.timeout") && d > MaxKIP1289Timeout && d <= maxTxnTimeout {
		f.add(path+".transaction.timeout", fmt.Sprintf("expected %s to %s with kip1289, got %s", span(minTxnTimeout), span(MaxKIP1289Timeout), span(d)),
			"what a process that dies had in its transaction waits that long for others")
	}
	if flow.Sink != nil {
		return // these have their findings
	}
	for _, key := range ledgerOnly {
		if written(key) {
			f.add(path+"."+key, "has no effect with kip1289, which keeps no ledger", "remove it")
		}
	}
}
