package mirror

import "github.com/onceover-mirror/onceover/txn"

// row is what there is to tell of one source partition.
func (k *ledgerLook) row(shard int, p txn.SourcePartition, l *txn.Ledger) LedgerPosition {
	m := k.frozen[p]
	row := LedgerPosition{
		src:       p,
		Partition: p.Partition, TopicID: idOf(p.TopicID), Shard: shard,
		Position: -1, LogStart: -1, End: -1, Lag: -1, Map: LedgerMap{First: -1, Last: -1},
	}
	if at, ok := m.Position(); ok {
		row.Position = at
	}
	if s := m.Start; s != nil {
		row.Start = &LedgerStart{s.Position, s.Prior, s.Reason, moment(s.Time)}
	}
	if fr := m.Frontier; fr != nil {
		row.Topic = fr.SourceTopic
		row.Frontier = &LedgerFrontier{fr.Next, moment(fr.Time), fr.TxnID, fr.ProducerEpoch, fr.TargetTopic, fr.TargetNext}
	}
	for _, g := range l.Gaps(p) {
		row.Gaps = append(row.Gaps, LedgerGap{g.First, g.Last, g.Reason, moment(g.Time)})
	}
	at, ok := k.sources[p]
	row.Gone = !ok
	if ok {
		row.Topic = at.topic
	}
	if b, ok := k.at[at]; ok && !row.Gone {
		row.LogStart, row.End = b.start, b.stable
		if row.Position >= 0 && b.stable >= 0 {
			row.Lag = max(0, b.stable-row.Position)
		}
	}
	k.cover(&row, p)
	return row
}

// cover fills in what the map has.
func (k *ledgerLook) cover(row *LedgerPosition, p txn.SourcePartition) {
	c := k.maps[p]
	if c == nil {
		c = &coverage{}
	}
	row.Map.Complete, row.Map.Runs = k.mapped[row.Shard], c.runs
	row.Map.First, row.Map.Last = c.bounds()
	if row.Start == nil || row.Position < 0 || !row.Map.Complete {
		row.Map.Unmapped = -1
		return
	}
	for _, r := range c.offsets.Missing(row.Start.Position, row.Position-1) {
		row.Map.Unmapped += r.Len()
	}
}
