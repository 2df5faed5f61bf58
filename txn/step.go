package txn

import "fmt"

// step is what the session of a shard does about an event: the state after it
// and what is to be done, in order. It is pure. These hold in it, whatever the
// events:
//   - A commit goes out only when every record of the transaction was answered
//     well under one producer id, and positions and map are among them, or
//     every share acknowledgement is staged. A produce or a stage that failed
//     can't be followed by a commit.
//   - After anything unclean no EndTxn is sent but InitProducerID, and the
//     ledger is read before the next transaction (ledger section 3).
//   - An id that changes other than by EndTxn of v2 leads back to the fence.
//   - Under v1 EndTxn goes out once for a transaction, and none at an epoch at
//     which one was left without a clean answer.
//   - Each transaction that was begun is told one outcome.
//
// An event that can't happen in a state is a programming error of the caller:
// step panics with the names of both. Losing the shard and closing are allowed
// in each state.
func step(m machine, ev event) (machine, []effect) {
	switch ev.(type) {
	case evLost:
		return m.leave(Fresh)
	case evClose:
		return m.leave(Closed)
	}
	switch m.state {
	case Fresh:
		if _, ok := ev.(evAssigned); ok {
			return machine{state: Fencing}, []effect{sendInit}
		}
	case Fencing, Unclear:
		return m.fencing(ev)
	case Reading:
		return m.reading(ev)
	case Ready:
		if ev, ok := ev.(evBegin); ok {
			return m.open(ev.v2, ev.share), nil
		}
	case Open:
		return m.opened(ev)
	case Flushing:
		return m.flushing(ev)
	case Ending:
		return m.ending(ev)
	case Fenced:
		if _, ok := ev.(evAssigned); ok {
			return m.fence()
		}
	case Closed:
	}
	panic(m.wrong(ev))
}

// wrong names an event that can't happen in m's state.
func (m machine) wrong(ev event) string {
	return fmt.Sprintf("txn: event %s in state %s", eventName(ev), m.state)
}

// eventName is the type's name without its prefix.
func eventName(ev event) string {
	const prefix = "txn.ev"
	return fmt.Sprintf("%T", ev)[len(prefix):]
}

// fence sends the session back to InitProducerID: to Unclear while a
// transaction is in doubt, else to Fencing.
func (m machine) fence() (machine, []effect) {
	if m.doubt != nil {
		return machine{state: Unclear, doubt: m.doubt}, []effect{reinit}
	}
	return machine{state: Fencing}, []effect{sendInit}
}

// again is what an error of InitProducerID or of reading the ledger leads to,
// where no transaction is open.
func (m machine) again(a Action) (machine, []effect) {
	switch a {
	case Yield:
		return machine{state: Fenced, doubt: m.doubt}, nil
	case Stop:
		return m.leave(Closed)
	case Retry, Abort, RestartLane:
	}
	return m.fence()
}

func (m machine) fencing(ev event) (machine, []effect) {
	switch ev := ev.(type) {
	case evInitOK:
		return machine{state: Reading, id: ev.id, doubt: m.doubt}, []effect{readLedger}
	case evInitErr:
		return m.again(ev.action)
	}
	panic(m.wrong(ev))
}

func (m machine) reading(ev event) (machine, []effect) {
	switch ev := ev.(type) {
	case evLedgerRead:
		ready := machine{state: Ready, id: m.id}
		if m.doubt == nil {
			return ready, nil
		}
		return ready, []effect{deliver(Resolve(m.doubt, ev.positions))}
	case evReadErr:
		if ev.action == Retry {
			return m, []effect{readLedger}
		}
		return m.again(ev.action)
	}
	panic(m.wrong(ev))
}

func (m machine) opened(ev event) (machine, []effect) {
	switch ev := ev.(type) {
	case evSent:
		m.copies += ev.n
		m.waiting += ev.n
		return m, nil
	case evProduced:
		return m.produced(ev)
	case evProduceErr:
		return m.unclean(ev.action)
	case evCommit:
		m.state = Flushing
		return m, nil
	case evAbort:
		return m.giveUp()
	}
	panic(m.wrong(ev))
}

func (m machine) flushing(ev event) (machine, []effect) {
	switch ev := ev.(type) {
	case evSent:
		m.entries += ev.n
		m.owed += ev.n
		return m, nil
	case evProduced:
		return m.produced(ev)
	case evPositionWritten:
		if m.share || m.wrote != nil || ev.positions == nil || ev.n == 0 || len(ev.positions) == 0 && m.copies > 0 {
			panic(m.wrong(ev) + ": positions are written once, and cover what was copied")
		}
		if m.foreign(ev, m.owed, ev.n, ev.id) {
			return m.unclean(RestartLane)
		}
		m.owed -= ev.n
		m.wrote = ev.positions
		return m, nil
	case evStaged:
		if !m.share || m.staged || ev.n == 0 {
			panic(m.wrong(ev) + ": acknowledgements are staged once, all of them")
		}
		if m.foreign(ev, m.owed, ev.n, ev.id) {
			return m.unclean(RestartLane)
		}
		m.owed -= ev.n
		m.staged = true
		return m, nil
	case evMapWritten:
		if m.foreign(ev, m.owed, ev.n, ev.id) {
			return m.unclean(RestartLane)
		}
		m.owed -= ev.n
		m.mapped = true
		return m, nil
	case evProduceErr:
		return m.unclean(ev.action)
	case evFlushErr:
		return m.unclean(ev.action)
	case evFlushOK:
		if !m.clean() {
			// The client has lost sight of a record. Whatever became of it, it
			// was not answered well.
			return m.unclean(RestartLane)
		}
		if !m.bound() {
			panic(m.wrong(ev) + ": without positions and map, or acknowledgements")
		}
		m.state, m.commits, m.leads = Ending, true, Ready
		return m, []effect{sendCommit}
	case evAbort:
		return m.giveUp()
	}
	panic(m.wrong(ev))
}

