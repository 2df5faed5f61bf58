package mirror

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// place is a partition of a source topic by name.
type place struct {
	topic     string
	partition int32
}

// board collects what the goroutines of one flow have to say, for the status
// page, the metrics, the health check and the observer. Safe for concurrent
// use.
type board struct {
	obs *Observer
	log *slog.Logger

	mu       sync.Mutex
	flow     FlowState
	topics   map[string]TopicState
	parts    map[place]*PartitionState
	moved    map[place]time.Time // last progress, or when lag appeared
	troubles map[string]trouble
	hurdles  map[place]error   // what keeps single partitions from being read
	holders  map[place]*holder // whose open transaction a partition waits behind
	doubts   map[int32]bool    // shards with a transaction whose commit had no clear answer
	audit    *audit            // nil: not kept
	// outside: the flow is looked at, not run.
	outside bool
}

// trouble is an error that lasts, and since when.
type trouble struct {
	err   error
	since time.Time
}

// Whose trouble it is, besides that of lanes.
const (
	whereLag      = "lag"
	whereRefresh  = "refresh"
	whereRecovery = "recovery"
)

func newBoard(name, from, to string, obs *Observer, log *slog.Logger) *board {
	return &board{
		obs: obs, log: log,
		flow:   FlowState{Name: name, From: from, To: to, Phase: FlowStarting},
		topics: map[string]TopicState{}, parts: map[place]*PartitionState{},
		moved: map[place]time.Time{}, troubles: map[string]trouble{}, hurdles: map[place]error{}, holders: map[place]*holder{},
		doubts: map[int32]bool{},
	}
}

func (b *board) part(topic string, partition int32) *PartitionState {
	at := place{topic, partition}
	p := b.parts[at]
	if p == nil {
		p = &PartitionState{
			Topic: topic, Partition: partition, Target: b.topics[topic].Target,
			Phase: PartitionIdle, Since: time.Now().UTC(), Lag: -1, LagSeconds: -1, Unstable: -1, EndOffset: -1,
		}
		b.parts[at] = p
	}
	return p
}

func (b *board) enter(p *PartitionState, phase PartitionPhase, reason, hint string) {
	if p.Phase != phase {
		p.Phase, p.Since = phase, time.Now().UTC()
	}
	p.Reason, p.Hint = reason, hint
}

// copied: n records are written and their acknowledgement is confirmed.
func (b *board) copied(topic string, partition int32, n int, bytes int64) {
	b.mu.Lock()
	b.flow.Records += int64(n)
	b.flow.Bytes += bytes
	p := b.part(topic, partition)
	p.Records += int64(n)
	p.Bytes += bytes
	b.moved[place{topic, partition}] = time.Now()
	if p.Phase == PartitionStalled || p.Phase == PartitionWaiting {
		b.enter(p, PartitionCopying, "", "")
	}
	b.mu.Unlock()
	if b.obs.Copied != nil {
		b.obs.Copied(b.flow.Name, topic, partition, n, bytes)
	}
}

// Reasons why a record is left out.
const (
	leftEcho    = "echo"
	leftSkipped = "skipped"
	leftBehind  = "behind" // the source handed out an offset that it had passed
)

func (b *board) left(topic string, partition int32, reason string, n int) {
	b.mu.Lock()
	switch reason {
	case leftEcho:
		b.flow.Echoed += int64(n)
	case leftSkipped:
		b.flow.Skipped += int64(n)
	}
	b.moved[place{topic, partition}] = time.Now()
	b.mu.Unlock()
	if b.obs.Left != nil {
		b.obs.Left(b.flow.Name, topic, partition, reason, n)
	}
}

func (b *board) retried(err error) {
	b.mu.Lock()
	b.flow.Retries++
	b.mu.Unlock()
	if b.obs.Retried != nil {
		b.obs.Retried(b.flow.Name, err)
	}
}

