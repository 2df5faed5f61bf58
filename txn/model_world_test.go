package txn_test

import "fmt"

// The model of the shard protocol with partition readers (ledger sections 2 to
// 4): one source partition, one shard, two processes that may own it. It is a
// second description, written without the machine of state.go, small enough
// for every interleaving of its steps to be tried.
//
// A source record is a number from 0. An earlier at-least-once run copied 0;
// the flow has to copy what comes after.

const (
	modelRecords = 3
	modelLog     = 18
)

// shardRules are the brokers' and the protocol's, each of the latter with a way to
// be broken.
type shardRules struct {
	// v2 is transaction protocol v2: EndTxn moves the epoch on.
	v2 bool
	// latest starts at the end of the source, which still grows, in place of
	// the position of the earlier run.
	latest bool
	// unverified are brokers before 3.6: a position that was sent in an ended
	// transaction may be appended after its marker, and hang.
	unverified bool
	// repeats sends a commit again that was not answered, which the protocol
	// does under v2 alone.
	repeats bool
	// unfolded does without [shardWorld.fold].
	unfolded bool
	// What may go wrong, and how often.
	crashes, moves, timeouts, losses, elections int8

	noFence        bool // each process has a transactional id of its own
	readFirst      bool // the ledger is read, then the fence is set
	outsideBefore  bool // the position is written before the commit, in no transaction
	outsideAfter   bool // the same after it
	undecidedGone  bool // an entry without a marker counts as aborted
	anyHangs       bool // an entry without a marker is never taken for another's
	lostAborted    bool // a commit without an answer counts as aborted
	lostCommitted  bool // or as committed
	fromZero       bool // no start entry: without a frontier, begin at 0
	fromLatest     bool // no start entry: without a frontier, begin at the end
	fromGroup      bool // begin where the source's group stands
	exactMarkers   bool // a marker closes entries of its own epoch only
	lagTaken       bool // a new leader's lagging high watermark counts as the end
	endOverUnclean bool // EndTxn(abort) in place of InitProducerID after a produce without answer
}

type entryKind uint8

const (
	entryData entryKind = iota + 1
	entryPlain
	entryCommit
	entryAbort
)

// modelEntry is a record of the ledger partition.
type modelEntry struct {
	kind      entryKind
	id, epoch uint8
	next      int8
}

type modelTxnState uint8

const (
	txnNone modelTxnState = iota
	txnOngoing
	txnCommitting // decided, marker not written
	txnAborting
)

// modelTxn is what the coordinator knows of a transactional id.
type modelTxn struct {
	epoch    uint8
	state    modelTxnState
	copies   uint8 // a bit for each record copied
	inLedger bool
	// last is how the one before ended, as far as the coordinator tells
	// repeated requests from new ones; 0 after InitProducerID.
	last entryKind
}

type ownerPhase uint8

const (
	ownerIdle ownerPhase = iota
	ownerIniting
	ownerReading
	ownerReady
	ownerOpen
	ownerPositioned
	ownerRepeating // a commit went out unanswered and is sent again (repeats)
	ownerUnplaced  // committed, the position still to be written (outsideAfter)
	ownerFenced
	ownerHalted
)

// noPosition is what a process has before it knows one.
const noPosition = int8(-1)

// modelOwner is one process. It may believe that it owns the shard (any phase
// but idle) while the group thinks otherwise.
type modelOwner struct {
	phase ownerPhase
	epoch uint8
	// pos is the next record to copy when ready, next that within the open
	// transaction.
	pos, next int8
	// keeps pos over the next InitProducerID: what the broken rules do.
	keeps bool
}

// strayRequest is a request that is still under way although its sender gave it up.
type strayRequest struct {
	set       bool
	id, epoch uint8
	next      int8
}

// shardWorld is one state of everything. It is comparable.
type shardWorld struct {
	source   int8 // records there are
	log      [modelLog]modelEntry
	n, hw    uint8
	lags     bool
	txns     [2]modelTxn
	owners   [2]modelOwner
	assigned int8
	group    int8
	// promised is the first record that has to be copied; noPosition until a process
	// may fetch.
	promised int8
	copies   [modelRecords]int8 // as a read_committed reader sees them
	high     int8               // the last of them
	disorder bool
	endTxn   strayRequest
	position strayRequest
	copy     strayRequest // next is the record
	// void is that a position went back in a part of the log that was folded.
	void bool

	crashes, moves, timeouts, losses, elections int8
}

func newShardWorld(r *shardRules) shardWorld {
	w := shardWorld{
		source: modelRecords, group: 1, promised: noPosition, high: noPosition,
		crashes: r.crashes, moves: r.moves, timeouts: r.timeouts, losses: r.losses, elections: r.elections,
	}
	if r.latest {
		w.source = 1
	} else {
		w.copies[0], w.high = 1, 0
	}
	for o := range w.owners {
		w.owners[o].pos, w.owners[o].next = noPosition, noPosition
	}
	return w
}