// produced counts copies as answered well.
func (m machine) produced(ev evProduced) (machine, []effect) {
	if m.foreign(ev, m.waiting, ev.n, ev.id) {
		return m.unclean(RestartLane)
	}
	m.waiting -= ev.n
	return m, nil
}

// foreign reports whether n good answers are for another id than the
// session's: their records are in another transaction, or in none. There can't
// be more of them than the due records that wait for one.
func (m machine) foreign(ev event, due, n int, id producerID) bool {
	if n > due {
		panic(m.wrong(ev) + fmt.Sprintf(": %d answers to %d records", n, due))
	}
	return n > 0 && id != m.id
}

// unclean ends a transaction that can't commit any more, without an EndTxn.
// No commit was asked for, so it is aborted, whoever writes the marker.
func (m machine) unclean(a Action) (machine, []effect) {
	switch a {
	case Yield:
		return machine{state: Fenced}, []effect{dropBuffered, deliverAborted}
	case Stop:
		return machine{state: Closed}, []effect{dropBuffered, deliverAborted}
	case Retry, Abort, RestartLane:
	}
	return machine{state: Fencing}, []effect{dropBuffered, deliverAborted, reinit}
}

// giveUp aborts the transaction. EndTxn must not pass a produce request that
// is under way, which would then be appended after the marker, to no
// transaction or to the next.
func (m machine) giveUp() (machine, []effect) {
	switch {
	case m.empty():
		// The coordinator knows nothing of it: v1 answers INVALID_TXN_STATE.
		return machine{state: Ready, id: m.id}, []effect{dropBuffered, deliverAborted}
	case !m.clean():
		return m.unclean(RestartLane)
	}
	m.state, m.commits, m.leads = Ending, false, Ready
	return m, []effect{dropBuffered, sendAbort}
}

func (m machine) ending(ev event) (machine, []effect) {
	switch ev := ev.(type) {
	case evEndOK:
		if !ev.id.succeeds(m.id, m.v2) {
			return m.unended(RestartLane)
		}
		outcome := Aborted
		if m.commits {
			outcome = Committed
		}
		next := machine{state: m.leads}
		if m.leads == Ready {
			next.id = ev.id
		}
		return next, []effect{deliver(outcome)}
	case evEndErr:
		if ev.action == Retry && m.v2 {
			if m.commits {
				return m, []effect{sendCommit}
			}
			return m, []effect{sendAbort}
		}
		return m.unended(ev.action)
	}
	panic(m.wrong(ev))
}

// unended is the end of a transaction whose EndTxn has no clean answer. An
// abort is known to be none but that; a commit is in doubt.
func (m machine) unended(a Action) (machine, []effect) {
	if a == Stop {
		m.leads = Closed
	}
	if !m.commits {
		if m.leads != Ready {
			return machine{state: m.leads}, []effect{deliverAborted}
		}
		return m.unclean(a)
	}
	if m.leads != Ready {
		return machine{state: m.leads}, []effect{dropBuffered, deliverUnknown}
	}
	next, todo := machine{doubt: m.wrote}.again(a)
	if m.share {
		// Nothing is there to decide it: the group hands out what is not final.
		return next, append([]effect{dropBuffered, deliverUnknown}, todo...)
	}
	return next, append([]effect{dropBuffered}, todo...)
}

// leave ends the session, or makes it forget the shard. InitProducerID is not
// sent: the next owner sends his, and ours might come after it. A transaction
// that can be aborted cleanly is, so that nobody has to wait for the next
// owner; a commit that is out is waited for.
func (m machine) leave(to State) (machine, []effect) {
	gone := machine{state: to}
	switch m.state {
	case Fresh, Fencing, Reading, Ready, Unclear, Fenced:
		if m.doubt != nil {
			return gone, []effect{deliverUnknown}
		}
		return gone, nil
	case Open, Flushing:
		if m.empty() || !m.clean() {
			return gone, []effect{dropBuffered, deliverAborted}
		}
		m.state, m.commits, m.leads = Ending, false, to
		return m, []effect{dropBuffered, sendAbort}
	case Ending:
		if m.leads != Closed {
			m.leads = to
		}
		return m, nil
	case Closed:
	}
	return machine{state: Closed}, nil
}
