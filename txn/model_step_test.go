package txn_test

import "fmt"

// modelStep is one thing that can happen.
type modelStep struct {
	what  string
	owner int8 // -1: nobody's
	// luck is set for what need not happen: a fault, or a courtesy.
	luck bool
	to   shardWorld
}

func (s modelStep) String() string {
	if s.owner < 0 {
		return s.what
	}
	return fmt.Sprintf("%c %s", 'A'+rune(s.owner), s.what)
}

// steps are all that can happen in w.
func (w *shardWorld) steps(r *shardRules) []modelStep {
	var out []modelStep
	add := func(what string, owner int8, luck bool, change func(w *shardWorld)) {
		to := *w
		change(&to)
		to.fold(r)
		out = append(out, modelStep{what, owner, luck, to})
	}
	w.brokerSteps(r, add)
	for o := range int8(len(w.owners)) {
		w.ownerSteps(o, r, func(what string, luck bool, change func(w *shardWorld, p *modelOwner, t *modelTxn)) {
			add(what, o, luck, func(w *shardWorld) {
				change(w, &w.owners[o], &w.txns[r.id(o)])
			})
		})
	}
	return out
}

// id is the transactional id that process o uses for the shard.
func (r *shardRules) id(o int8) uint8 {
	if r.noFence {
		return uint8(o)
	}
	return 0
}

func (w *shardWorld) brokerSteps(r *shardRules, add func(string, int8, bool, func(*shardWorld))) {
	if w.moves > 0 {
		add("the group moves the shard", -1, true, func(w *shardWorld) {
			w.moves--
			w.assigned = 1 - w.assigned
		})
	}
	if w.source < modelRecords {
		add("a record arrives at the source", -1, false, func(w *shardWorld) { w.source++ })
	}
	if w.lags {
		add("the high watermark catches up", -1, false, func(w *shardWorld) { w.lags, w.hw = false, w.n })
	} else if w.elections > 0 {
		for hw := range w.n {
			if !r.lagTaken && hw > 0 {
				break // Nobody looks at it.
			}
			add(fmt.Sprintf("the ledger gets a new leader, high watermark %d of %d", hw, w.n), -1, true, func(w *shardWorld) {
				w.elections--
				w.lags, w.hw = true, hw
			})
		}
	}
	for id := range uint8(len(w.txns)) {
		t := w.txns[id]
		if t.state == txnOngoing && w.timeouts > 0 {
			add("the transaction times out", -1, true, func(w *shardWorld) {
				w.timeouts--
				w.fence(id)
			})
		}
		// acks=all: no marker, and no entry, is answered while the new leader
		// is not followed.
		if t.state >= txnCommitting && !w.lags {
			add(fmt.Sprintf("marker (commit %v)", t.state == txnCommitting), -1, false, func(w *shardWorld) {
				if t.inLedger {
					kind := entryCommit
					if t.state == txnAborting {
						kind = entryAbort
					}
					w.append(modelEntry{kind: kind, id: id, epoch: t.epoch})
				}
				w.txns[id] = modelTxn{epoch: t.epoch, last: entryAbort}
				if t.state == txnCommitting {
					w.txns[id].last = entryCommit
				}
			})
		}
	}
	if e := w.endTxn; e.set {
		add("a commit that was given up arrives", -1, true, func(w *shardWorld) {
			w.endTxn = strayRequest{}
			if t := w.txns[e.id]; t.state == txnOngoing && t.epoch == e.epoch {
				w.commit(e.id, r)
			}
		})
	}
	if e := w.copy; e.set {
		add(fmt.Sprintf("a copy of record %d that was given up arrives", e.next), -1, true, func(w *shardWorld) {
			w.copy = strayRequest{}
			// The verifying leader asks the coordinator. Under v2 it would even
			// begin a transaction.
			if t := &w.txns[e.id]; t.epoch == e.epoch && (t.state == txnOngoing || r.v2 && t.state == txnNone) {
				t.state = txnOngoing
				t.copies |= 1 << e.next
			}
		})
	}
	if e := w.position; e.set && !w.lags && w.txns[e.id].state == txnNone && w.quiet() {
		add(fmt.Sprintf("a position %d that was given up arrives, and hangs", e.next), -1, true, func(w *shardWorld) {
			w.position = strayRequest{}
			w.append(modelEntry{kind: entryData, id: e.id, epoch: e.epoch, next: e.next})
		})
	}
	// What `stops and prints the command` asks a person for.
	if w.owners[0].phase == ownerHalted || w.owners[1].phase == ownerHalted {
		if _, undecided, _ := w.readTo(w.n, &shardRules{}); undecided && r.unverified && !w.lags {
			add("a person aborts the hanging transaction", -1, false, func(w *shardWorld) {
				w.append(modelEntry{kind: entryAbort, epoch: w.txns[0].epoch})
				for o := range w.owners {
					if w.owners[o].phase == ownerHalted {
						w.owners[o].phase = ownerIniting
					}
				}
			})
		}
	}
}

