package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
)

// ledgerHome is the ledger of a flow as it was found or made at the start.
type ledgerHome struct {
	id     [16]byte
	shards int
}

// flowEntry says what the ledger belongs to.
func (f *flow) flowEntry(generation int64) txn.Entry {
	return txn.Entry{Key: txn.Key{Kind: txn.KindFlow}, Value: &txn.Flow{
		K: int32(f.ledger.shards), SourceCluster: f.srcCap.ClusterID, TargetCluster: f.dstCap.ClusterID,
		LedgerTopicID: f.ledger.id, Fingerprint: f.def.Fingerprint(),
		Reader: txn.ReaderPartition, Generation: generation, Time: time.Now().UnixMilli(),
	}}
}

// judgeLedger decides whether this process may copy on the word of a ledger
// partition (ledger sections 1 and 2). One that has nothing is founded.
func (f *flow) judgeLedger(ctx context.Context, shard int32, l *txn.Ledger) error {
	e := l.Flow()
	if e == nil {
		if !l.Empty() {
			return f.refuse(fmt.Sprintf("ledger partition %d has positions and does not say whose", shard), "see mirror ledger show")
		}
		return nil
	}
	name := txn.LedgerTopic(f.def.Name)
	switch {
	case e.SourceCluster != f.srcCap.ClusterID:
		return f.refuse(fmt.Sprintf("%s belongs to a flow from cluster %s; %s is cluster %s now", name, e.SourceCluster, f.def.From, f.srcCap.ClusterID),
			"the source was rebuilt, or another flow has the same name: choose another name, or delete the ledger topic and see mirror ledger init")
	case e.TargetCluster != f.dstCap.ClusterID:
		return f.refuse(fmt.Sprintf("%s belongs to a flow to cluster %s; %s is cluster %s now", name, e.TargetCluster, f.def.To, f.dstCap.ClusterID),
			"the ledger was copied from another cluster: delete it there and see mirror ledger init")
	case e.LedgerTopicID != f.ledger.id:
		return f.refuse(fmt.Sprintf("%s was deleted and created again; its entries were written to another one", name), "see mirror ledger init")
	case int(e.K) != f.ledger.shards:
		return f.refuse(fmt.Sprintf("%s has %d partitions and was founded with %d", name, f.ledger.shards, e.K),
			"somebody has added partitions; they can't be taken away: found a new ledger under another flow name")
	case int(e.K) != f.def.Ledger.Shards:
		return f.refuse(fmt.Sprintf("ledger.shards is %d and the ledger was founded with %d", f.def.Ledger.Shards, e.K), fmt.Sprintf("set ledger.shards: %d", e.K))
	case e.Reader != txn.ReaderPartition:
		return f.refuse(name+" is one of share readers, which this version does not have", "run the version that wrote it")
	case e.Fingerprint != f.def.Fingerprint():
		return f.refuse(fmt.Sprintf("the declaration has changed what the flow promises (rename, provenance) since generation %d of its ledger", e.Generation),
			"take the change back, or go on with it: mirror ledger accept --flow "+f.def.Name)
	case l.Suspended() != nil:
		return f.refuse("the ledger is suspended: "+l.Suspended().Reason, "mirror ledger resume --flow "+f.def.Name)
	}
	return ctx.Err()
}

// ledgerProblem is err of a session that can't go on, as a Refusal where a
// person has to act.
func (f *flow) ledgerProblem(err error) error {
	switch {
	case errors.Is(err, txn.ErrDamaged):
		return f.refuse(err.Error(), "nothing is copied on its word; see mirror ledger check")
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return &hinted{err, "grant Write and Describe on TRANSACTIONAL_ID onceover." + f.def.Name + ". (prefixed) at the target"}
	}
	if h := txn.Hint(txn.InitProducerID, err); h != "" {
		return &hinted{err, h}
	}
	return err
}

