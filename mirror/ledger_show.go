package mirror

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/txn"
)

// Ledger reads the ledger of a flow and what it stands beside: who owns its
// shards, the logs of source and target, the offset map, open transactions. It
// needs no running mirror, changes nothing, and may be called instead of Run. The
// map, which can be long, is read last and for as long as ctx permits. What
// concerns one shard, or can't be looked at, stands in the report; the error is
// one that keeps everything from being read.
func (m *Mirror) Ledger(ctx context.Context, flow string) (LedgerReport, error) {
	f, err := m.flow(flow)
	if err != nil {
		return LedgerReport{}, err
	}
	r := LedgerReport{
		Flow: flow, From: f.def.From, To: f.def.To, Topic: txn.LedgerTopic(flow),
		Shards: []LedgerShard{}, Positions: []LedgerPosition{}, Findings: []LedgerFinding{},
	}
	if !f.hasTarget() {
		return r, nil
	}
	var k ledgerLook
	err = f.patiently(ctx, func(ctx context.Context) error {
		k = ledgerLook{f: f, r: r}
		return k.all(ctx)
	})
	return k.r, f.named(err)
}

// flow finds a flow by its name.
func (m *Mirror) flow(name string) (*flow, error) {
	i := slices.IndexFunc(m.flows, func(f *flow) bool { return f.def.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no flow has the name %q", name)
	}
	return m.flows[i], nil
}

// ledgerLook is one look at a ledger.
type ledgerLook struct {
	f *flow
	r LedgerReport

	shards  []*txn.Ledger                 // nil where one could not be read
	sources map[txn.SourcePartition]place // that there are now
	targets kadm.TopicDetails
	at      map[place]logs     // source partitions
	ends    kadm.ListedOffsets // of the target's topics
	maps    map[txn.SourcePartition]*coverage
	mapped  []bool                           // by shard: the map was read to its end
	forgot  []bool                           // by shard: the map does not begin at its first run
	frozen  map[txn.SourcePartition]txn.Mark // as of the look
}

// logs is where a source partition begins and ends, -1 where not known.
type logs struct{ start, stable, end int64 }

func (k *ledgerLook) all(ctx context.Context) error {
	f := k.f
	if err := f.open(); err != nil {
		return err
	}
	if err := f.probe(ctx); err != nil {
		return err
	}
	have, err := listTopics(ctx, f.dst, k.r.Topic)
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	t := have[k.r.Topic]
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition), t.Topic == "":
		return nil
	case t.Err != nil:
		return fmt.Errorf("look for topic %s: %w", k.r.Topic, t.Err)
	}
	k.r.Exists, k.r.TopicID, k.r.Partitions = true, idOf(t.ID), len(t.Partitions)
	f.ledger = ledgerHome{t.ID, len(t.Partitions)}
	k.read(ctx)
	k.head()
	if err := k.owners(ctx); err != nil {
		k.unseen("group "+txn.ShardGroup(f.def.Name), err)
	}
	if err := k.list(ctx); err != nil {
		return err
	}
	k.readMap(ctx)
	k.rows()
	k.check(ctx)
	return nil
}