// quiet reports whether no process is past reading.
func (w *shardWorld) quiet() bool {
	for _, p := range w.owners {
		if p.phase >= ownerReady && p.phase <= ownerUnplaced {
			return false
		}
	}
	return true
}

// ownerChange is what a step of a process alters: the world, the process, and the
// coordinator's view of its transactional id.
type ownerChange = func(w *shardWorld, p *modelOwner, t *modelTxn)

func (w *shardWorld) ownerSteps(o int8, r *shardRules, add func(string, bool, ownerChange)) {
	p, t := w.owners[o], w.txns[r.id(o)]
	if p.phase == ownerIdle {
		if w.assigned == o {
			add("starts", false, func(_ *shardWorld, p *modelOwner, _ *modelTxn) {
				p.phase = ownerIniting
				if r.readFirst {
					p.phase = ownerReading
				}
			})
		}
		return
	}
	if w.crashes > 0 {
		add("crashes", true, func(w *shardWorld, p *modelOwner, _ *modelTxn) {
			w.crashes--
			w.strand(o, r)
			*p = modelOwner{pos: noPosition, next: noPosition}
		})
	}
	if w.assigned != o {
		add("learns that it lost the shard", false, func(_ *shardWorld, p *modelOwner, t *modelTxn) {
			if p.phase == ownerPositioned && t.epoch == p.epoch && t.state == txnOngoing {
				// Everything was answered, so it may abort by EndTxn.
				t.state = txnAborting
				if r.v2 {
					t.epoch++
				}
			}
			*p = modelOwner{pos: noPosition, next: noPosition}
		})
	}
	switch p.phase {
	case ownerIdle:
	case ownerIniting:
		switch t.state {
		case txnOngoing:
			add("InitProducerID aborts what is open", false, func(w *shardWorld, _ *modelOwner, _ *modelTxn) { w.fence(r.id(o)) })
		case txnNone:
			add("InitProducerID is answered", false, func(w *shardWorld, p *modelOwner, t *modelTxn) {
				t.epoch++
				t.last = 0
				p.epoch, p.phase = t.epoch, ownerReading
				if r.readFirst || p.keeps {
					p.phase, p.keeps = ownerReady, false
					w.promise(p)
				}
			})
		case txnCommitting, txnAborting: // CONCURRENT_TRANSACTIONS
		}
	case ownerReading:
		w.readSteps(o, r, add)
	case ownerReady:
		// Nobody looks at it but one who begins there. What comes late is the
		// rule, not the exception: it may never come.
		if r.fromGroup && p.pos > w.group {
			add("tells the source's group", true, func(w *shardWorld, p *modelOwner, _ *modelTxn) { w.group = p.pos })
		}
		switch {
		case p.pos == noPosition:
			add("writes the start entry", false, func(w *shardWorld, p *modelOwner, _ *modelTxn) {
				p.next = w.group
				if r.latest {
					p.next = w.source
				}
				w.place(o, r)
			})
		case p.pos < w.source:
			w.copyStep(o, p.pos, r, add)
			w.uncleanStep(o, p.pos, r, add)
		}
	case ownerOpen:
		if p.next < w.source {
			w.copyStep(o, p.next, r, add)
		}
		w.uncleanStep(o, p.next, r, add)
		if !w.lags {
			add("writes the position", false, func(w *shardWorld, _ *modelOwner, _ *modelTxn) { w.place(o, r) })
		}
	case ownerPositioned:
		w.endSteps(o, r, add)
		w.uncleanStep(o, modelRecords, r, add)
	case ownerRepeating:
		w.repeatSteps(o, r, add)
	case ownerUnplaced:
		add("writes the position after the commit", false, func(w *shardWorld, p *modelOwner, _ *modelTxn) {
			w.append(modelEntry{kind: entryPlain, next: p.next})
			p.pos, p.phase = p.next, ownerReady
		})
	case ownerFenced:
		if w.assigned == o {
			add("is told by the group that the shard is its own, and starts again", false, func(_ *shardWorld, p *modelOwner, _ *modelTxn) { p.restart(r) })
		}
	case ownerHalted:
	}
}