func (w *shardWorld) append(e modelEntry) {
	if int(w.n) == modelLog {
		panic("the model's ledger is too short")
	}
	w.log[w.n] = e
	w.n++
	w.hw = w.n
}

// commit decides the transaction: what it holds is there from now on, though
// its marker is not.
func (w *shardWorld) commit(id uint8, r *shardRules) {
	t := &w.txns[id]
	t.state = txnCommitting
	if r.v2 {
		t.epoch++
	}
	for i := range int8(modelRecords) {
		if t.copies&(1<<i) != 0 {
			w.copies[i]++
			w.disorder = w.disorder || i < w.high
			w.high = max(w.high, i)
		}
	}
}

// fence ends what is open under the id by force; its epoch is no longer good.
func (w *shardWorld) fence(id uint8) {
	w.txns[id].epoch++
	w.txns[id].state = txnAborting
}

// readTo is what the ledger up to end says: the position, and whether an entry
// has no marker or a position went back.
func (w *shardWorld) readTo(end uint8, r *shardRules) (pos int8, undecided, void bool) {
	pos, void = noPosition, w.void
	for i := range end {
		e := w.log[i]
		committed := e.kind == entryPlain
		if e.kind == entryData {
			decided := false
			for j := i + 1; j < end && !decided; j++ {
				c := w.log[j]
				if c.kind >= entryCommit && c.id == e.id && (!r.exactMarkers || c.epoch == e.epoch) {
					decided, committed = true, c.kind == entryCommit
				}
			}
			undecided = undecided || !decided
		}
		if committed {
			void = void || e.next < pos
			pos = e.next
		}
	}
	return pos, undecided, void
}

// broken names what is wrong with w, whatever comes next; empty when nothing
// is.
func (w *shardWorld) broken() string {
	for i, n := range w.copies {
		if n > 1 {
			return fmt.Sprintf("record %d is there %d times", i, n)
		}
	}
	if w.disorder {
		return "a record is behind a later one"
	}
	return ""
}

// incomplete names what is missing when nothing more happens by itself.
func (w *shardWorld) incomplete() string {
	if w.promised == noPosition {
		return "no process ever came to copy"
	}
	for i := w.promised; i < modelRecords; i++ {
		if w.copies[i] == 0 {
			return fmt.Sprintf("record %d is missing for good", i)
		}
	}
	return ""
}

// folds reports whether what is past has no effect but its result: not where a
// lagging end can cut the log anywhere, or where one marker does not close all
// that is before it.
func (r *shardRules) folds() bool {
	return !r.unfolded && !r.lagTaken && !r.noFence && !r.exactMarkers && !r.outsideBefore && !r.outsideAfter
}

// fold makes one state of those that nothing can tell apart any more: what is
// decided in the ledger becomes the one position that it gives, an epoch is the
// current one or a dead one, and what a process will not look at again is
// forgotten.
func (w *shardWorld) fold(r *shardRules) {
	if !r.folds() {
		return
	}
	decided := uint8(0)
	for i := range w.n {
		if w.log[i].kind >= entryCommit {
			decided = i + 1
		}
	}
	if decided > 0 {
		pos, _, void := w.readTo(decided, r)
		var log [modelLog]modelEntry
		n := uint8(0)
		if pos != noPosition {
			log[0], n = modelEntry{kind: entryPlain, next: pos}, 1
		}
		n += uint8(copy(log[n:], w.log[decided:w.n]))
		w.log, w.n, w.hw, w.void = log, n, n, void
	}
	const current, previous, dead = 2, 1, 0
	t := &w.txns[0]
	age := func(epoch uint8) uint8 {
		switch {
		case epoch == t.epoch:
			return current
		case epoch+1 == t.epoch:
			return previous
		}
		return dead
	}
	for i := range w.n {
		w.log[i].epoch = dead
	}
	for o := range w.owners {
		p := &w.owners[o]
		p.epoch = age(p.epoch)
		if stale := p.phase == ownerReady && p.pos < w.source || p.phase == ownerOpen || p.phase == ownerPositioned; stale && p.epoch != current && !r.unverified {
			// Its next request tells it, whichever that is.
			p.phase, p.pos, p.next = ownerPositioned, noPosition, noPosition
		}
		switch p.phase {
		case ownerIniting, ownerIdle, ownerFenced, ownerHalted:
			p.epoch = dead
		case ownerReady:
			p.next = noPosition
		case ownerOpen, ownerPositioned:
			if !r.lostAborted && !r.endOverUnclean {
				p.pos = noPosition
			}
		case ownerReading, ownerRepeating, ownerUnplaced:
		}
	}
	for _, s := range []*strayRequest{&w.endTxn, &w.copy} {
		if s.epoch = age(s.epoch); s.epoch != current {
			*s = strayRequest{} // It will be refused.
		}
	}
	w.position.epoch = dead
	t.epoch = current
}
