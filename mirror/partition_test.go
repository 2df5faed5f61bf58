package mirror_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
)

// logbook keeps the log of a process.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) options(o *mirror.Options) { o.Log = slog.New(slog.NewTextHandler(l, nil)) }

// count is the number of lines that hold every word.
func (l *logbook) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.buf.String()) {
		if says(line, words...) {
			n++
		}
	}
	return n
}

// replace deletes a topic of the source and makes another of the same name.
func (w *world) replace(topic string, n int, seed int64) {
	w.Helper()
	if _, err := w.source.Admin(w.T).DeleteTopics(w.Context(), topic); err != nil {
		w.Fatal(err)
	}
	w.fill(topic, 1, n, seed)
}

// A topic that is deleted and created again is read from its start, whether
// its log is shorter or longer than the old position, and whether the mirror
// ran meanwhile.
func TestTopicRecreated(t *testing.T) {
	for i, n := range []int{10, 80, 10, 80} {
		for _, running := range []bool{true, false} {
			old := i >= 2 // the source fetches by name, but has ids
			t.Run(fmt.Sprintf("records=%d,running=%t,old=%t", n, running, old), func(t *testing.T) {
				o := quick(nil)
				if old {
					o.MaxVersions = kversion.V2_8_0()
				}
				w := newWorld(t, o)
				w.fill("again", 1, 50, 1)
				declare := func() *topology.Flow {
					f := w.flow("again", "again")
					f.Read = topology.ReaderPartition
					return f
				}
				var log logbook
				p := w.start(declare(), log.options)
				w.arrived("again", 50)
				w.drained(p, "again", 1)
				if !running {
					p.Stop()
				}
				set, err := w.topologyOf(declare()).Resolve(declare())
				if err != nil {
					t.Fatal(err)
				}
				kept, err := w.source.Admin(t).FetchOffsets(t.Context(), set.GroupID)
				if err != nil {
					t.Fatal(err)
				}
				w.replace("again", n, 2)
				if !running {
					// Brokers drop positions with their topic; a commit that
					// comes late brings them back.
					if err := kadm.NewClient(w.source.Client(t)).CommitAllOffsets(t.Context(), set.GroupID, kept.Offsets()); err != nil {
						t.Fatal(err)
					}
					p = w.start(declare(), log.options)
				}
				w.arrived("again", 50+n)
				suite.Eventually(t, within, "the log says so", func() (bool, string) {
					return log.count("level=WARN", "recreated", "again") > 0, ""
				})
				// Who fetches by name reads on in the new log before it is found
				// to be another one; what was read then comes twice.
				twice := running && old
				st := w.drained(p, "again", 1)
				if st.Lost != 0 {
					t.Errorf("%d records count as lost", st.Lost)
				}
				p.Stop()
				if got := w.target.ReadAll(t, "again"); len(got) != 50+n && !twice {
					t.Errorf("%d records on the target, want %d", len(got), 50+n)
				} else {
					testenv.AssertAtLeastOnce(t, w.source.ReadAll(t, "again"), got[50:], testenv.Compare{Unordered: true, IgnoreHeaders: []string{testenv.Provenance}})
				}
			})
		}
	}
}

// The position passes what is not copied at the end of a transaction: the
// marker of a committed one, and all of an aborted one.
func TestTransactionsLeaveNoLag(t *testing.T) {
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		t.Run(fmt.Sprintf("commit=%t", bool(end)), func(t *testing.T) {
			w := newWorld(t, quick(nil))
			w.fill("tx", 1, 5, 1)
			cl := w.source.Client(t, kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(t.Context(), testenv.Records("tx", 1, 5, 3)...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := cl.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			want := 5
			if end == kgo.TryCommit {
				want = 10
			}
			f := w.flow("tx", "tx")
			f.Read = topology.ReaderPartition
			p := w.start(f)
			w.arrived("tx", want)
			st := w.drained(p, "tx", 1)
			p.Stop()
			if st.Records != int64(want) || st.Skipped != 0 || st.Lost != 0 {
				t.Errorf("%d copied, %d skipped, %d lost, want %d copied", st.Records, st.Skipped, st.Lost, want)
			}
			w.same("tx", testenv.Compare{})
		})
	}
}

// A position that is refused is committed again although no record follows,
// and its records count as copied only then.
func TestRefusedCommitIsRepeated(t *testing.T) {
	for _, times := range []int{1, 5} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			w := newWorld(t, quick(nil))
			w.source.CreateTopic(t, "commit", 1, 1, nil)
			f := w.flow("commit", "commit")
			f.Read = topology.ReaderPartition
			h := w.source.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: times})
			p := w.start(f)
			w.running(p, "commit")
			w.source.Produce(t, testenv.Records("commit", 1, 10, 1)...)
			w.arrived("commit", 10)
			st := w.until(p, "commit", "the position is committed", func(st mirror.FlowState) bool {
				return len(st.Partitions) == 1 && st.Partitions[0].Lag == 0 && st.Partitions[0].EndOffset == 10
			})
			p.Stop()
			w.fired(h, times)
			if st.Records != 10 || st.RefusedAcks != 0 {
				t.Errorf("%d copied, %d refused, want 10 and 0", st.Records, st.RefusedAcks)
			}
			w.same("commit", testenv.Compare{})
		})
	}
}