// promise notes that from p's position on everything has to come.
func (w *shardWorld) promise(p *modelOwner) {
	if w.promised == noPosition && p.pos != noPosition {
		w.promised = p.pos
	}
}

func (w *shardWorld) readSteps(o int8, r *shardRules, add func(string, bool, ownerChange)) {
	end := w.n
	if w.lags {
		if !r.lagTaken {
			return // OFFSET_NOT_AVAILABLE: again
		}
		end = w.hw
	}
	pos, undecided, void := w.readTo(end, r)
	switch {
	case undecided && r.noFence:
		return // another process's: wait for it
	case undecided && !r.undecidedGone && !r.anyHangs && w.txns[r.id(o)].epoch != w.owners[o].epoch:
		// DescribeTransactions: it is open under a later epoch. Somebody has
		// set a fence between this process's own and its read.
		add("finds an open transaction of a later epoch: it is fenced", false, func(_ *shardWorld, p *modelOwner, _ *modelTxn) { p.phase = ownerFenced })
		return
	case undecided && !r.undecidedGone, void:
		add("reads the ledger and stops at what it can't explain", false, func(_ *shardWorld, p *modelOwner, _ *modelTxn) { p.phase = ownerHalted })
		return
	}
	add(fmt.Sprintf("reads the ledger up to %d", end), false, func(w *shardWorld, p *modelOwner, _ *modelTxn) {
		p.pos, p.phase = pos, ownerReady
		switch {
		case r.fromGroup:
			p.pos = w.group
		case pos != noPosition:
		case r.fromZero:
			p.pos = 0
		case r.fromLatest:
			p.pos = w.source
		}
		if r.readFirst {
			p.phase = ownerIniting
			return
		}
		w.promise(p)
	})
}

func (w *shardWorld) copyStep(o, record int8, r *shardRules, add func(string, bool, ownerChange)) {
	switch w.txns[r.id(o)].state {
	case txnCommitting, txnAborting: // CONCURRENT_TRANSACTIONS, or fenced: seen at the next try
		return
	case txnNone, txnOngoing:
	}
	add(fmt.Sprintf("copies record %d", record), false, func(_ *shardWorld, p *modelOwner, t *modelTxn) {
		if t.epoch != p.epoch {
			p.phase = ownerFenced
			return
		}
		t.state = txnOngoing
		t.copies |= 1 << record
		p.next, p.phase = record+1, ownerOpen
	})
}

// place appends process o's position.
func (w *shardWorld) place(o int8, r *shardRules) {
	p, t := &w.owners[o], &w.txns[r.id(o)]
	switch {
	case r.outsideAfter && p.phase == ownerOpen:
		p.phase = ownerPositioned
		return
	case r.outsideBefore && p.phase == ownerOpen:
		w.append(modelEntry{kind: entryPlain, next: p.next})
		p.phase = ownerPositioned
		return
	case t.epoch != p.epoch || t.state >= txnCommitting:
		p.phase = ownerFenced
		return
	}
	t.state, t.inLedger = txnOngoing, true
	w.append(modelEntry{kind: entryData, id: r.id(o), epoch: p.epoch, next: p.next})
	p.phase = ownerPositioned
}

// strand leaves a position under way that process o has sent and will not
// hear of.
func (w *shardWorld) strand(o int8, r *shardRules) {
	if p := w.owners[o]; r.unverified && p.phase == ownerOpen {
		w.position = strayRequest{true, r.id(o), p.epoch, p.next}
	}
}