func (b *board) refused(topic string, partition int32, n int, err error) {
	b.mu.Lock()
	b.flow.RefusedAcks += int64(n)
	b.mu.Unlock()
	b.log.Info("acknowledgement refused; the records come again", "topic", topic, "partition", partition, "records", n, "reason", err)
	if b.obs.AckRefused != nil {
		b.obs.AckRefused(b.flow.Name, topic, partition, n, err)
	}
}

func (b *board) lastDelivery(topic string, partition int32, offset int64) {
	b.log.Warn("last delivery of a record; it is held until the target has it",
		"topic", topic, "partition", partition, "offset", offset)
	if b.obs.LastDelivery != nil {
		b.obs.LastDelivery(b.flow.Name, topic, partition, offset)
	}
}

// settled: offsets of a share partition are finished for good.
func (b *board) settled(t tip, r txn.Range) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.audit != nil {
		b.audit.settled(t, r)
	}
}

// keepAudit starts the watch over a share group's start offsets.
func (b *board) keepAudit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.audit = newAudit()
}

// recovered: n records that the share group gave up on were copied by offset.
func (b *board) recovered(n int) {
	b.mu.Lock()
	b.flow.Recovered += int64(n)
	b.mu.Unlock()
}

// gap: records first..last are gone from the source and were never read.
func (b *board) gap(topic string, partition int32, first, last int64) {
	b.miss(topic, partition, first, last, "source records are gone before they were copied",
		"retention or DeleteRecords at the source was faster than the flow")
}

// abandoned: the share group will not hand out records first..last any more, and
// this process has not copied them.
func (b *board) abandoned(topic string, partition int32, first, last int64) {
	b.miss(topic, partition, first, last, "the share group gave up on records that this process has not copied",
		"they reached the group's delivery limit; look whether the target has them, and copy them by hand if not")
}

func (b *board) miss(topic string, partition int32, first, last int64, what, hint string) {
	b.mu.Lock()
	b.flow.Lost += last - first + 1
	b.mu.Unlock()
	b.log.Error(what, "topic", topic, "partition", partition, "first", first, "last", last, "offsets", last-first+1, "hint", hint)
	if b.obs.Gap != nil {
		b.obs.Gap(b.flow.Name, topic, partition, first, last)
	}
}

// trouble notes, or with nil clears, what keeps who from working.
func (b *board) trouble(who string, err error) {
	b.mu.Lock()
	had, known := b.troubles[who]
	switch {
	case err == nil:
		delete(b.troubles, who)
	case known:
		b.troubles[who] = trouble{err, had.since}
	default:
		b.troubles[who] = trouble{err, time.Now().UTC()}
	}
	b.mu.Unlock()
	switch {
	case err != nil && (!known || had.err.Error() != err.Error()):
		b.log.Warn("trouble", "where", who, "reason", reasonOf(err), "hint", hintOf(err))
	case err == nil && known:
		b.log.Info("trouble over", "where", who)
	}
}

// hindered notes, or with nil clears, what keeps one partition from being read.
func (b *board) hindered(topic string, partition int32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := place{topic, partition}
	if err == nil {
		delete(b.hurdles, at)
		return
	}
	b.hurdles[at] = err
}

// stop marks a partition as stopped for good, or with partition -1 each known
// one of the topic.
func (b *board) stop(topic string, partition int32, reason, hint string) {
	b.mu.Lock()
	if partition >= 0 {
		b.enter(b.part(topic, partition), PartitionStopped, reason, hint)
	} else {
		for at, p := range b.parts {
			if at.topic == topic {
				b.enter(p, PartitionStopped, reason, hint)
			}
		}
	}
	b.mu.Unlock()
	b.log.Error("stopped", "topic", topic, "partition", partition, "reason", reason, "hint", hint)
}

// resumed takes back a stop of a topic.
func (b *board) resumed(topic string) {
	b.mu.Lock()
	for at, p := range b.parts {
		if at.topic == topic && p.Phase == PartitionStopped {
			b.enter(p, PartitionIdle, "", "")
			b.moved[at] = time.Now()
		}
	}
	b.mu.Unlock()
	b.log.Info("resumed", "topic", topic)
}