// traces looks for what tells of earlier work of a shard whose ledger partition
// is empty: then the ledger was lost, and beginning anew would copy everything
// again, or skip what came meanwhile (ledger section 2).
func (f *flow) traces(ctx context.Context, shard int32) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	lost := func(what string) error {
		return f.refuse(fmt.Sprintf("partition %d of %s is empty, but %s: the ledger was lost", shard, txn.LedgerTopic(f.def.Name), what),
			"found it anew, with a choice of where to begin: mirror ledger init --accept --flow "+f.def.Name)
	}
	mapped, err := f.mapped(ctx, shard)
	if err != nil {
		return err
	}
	if mapped {
		return lost("partition " + fmt.Sprint(shard) + " of " + txn.MapTopic(f.def.Name) + " has records")
	}
	committed, err := f.admin().FetchOffsets(ctx, f.settings.GroupID)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return groupDenied(fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
	}
	f.mu.Lock()
	ready := maps.Clone(f.ready)
	f.mu.Unlock()
	var found error
	committed.Each(func(o kadm.OffsetResponse) {
		rt, ok := ready[o.Topic]
		if !ok || found != nil || o.Err != nil || !strings.HasSuffix(o.Metadata, ledgerMark) || !strings.HasPrefix(o.Metadata, idText(rt.id)) {
			return
		}
		if f.sourcePartition(rt, o.Partition).Shard(f.ledger.shards) == int(shard) {
			found = lost(fmt.Sprintf("group %s at the source has the position %d of %s[%d] that a ledger gave it", f.settings.GroupID, o.At, o.Topic, o.Partition))
		}
	})
	if found != nil || len(committed) > 0 {
		return found
	}
	return f.ownCopies(ctx, shard, ready, lost)
}

// mapped reports whether a partition of the map has a committed record. Its end
// does not tell: a first transaction that was aborted leaves a marker there.
func (f *flow) mapped(ctx context.Context, shard int32) (bool, error) {
	const most = 1 << 20
	topic := txn.MapTopic(f.def.Name)
	list, err := listTopics(ctx, f.dst, topic)
	if err != nil {
		return false, fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	starts, err := kadm.NewClient(f.dst).ListStartOffsets(ctx, topic)
	if err != nil {
		return false, fmt.Errorf("list start offsets of %s: %w", f.def.To, err)
	}
	ends, err := kadm.NewClient(f.dst).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return false, fmt.Errorf("list end offsets of %s: %w", f.def.To, err)
	}
	at := place{topic, shard}
	next, end := offsetOf(starts, topic, shard), offsetOf(ends, topic, shard)
	if next < 0 || end < 0 {
		return false, fmt.Errorf("no offsets of %s[%d] at %s", topic, shard, f.def.To)
	}
	for next < end {
		got, err := fetchAt(ctx, f.dst, list[topic].Partitions[shard].Leader, map[place]spot{at: {list[topic].ID, next}}, most, most)
		if err == nil && got[at].err == nil && len(got[at].recs) > 0 {
			return true, nil
		}
		if err = cmp.Or(err, got[at].err); err == nil && got[at].next == next {
			err = errNoAnswer
		}
		if err != nil {
			return false, fmt.Errorf("read %s[%d] from offset %d: %w", topic, shard, next, err)
		}
		next = got[at].next
	}
	return false, nil
}

// ownCopies looks for copies with our provenance in the target's topics, when
// nothing else tells of earlier work.
func (f *flow) ownCopies(ctx context.Context, shard int32, ready map[string]route, lost func(string) error) error {
	if !f.def.Provenance || f.srcCap.ClusterID == f.dstCap.ClusterID {
		return nil
	}
	const most = 50 // partitions
	byLeader := map[int32]map[place]spot{}
	looked := 0
	list, err := listTopics(ctx, f.dst, targetsOf(ready)...)
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	ends, err := kadm.NewClient(f.dst).ListEndOffsets(ctx, targetsOf(ready)...)
	if err != nil {
		return fmt.Errorf("list end offsets of %s: %w", f.def.To, err)
	}
	for _, rt := range ready {
		for p := range int32(rt.partitions) {
			end := offsetOf(ends, rt.target, p)
			if f.sourcePartition(rt, p).Shard(f.ledger.shards) != int(shard) || end <= 0 || looked >= most {
				continue
			}
			looked++
			leader := list[rt.target].Partitions[p].Leader
			if byLeader[leader] == nil {
				byLeader[leader] = map[place]spot{}
			}
			byLeader[leader][place{rt.target, p}] = spot{list[rt.target].ID, max(0, end-10)}
		}
	}
	for leader, spots := range byLeader {
		got, err := fetchAt(ctx, f.dst, leader, spots, 32<<10, 1<<20)
		if err != nil {
			return fmt.Errorf("look at the target's topics: %w", err)
		}
		for at, piece := range got {
			for _, rec := range piece.recs {
				if transform.CameFrom(rec, f.srcCap.ClusterID) {
					return lost(fmt.Sprintf("%s[%d] has records at the target that were copied from %s", at.topic, at.partition, f.def.From))
				}
			}
		}
	}
	return nil
}

func targetsOf(ready map[string]route) []string {
	var out []string
	for _, rt := range ready {
		out = append(out, rt.target)
	}
	return unique(out)
}

// ledgerMark ends the metadata of positions at the source that follow a ledger.
const ledgerMark = " of the ledger"

