package mirror

import (
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onceover-mirror/onceover/txn"
)

func testTip(topic byte, partition int32) tip { return tip{[16]byte{topic}, partition} }

// A session opens with everything wanted, then sends only what changed.
func TestSessionSendsChangesOnly(t *testing.T) {
	s := newShareSession()
	a, b, c := testTip(1, 0), testTip(1, 1), testTip(2, 0)
	s.want = map[tip]bool{b: true, a: true}
	add, forget := s.fetchPlan()
	if want := []tip{a, b}; !reflect.DeepEqual(add, want) || forget != nil {
		t.Fatalf("first plan adds %v, forgets %v", add, forget)
	}
	req := s.fetchRequest(add, forget, 1000)
	if req.ShareSessionEpoch != 0 || len(req.Topics) != 1 || len(req.Topics[0].Partitions) != 2 {
		t.Fatalf("first request: %+v", req)
	}
	s.fetched(add, forget)

	s.want = map[tip]bool{b: true, c: true}
	add, forget = s.fetchPlan()
	if !reflect.DeepEqual(add, []tip{c}) || !reflect.DeepEqual(forget, []tip{a}) {
		t.Fatalf("second plan adds %v, forgets %v", add, forget)
	}
	req = s.fetchRequest(add, forget, 1000)
	if req.ShareSessionEpoch != 1 || len(req.ForgottenTopicsData) != 1 || req.ForgottenTopicsData[0].Partitions[0] != 0 {
		t.Fatalf("second request: %+v", req)
	}
	s.fetched(add, forget)

	// An acknowledgement raises the epoch as a fetch does.
	s.raise()
	if add, forget = s.fetchPlan(); add != nil || forget != nil {
		t.Fatalf("nothing changed, but the plan adds %v and forgets %v", add, forget)
	}
	if s.epoch != 3 {
		t.Fatalf("epoch %d after two fetches and an acknowledgement, want 3", s.epoch)
	}

	// A lost session is opened anew with everything; nothing is held any more.
	s.acquired(b, txn.Range{First: 0, Last: 9}, time.Unix(100, 0))
	lost := s.reset()
	if len(lost[b]) != 1 || s.holding(b, txn.Range{First: 0, Last: 0}) {
		t.Fatalf("reset lost %v and still holds %v", lost, s.holds)
	}
	if add, _ = s.fetchPlan(); !reflect.DeepEqual(add, []tip{b, c}) || s.epoch != 0 {
		t.Fatalf("after a reset the plan adds %v at epoch %d", add, s.epoch)
	}
}

// The epoch wraps to 1: 0 would open a new session.
func TestSessionEpochWraps(t *testing.T) {
	s := newShareSession()
	s.epoch = math.MaxInt32
	if s.raise(); s.epoch != 1 {
		t.Fatalf("epoch %d after the highest, want 1", s.epoch)
	}
}

// Holds behave as a map of offsets to deadlines would.
func TestSessionHoldsAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShareSession()
		p := testTip(1, 0)
		model := map[int64]int64{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			first := rapid.Int64Range(0, 40).Draw(t, "first")
			r := txn.Range{First: first, Last: first + rapid.Int64Range(0, 10).Draw(t, "len")}
			if rapid.Bool().Draw(t, "acquire") {
				at := rapid.Int64Range(1, 50).Draw(t, "deadline")
				s.acquired(p, r, time.Unix(at, 0))
				for o := r.First; o <= r.Last; o++ {
					model[o] = at
				}
			} else {
				s.settled(p, r)
				for o := r.First; o <= r.Last; o++ {
					delete(model, o)
				}
			}
		}
		limit := rapid.Int64Range(1, 50).Draw(t, "before")
		due := map[int64]bool{}
		for _, h := range s.due(time.Unix(limit, 0))[p] {
			for o := h.First; o <= h.Last; o++ {
				due[o] = true
			}
		}
		first := int64(0)
		for o := int64(0); o < 60; o++ {
			at, held := model[o]
			if s.holding(p, txn.Range{First: o, Last: o}) != held {
				t.Fatalf("offset %d: held %v, want %v", o, !held, held)
			}
			if due[o] != (held && at < limit) {
				t.Fatalf("offset %d with deadline %d: due before %d is %v", o, at, limit, due[o])
			}
			if held && (first == 0 || at < first) {
				first = at
			}
		}
		if got := s.nextDeadline(); first != 0 && got.Unix() != first || first == 0 && !got.IsZero() {
			t.Fatalf("next deadline %v, want %d", got, first)
		}
	})
}

// Ranges go out sorted, joined where they agree, and never overlapping: the
// broker refuses a request with overlapping ranges.
func TestAckRequestMergesAndNeverOverlaps(t *testing.T) {
	s := newShareSession()
	s.epoch = 4
	p := testTip(1, 3)
	req := s.ackRequest(map[tip][]ackRange{p: {
		{first: 10, last: 19, kind: ackAccept, records: 10, bytes: 100},
		{first: 5, last: 9, kind: ackAccept, records: 5, bytes: 50},
		{first: 20, last: 20, kind: ackGap},
		{first: 18, last: 19, kind: ackReject},
		{first: 20, last: 22, kind: ackAccept},
		{first: 30, last: 31, kind: ackReject},
	}})
	type batch struct {
		first, last int64
		kind        int8
	}
	var got []batch
	for _, b := range req.Topics[0].Partitions[0].AcknowledgementBatches {
		got = append(got, batch{b.FirstOffset, b.LastOffset, b.AcknowledgeTypes[0]})
	}
	want := []batch{{5, 19, ackAccept}, {20, 20, ackGap}, {21, 22, ackAccept}, {30, 31, ackReject}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("batches %v, want %v", got, want)
	}
	if req.IsRenewAck || req.ShareSessionEpoch != 4 {
		t.Fatalf("renew %v, epoch %d", req.IsRenewAck, req.ShareSessionEpoch)
	}
	req = s.ackRequest(map[tip][]ackRange{p: {{first: 1, last: 2, kind: ackRenew}}})
	if !req.IsRenewAck {
		t.Fatal("a request with RENEW does not say so")
	}
}

// Halving keeps offsets and counters.
func TestSplitKeepsEverything(t *testing.T) {
	halves := split([]ackRange{{first: 0, last: 8, kind: ackAccept, records: 9, bytes: 901}})
	if len(halves) != 2 {
		t.Fatalf("halves: %v", halves)
	}
	a, b := halves[0][0], halves[1][0]
	if a.first != 0 || a.last+1 != b.first || b.last != 8 || a.records+b.records != 9 || a.bytes+b.bytes != 901 {
		t.Fatalf("halves %+v and %+v", a, b)
	}
	if int64(a.records) != a.last-a.first+1 {
		t.Fatalf("half %+v has not a record per offset", a)
	}
	if split([]ackRange{{first: 3, last: 3}}) != nil {
		t.Fatal("one offset was split")
	}
}