// resumedPartition takes back the stop of one partition.
func (b *board) resumedPartition(at place) {
	b.mu.Lock()
	if p := b.parts[at]; p != nil && p.Phase == PartitionStopped {
		b.enter(p, PartitionIdle, "", "")
		b.moved[at] = time.Now()
	}
	b.mu.Unlock()
	b.log.Info("resumed", "topic", at.topic, "partition", at.partition)
}

// observe says that the flow is looked at from outside: whether it runs, and
// whether what waits moves, is not known.
func (b *board) observe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outside = true
}

// looked: the positions at the source were read just now.
func (b *board) looked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow.Looked = time.Now().UTC()
}

func (b *board) phase(phase FlowPhase, reason, hint string) {
	b.mu.Lock()
	if b.outside {
		phase = FlowObserved
	}
	changed := b.flow.Phase != phase || b.flow.Reason != reason
	b.flow.Phase, b.flow.Reason, b.flow.Hint = phase, reason, hint
	b.mu.Unlock()
	if !changed {
		return
	}
	switch {
	case reason == "":
		b.log.Info(string(phase))
	case hint == "":
		b.log.Warn(string(phase), "reason", reason)
	default:
		b.log.Warn(string(phase), "reason", reason, "hint", hint)
	}
	if b.obs.Phase != nil {
		b.obs.Phase(b.flow.Name, phase, reason)
	}
}

func (b *board) decided(d decision) {
	b.mu.Lock()
	b.flow.Guarantee, b.flow.Reader, b.flow.Order, b.flow.Why = string(d.guarantee), string(d.reader), d.order(), d.why
	if d.guarantee == topology.GuaranteeExactlyOnce && b.flow.Shards == nil {
		b.flow.Shards = &ShardState{Owned: []int{}}
	}
	b.mu.Unlock()
}

func (b *board) lanes(change int) {
	b.mu.Lock()
	b.flow.Lanes += change
	b.mu.Unlock()
}

// setTopics replaces the view of the flow's topics.
func (b *board) setTopics(ts []TopicState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics = make(map[string]TopicState, len(ts))
	for _, t := range ts {
		b.topics[t.Topic] = t
	}
	for at, p := range b.parts {
		t, ok := b.topics[at.topic]
		if !ok {
			delete(b.parts, at)
			delete(b.moved, at)
			delete(b.hurdles, at)
			delete(b.holders, at)
			continue
		}
		p.Target = t.Target
	}
}

func (b *board) anyTrouble() error {
	for _, who := range slices.Sorted(maps.Keys(b.troubles)) {
		return b.troubles[who].err
	}
	return nil
}

// snapshot returns a copy for the outside. What stalls is judged now, not at
// the last look: looks may fail for the same reason.
func (b *board) snapshot() FlowState {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for at, p := range b.parts {
		b.place(at, p, now)
	}
	s := b.flow
	if s.Shards != nil {
		shards := *s.Shards
		shards.Owned = slices.Clone(shards.Owned)
		s.Shards = &shards
	}
	if s.Reason == "" {
		if err := b.anyTrouble(); err != nil {
			s.Reason, s.Hint = reasonOf(err), hintOf(err)
		}
	}
	for who, t := range b.troubles {
		s.Troubles = append(s.Troubles, Trouble{Where: who, Reason: reasonOf(t.err), Hint: hintOf(t.err), Since: t.since})
	}
	slices.SortFunc(s.Troubles, func(x, y Trouble) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Where, y.Where))
	})
	s.Topics = slices.SortedFunc(maps.Values(b.topics), func(x, y TopicState) int { return cmp.Compare(x.Topic, y.Topic) })
	s.Partitions = make([]PartitionState, 0, len(b.parts))
	for _, p := range b.parts {
		s.Partitions = append(s.Partitions, *p)
	}
	slices.SortFunc(s.Partitions, func(x, y PartitionState) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return s
}
