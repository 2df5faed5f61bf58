package mirror

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// streamFetch is how much a fetch asks for, in compressed bytes.
	streamFetch = 2 << 20
	// streamPatience is how long a read waits for a broker, or for a transaction
	// to end.
	streamPatience = 2 * time.Minute
)

// logStream reads the committed records of one partition by offset. Reading on
// is cheap, and so is a step back within the last fetch. Not safe for concurrent
// use.
type logStream struct {
	cl *kgo.Client
	at place
	// start of the log as last known: it moves on with retention.
	start int64

	leader  int32
	located bool
	id      [16]byte

	pos       int64 // the next offset to give
	from, end int64 // what buf covers
	buf       []*kgo.Record
	i         int
}

func newLogStream(cl *kgo.Client, at place, start int64) *logStream {
	return &logStream{cl: cl, at: at, start: start}
}

// seek sets the offset to read on from.
func (s *logStream) seek(offset int64) {
	s.pos = offset
	if offset < s.from || offset > s.end {
		s.drop()
		return
	}
	s.i = sort.Search(len(s.buf), func(i int) bool { return s.buf[i].Offset >= offset })
}

// drop lets go of what was read ahead.
func (s *logStream) drop() { s.buf, s.i, s.from, s.end = nil, 0, 0, 0 }

// next returns the next record below offset to, nil when there is none. It waits
// for transactions that are open below to. The record is the caller's to read
// until the next call.
func (s *logStream) next(ctx context.Context, to int64) (*kgo.Record, error) {
	for {
		for ; s.i < len(s.buf); s.i++ {
			rec := s.buf[s.i]
			if rec.Offset >= to {
				s.pos = max(s.pos, to)
				return nil, nil
			}
			if rec.Offset >= s.pos {
				s.i++
				s.pos = rec.Offset + 1
				return rec, nil
			}
		}
		s.pos = max(s.pos, s.start, s.end)
		if s.pos >= to {
			return nil, nil
		}
		if err := s.fetch(ctx); err != nil {
			return nil, fmt.Errorf("read %s[%d] from offset %d: %w", s.at.topic, s.at.partition, s.pos, err)
		}
	}
}

// fetch reads ahead from pos. It returns when something was read, records or
// not, or when the log turned out to begin later.
func (s *logStream) fetch(ctx context.Context) error {
	s.drop()
	began := time.Now()
	for try := 1; ; try++ {
		got, err := s.once(ctx)
		switch {
		case err == nil && got.next > s.pos:
			s.buf, s.from, s.end = got.recs, s.pos, got.next
			return nil
		case err == nil:
			err = fmt.Errorf("nothing can be read there: %w", errOpenTxn)
		case errors.Is(err, kerr.OffsetOutOfRange):
			if moved, lerr := s.restart(ctx); lerr != nil || moved {
				return lerr
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passes(err):
			return err
		default:
			s.located = false // the leader may be another one
		}
		if time.Since(began) > streamPatience {
			return fmt.Errorf("given up after %v: %w", streamPatience, err)
		}
		if err := sleep(ctx, backoff(try, 10*time.Millisecond, time.Second)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// errOpenTxn: nothing behind the last stable offset is handed out.
var errOpenTxn = errors.New("a transaction is open")

// passes reports whether an error of a broker or a connection may be gone at the
// next try.
func passes(err error) bool {
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded)
}

func (s *logStream) once(ctx context.Context) (piece, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if !s.located {
		if err := s.locate(ctx); err != nil {
			return piece{}, err
		}
	}
	all, err := fetchAt(ctx, s.cl, s.leader, map[place]spot{s.at: {id: s.id, offset: s.pos}}, streamFetch, streamFetch)
	if err != nil {
		return piece{}, err
	}
	got := all[s.at]
	if got.err != nil && len(got.recs) > 0 && got.next > s.pos {
		got.err = nil // it comes again, with nothing before it
	}
	return got, got.err
}

// locate finds the leader. A topic that is another one by now ends the read.
func (s *logStream) locate(ctx context.Context) error {
	list, err := listTopics(ctx, s.cl, s.at.topic)
	if err != nil {
		return err
	}
	t := list[s.at.topic]
	if t.Err != nil {
		return t.Err
	}
	if s.id != [16]byte{} && s.id != t.ID {
		return errors.New("the topic was recreated meanwhile")
	}
	p, ok := t.Partitions[s.at.partition]
	if !ok {
		return kerr.UnknownTopicOrPartition
	}
	if p.Leader < 0 {
		return kerr.LeaderNotAvailable
	}
	s.id, s.leader, s.located = t.ID, p.Leader, true
	return nil
}

// restart asks where the log begins, and reports whether that is behind pos.
func (s *logStream) restart(ctx context.Context) (bool, error) {
	starts, err := kadm.NewClient(s.cl).ListStartOffsets(ctx, s.at.topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return false, err
	}
	o, ok := starts.Lookup(s.at.topic, s.at.partition)
	if !ok || o.Offset <= s.pos {
		return false, nil
	}
	s.start = o.Offset
	return true, nil
}