// idOf is a topic id in the form of Kafka's tools, empty for none.
func idOf(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// read reads all shards, side by side: one without a leader costs the others no
// time.
func (k *ledgerLook) read(ctx context.Context) {
	k.shards = make([]*txn.Ledger, k.r.Partitions)
	k.r.Shards = make([]LedgerShard, k.r.Partitions)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for n := range k.shards {
		wg.Go(func() {
			l := &txn.Ledger{}
			s := LedgerShard{Shard: n, Next: -1}
			if err := l.Read(ctx, k.f.dst, k.r.Topic, int32(n)); err != nil {
				s.Problem = err.Error()
			} else {
				k.shards[n] = l
				s.fill(l)
			}
			k.r.Shards[n] = s
		})
	}
	wg.Wait()
}

func (s *LedgerShard) fill(l *txn.Ledger) {
	s.Next, s.Undecided, s.Suspended = l.Next(), len(l.Undecided()), l.Suspended() != nil
	newest := int64(0)
	if e := l.Flow(); e != nil {
		s.Founded, s.Generation, newest = true, e.Generation, e.Time
	}
	if e := l.Suspended(); e != nil {
		newest = max(newest, e.Time)
	}
	for _, p := range l.Partitions() {
		m := l.Mark(p)
		if m.Start != nil {
			newest = max(newest, m.Start.Time)
		}
		if m.Frontier != nil {
			newest = max(newest, m.Frontier.Time)
		}
		for _, g := range l.Gaps(p) {
			newest = max(newest, g.Time)
		}
	}
	if newest > 0 {
		s.LastEntry = moment(newest)
	}
}

// moment is a time of the ledger.
func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// head fills in what the flow entries say: the newest one, should they differ.
func (k *ledgerLook) head() {
	suspended := 0
	for _, l := range k.shards {
		if l == nil {
			continue
		}
		if e := l.Flow(); e != nil && e.Generation >= k.r.Generation {
			k.r.K, k.r.Generation, k.r.Fingerprint = int(e.K), e.Generation, e.Fingerprint
			k.r.SourceCluster, k.r.TargetCluster = e.SourceCluster, e.TargetCluster
			k.r.Declared = e.Fingerprint == k.f.def.Fingerprint()
			k.r.Reader = "partition"
			if e.Reader == txn.ReaderShare {
				k.r.Reader = "share"
			}
		}
		if e := l.Suspended(); e != nil {
			suspended++
			k.r.Suspended = &LedgerNote{e.Reason, moment(e.Time)}
		}
	}
	if suspended > 0 && suspended < len(k.shards) {
		k.find("ledger", fmt.Sprintf("%d of %d shards are suspended", suspended, len(k.shards)),
			"a change to or from at-least-once did not end; run the flow with guarantee: at-least-once, or mirror ledger resume --flow "+k.r.Flow)
	}
}

// owners asks the shard group who has which shard.
func (k *ledgerLook) owners(ctx context.Context) error {
	group := txn.ShardGroup(k.f.def.Name)
	ds, err := kadm.NewClient(k.f.dst).DescribeGroups(ctx, group)
	if err == nil {
		err = ds[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range ds[group].Members {
		a, ok := m.Assigned.AsConsumer()
		if !ok {
			continue
		}
		who := &LedgerOwner{Member: m.MemberID, Host: m.ClientHost}
		if m.InstanceID != nil {
			who.Instance = *m.InstanceID
		}
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				if t.Topic == k.r.Topic && int(p) < len(k.r.Shards) {
					k.r.Shards[p].Owner = who
				}
			}
		}
	}
	return nil
}

// list reads where the logs of both clusters stand, of the partitions that the
// ledger knows. Positions are taken before: a source's end that is asked for
// afterwards is not below them.
func (k *ledgerLook) list(ctx context.Context) error {
	f := k.f
	k.frozen = map[txn.SourcePartition]txn.Mark{}
	var names []string
	for _, l := range k.shards {
		if l == nil {
			continue
		}
		for _, p := range l.Partitions() {
			k.frozen[p] = l.Mark(p)
			if fr := l.Mark(p).Frontier; fr != nil {
				names = append(names, fr.TargetTopic)
			}
		}
	}
	topics, err := listTopics(ctx, f.src)
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	k.sources = f.sourcePlaces(topics)
	var known []string
	for p := range k.frozen {
		if at, ok := k.sources[p]; ok {
			known = append(known, at.topic)
		}
	}
	k.at = map[place]logs{}
	if known = unique(known); len(known) > 0 {
		if err := k.listSource(ctx, known); err != nil {
			return err
		}
	}
	if names = unique(names); len(names) == 0 {
		return nil
	}
	if k.targets, err = listTopics(ctx, f.dst, names...); err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	if k.ends, err = kadm.NewClient(f.dst).ListEndOffsets(ctx, names...); err != nil && len(k.ends) == 0 {
		return fmt.Errorf("list end offsets of %s: %w", f.def.To, err)
	}
	return nil
}

func (k *ledgerLook) listSource(ctx context.Context, topics []string) error {
	adm := k.f.admin()
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil && len(starts) == 0 {
		return fmt.Errorf("list start offsets of %s: %w", k.f.def.From, err)
	}
	stable, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil && len(stable) == 0 {
		return fmt.Errorf("list end offsets of %s: %w", k.f.def.From, err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil && len(ends) == 0 {
		return fmt.Errorf("list end offsets of %s: %w", k.f.def.From, err)
	}
	for p := range k.frozen {
		if at, ok := k.sources[p]; ok {
			k.at[at] = logs{offsetOf(starts, at.topic, at.partition), offsetOf(stable, at.topic, at.partition), offsetOf(ends, at.topic, at.partition)}
		}
	}
	return nil
}

// sourcePlaces says where the source partitions of a ledger are now.
func (f *flow) sourcePlaces(topics kadm.TopicDetails) map[txn.SourcePartition]place {
	out := map[txn.SourcePartition]place{}
	for _, t := range topics {
		for p := range t.Partitions {
			out[f.sourcePartition(route{topic: t.Topic, id: t.ID}, p)] = place{t.Topic, p}
		}
	}
	return out
}

// readMap reads the whole map.
func (k *ledgerLook) readMap(ctx context.Context) {
	k.maps = map[txn.SourcePartition]*coverage{}
	k.mapped, k.forgot = make([]bool, len(k.shards)), make([]bool, len(k.shards))
	for n := range k.shards {
		by, start, err := k.f.coverage(ctx, int32(n))
		k.mapped[n], k.forgot[n] = err == nil, start > 0
		for p, c := range by {
			k.maps[p] = c
		}
		if err != nil {
			hint := ""
			if ctx.Err() != nil {
				hint = "give it more time with --timeout"
			}
			k.find(fmt.Sprintf("map of shard %d", n), "not read to its end: "+err.Error(), hint)
		}
	}
}

// rows makes the report's positions.
func (k *ledgerLook) rows() {
	for n, l := range k.shards {
		if l == nil {
			continue
		}
		for _, p := range l.Partitions() {
			k.r.Positions = append(k.r.Positions, k.row(n, p, l))
		}
	}
	slices.SortFunc(k.r.Positions, func(a, b LedgerPosition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.TopicID, b.TopicID), cmp.Compare(a.Partition, b.Partition))
	})
}