// uncleanStep is a produce request without an answer: of the record, or of the
// position where there is none to copy. It may still arrive.
func (w *shardWorld) uncleanStep(o, record int8, r *shardRules, add func(string, bool, ownerChange)) {
	if w.losses == 0 {
		return
	}
	what := "gets no answer for its position, and starts again"
	if record < w.source {
		what = fmt.Sprintf("gets no answer for its copy of record %d, and starts again", record)
	}
	add(what, true, func(w *shardWorld, p *modelOwner, t *modelTxn) {
		w.losses--
		w.strand(o, r)
		if record < w.source {
			w.copy = strayRequest{set: true, id: r.id(o), epoch: p.epoch, next: record}
		}
		if r.endOverUnclean && t.epoch == p.epoch && t.state == txnOngoing {
			t.state, p.phase = txnAborting, ownerReady
			if r.v2 {
				t.epoch++
				p.epoch = t.epoch
			}
			return
		}
		p.restart(r)
	})
}

// restart sends the process back to the fence.
func (p *modelOwner) restart(r *shardRules) {
	*p = modelOwner{phase: ownerIniting, pos: noPosition, next: noPosition}
	if r.readFirst {
		p.phase = ownerReading
	}
}

func (w *shardWorld) endSteps(o int8, r *shardRules, add func(string, bool, ownerChange)) {
	p, t := w.owners[o], w.txns[r.id(o)]
	if t.epoch != p.epoch || t.state != txnOngoing {
		add("asks for the commit and learns that it is fenced", false, func(_ *shardWorld, p *modelOwner, _ *modelTxn) { p.phase = ownerFenced })
		return
	}
	add("commits", false, func(w *shardWorld, p *modelOwner, t *modelTxn) {
		w.commit(r.id(o), r)
		w.ended(p, t)
		if r.outsideAfter {
			p.phase = ownerUnplaced
		}
	})
	if w.losses == 0 || p.phase == ownerRepeating {
		return
	}
	unanswered := func(w *shardWorld, p *modelOwner) {
		w.losses--
		was := *p
		switch p.restart(r); {
		case r.repeats:
			*p = was
			p.phase = ownerRepeating
		case r.lostAborted:
			p.pos, p.keeps = was.pos, true
		case r.lostCommitted:
			p.pos, p.keeps = was.next, true
		}
	}
	add("commits, and the answer is lost", true, func(w *shardWorld, p *modelOwner, _ *modelTxn) {
		w.commit(r.id(o), r)
		unanswered(w, p)
	})
	add("asks for the commit, and gives up before it arrives", true, func(w *shardWorld, p *modelOwner, t *modelTxn) {
		w.endTxn = strayRequest{set: true, id: r.id(o), epoch: t.epoch}
		unanswered(w, p)
	})
}

// ended is the good answer to a commit.
func (w *shardWorld) ended(p *modelOwner, t *modelTxn) {
	p.epoch, p.pos, p.phase = t.epoch, p.next, ownerReady
	w.promise(p)
}

// repeatSteps are what becomes of a commit that is sent again, by the table in
// the coordinator's source: under v2 the epoch after the bump tells a repeated
// one, under v1 nothing does.
func (w *shardWorld) repeatSteps(o int8, r *shardRules, add func(string, bool, ownerChange)) {
	p, t := w.owners[o], w.txns[r.id(o)]
	repeated := t.epoch == p.epoch
	if r.v2 {
		repeated = t.epoch == p.epoch+1
	}
	switch {
	case t.state == txnOngoing && t.epoch == p.epoch:
		w.endSteps(o, r, add)
	case t.state == txnCommitting && repeated: // CONCURRENT_TRANSACTIONS: again
	case t.state == txnNone && t.last == entryCommit && repeated:
		add("asks for the commit again and is told that it is done", false, func(w *shardWorld, p *modelOwner, t *modelTxn) { w.ended(p, t) })
	default:
		add("asks for the commit again and is refused", false, func(_ *shardWorld, p *modelOwner, _ *modelTxn) { p.phase = ownerFenced })
	}
}