// Thousands of records in a row that the target refuses are skipped in
// seconds.
func TestSkippedInARow(t *testing.T) {
	const bad, most = 5000, 25 * time.Second
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) {
			w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "30000"}))
			small := "1000"
			w.source.CreateTopic(t, "row", 1, 1, nil)
			w.target.CreateTopic(t, "row", 1, 1, map[string]*string{"max.message.bytes": &small})
			random := rand.New(rand.NewPCG(17, 17))
			recs := make([]*kgo.Record, 0, bad+1)
			for range bad {
				v := make([]byte, 1200) // can't be compressed
				for i := range v {
					v[i] = byte(random.Uint32())
				}
				recs = append(recs, &kgo.Record{Topic: "row", Value: v})
			}
			w.source.Produce(t, append(recs, &kgo.Record{Topic: "row", Value: []byte("last")})...)
			f := w.flow("row", "row")
			f.Read, f.OnError = read, topology.OnErrorSkip
			began := time.Now()
			p := w.start(f)
			var st mirror.FlowState
			suite.Eventually(t, 10*most, "the last record is copied", func() (bool, string) {
				st = p.Flow("row")
				return st.Records == 1, fmt.Sprintf("%d skipped", st.Skipped)
			})
			took := time.Since(began)
			p.Stop()
			if st.Skipped != bad || took > most {
				t.Errorf("%d skipped in %v, want %d in less than %v", st.Skipped, took, bad, most)
			}
		})
	}
}

// A topic that the target refuses, while its metadata shows nothing of it, stays
// out for longer each time, with the reason, and comes back when it is healed.
func TestBlockedTopicDoesNotFlap(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) {
			w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "15000"}))
			h := w.target.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "bl", Err: kerr.TopicAuthorizationFailed, Count: -1})
			w.fill("bl", 1, 20, 1)
			f := w.flow("bl", "bl")
			f.Read = read
			f.Limits.Refresh = time.Second
			p := w.start(f)
			began := time.Now()
			w.until(p, "bl", "the reason is shown", func(st mirror.FlowState) bool {
				return len(st.Topics) == 1 && !st.Topics[0].Ready && says(st.Topics[0].Reason, "TOPIC_AUTHORIZATION_FAILED")
			})
			if err := h.Wait(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 3*time.Second {
				t.Errorf("tried three times within %v, with a refresh of %v", took, f.Limits.Refresh)
			}
			h.Remove()
			w.arrived("bl", 20)
			w.drained(p, "bl", 1)
			p.Stop()
			w.same("bl", unordered)
		})
	}
}

// A target topic that somebody deletes is made anew, which the log says once;
// one that is made for the first time is nothing to warn of.
func TestDeletedTargetIsMadeAnew(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,running=%t", read, running), func(t *testing.T) {
				w := newWorld(t, quick(nil))
				w.fill("gone", 1, 20, 1)
				declare := func() *topology.Flow {
					f := w.flow("gone", "gone")
					f.Read = read
					return f
				}
				var log logbook
				p := w.start(declare(), log.options)
				w.arrived("gone", 20)
				w.drained(p, "gone", 1)
				if n := log.count("made anew"); n != 0 {
					t.Errorf("%d warnings of a topic that is made for the first time", n)
				}
				if !running {
					p.Stop()
				}
				if _, err := w.target.Admin(t).DeleteTopics(t.Context(), "gone"); err != nil {
					t.Fatal(err)
				}
				if !running {
					p = w.start(declare(), log.options)
				}
				w.source.Produce(t, testenv.Records("gone", 1, 10, 2)...)
				w.arrived("gone", 10)
				w.drained(p, "gone", 1)
				p.Stop()
				if n := log.count("level=WARN", "made anew", "gone"); n != 1 {
					t.Errorf("%d warnings, want 1", n)
				}
				if n := len(w.target.ReadAll(t, "gone")); n != 10 {
					t.Errorf("%d records on the new topic, want 10", n)
				}
			})
		}
	}
}