// firstPositions says where partitions begin that the ledger has no word of: the
// position of an earlier at-least-once run of the flow, else the flow's start,
// else, for what appeared later, the log's start.
func (f *flow) firstPositions(ctx context.Context, ps []*shardPart, founding bool) ([]txn.Entry, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var topics []string
	for _, p := range ps {
		topics = append(topics, p.at.topic)
	}
	starts, err := f.admin().ListStartOffsets(ctx, unique(topics)...)
	if err != nil {
		return nil, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
	}
	ends, err := f.admin().ListCommittedOffsets(ctx, unique(topics)...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
	}
	var committed kadm.OffsetResponses
	earlier := map[string][]earlierTopic{}
	if founding {
		committed, err = f.admin().FetchOffsets(ctx, f.settings.GroupID)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, groupDenied(fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
		}
	} else if earlier, err = f.namesakes(ctx, topics); err != nil {
		return nil, err
	}
	var out []txn.Entry
	for _, p := range ps {
		start, end := offsetOf(starts, p.at.topic, p.at.partition), offsetOf(ends, p.at.topic, p.at.partition)
		if start < 0 || end < 0 {
			if founding { // all begin at once, or the rest would count as what appeared later
				return nil, fmt.Errorf("no offsets of %s[%d] at %s", p.at.topic, p.at.partition, f.def.From)
			}
			p.waits = true
			continue
		}
		before := earlier[p.at.topic]
		if slices.ContainsFunc(before, func(was earlierTopic) bool { return was.src.TopicID == p.src.TopicID }) {
			before = nil // the topic is known; this partition was added to it
		}
		for _, was := range before {
			if f.def.OnRecreate != topology.OnRecreateRestart {
				f.void(p.at, start, &void{
					fmt.Sprintf("the source topic was deleted and created again; the one before was copied up to %d", was.next),
					"set on_recreate: restart to copy the new one from its beginning behind what is there",
				})
				start = -1
				break
			}
			out = append(out, startEntry(p.src, start, false, "the source topic was recreated: from its beginning"))
			start = -1
			break
		}
		if start < 0 {
			continue
		}
		o, ok := committed.Lookup(p.at.topic, p.at.partition)
		foreign := strings.HasPrefix(o.Metadata, idPrefix) && !strings.HasPrefix(o.Metadata, idText(p.route.id)) && p.route.id != [16]byte{}
		switch {
		case ok && o.Err == nil && o.At >= 0 && !foreign:
			out = append(out, startEntry(p.src, o.At, true, "position of group "+f.settings.GroupID))
		case founding && f.def.Start == topology.StartLatest:
			out = append(out, startEntry(p.src, end, false, "start: latest"))
		case founding:
			out = append(out, startEntry(p.src, start, false, "start: earliest"))
		default:
			out = append(out, startEntry(p.src, start, false, "appeared while the flow ran"))
		}
	}
	return out, nil
}

// earlierTopic is a source partition that the ledger knows by a topic's name.
type earlierTopic struct {
	src  txn.SourcePartition
	next int64
}

// namesakes are the partitions that the whole ledger knows under names.
func (f *flow) namesakes(ctx context.Context, topics []string) (map[string][]earlierTopic, error) {
	out := map[string][]earlierTopic{}
	ls, err := f.readLedger(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range ls {
		for _, p := range l.Partitions() {
			fr := l.Mark(p).Frontier
			if fr != nil && slices.Contains(topics, fr.SourceTopic) {
				out[fr.SourceTopic] = append(out[fr.SourceTopic], earlierTopic{p, fr.Next})
			}
		}
	}
	return out, nil
}

// ledgerPositions reads what the ledger has, of all processes.
func (f *flow) ledgerPositions(ctx context.Context, list kadm.TopicDetails) (map[place]standing, error) {
	for len(f.tails) < f.ledger.shards {
		f.tails = append(f.tails, &txn.Ledger{})
	}
	if err := f.readShards(ctx, f.tails); err != nil {
		return nil, err
	}
	out := map[place]standing{}
	for _, t := range list {
		if t.Err != nil {
			continue
		}
		rt := route{topic: t.Topic, id: t.ID}
		for p := range t.Partitions {
			src := f.sourcePartition(rt, p)
			if len(f.tails) == 0 {
				break
			}
			if at, ok := f.tails[src.Shard(len(f.tails))].Mark(src).Position(); ok {
				out[place{t.Topic, p}] = standing{id: t.ID, start: -1, position: at, lag: -1}
			}
		}
	}
	return out, nil
}

// judgeTails is judgeLedger for what the lag watcher has read of all shards.
func (f *flow) judgeTails(ctx context.Context) error {
	for k, l := range f.tails {
		if l.Flow() == nil {
			continue
		}
		if err := f.judgeLedger(ctx, int32(k), l); err != nil {
			return err
		}
	}
	return nil
}
