// Package mirror runs flows: it reads from the source, writes to the target
// and acknowledges, in that order. It owns the goroutines, the time and the
// source clients.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Mirror runs the flows of one topology in one process. Any number of
// processes may run the same topology; the source's groups share out the work.
type Mirror struct {
	opts    Options
	flows   []*flow
	ran     atomic.Bool
	started atomic.Pointer[time.Time]
}

// instanceShape is what brokers take as part of a group instance id.
var instanceShape = regexp.MustCompile(`^[A-Za-z0-9._-]{0,100}$`)

// New checks opts. It opens no connection.
func New(opts Options) (*Mirror, error) {
	if opts.Topology == nil {
		return nil, errors.New("no topology")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if !instanceShape.MatchString(opts.Instance) {
		return nil, fmt.Errorf("instance %q: a name has at most 100 letters, digits, dots, dashes and underscores", opts.Instance)
	}
	m := &Mirror{opts: opts}
	for _, def := range opts.Topology.Flows {
		f, err := newFlow(m, def)
		if err != nil {
			return nil, fmt.Errorf("flow %s: %w", def.Name, err)
		}
		m.flows = append(m.flows, f)
	}
	if len(m.flows) == 0 {
		return nil, errors.New("the topology has no flow")
	}
	return m, nil
}

// Run copies until ctx ends, then finishes what is in flight within each
// flow's shutdown limit, leaves the groups and returns nil. A flow that is
// refused (*[Refusal]) or fails ends alone; when ctx ends, or when no flow is
// left, Run returns the errors of all that did. It may be called once.
func (m *Mirror) Run(ctx context.Context) error {
	if m.ran.Swap(true) {
		return errors.New("run was called before")
	}
	now := time.Now().UTC()
	m.started.Store(&now)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs *multierror.Error
	)
	for _, f := range m.flows {
		wg.Go(func() {
			err := f.run(ctx)
			if err == nil {
				return
			}
			m.opts.Log.Error("flow ended", "flow", f.def.Name, "reason", reasonOf(err), "hint", hintOf(err))
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				err = fmt.Errorf("flow %s: %w", f.def.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			errs = multierror.Append(errs, err)
		})
	}
	wg.Wait()
	return errs.ErrorOrNil()
}

// State returns a snapshot. It may be called at any time, concurrently.
func (m *Mirror) State() State {
	var s State
	if t := m.started.Load(); t != nil {
		s.Started = *t
	}
	for _, f := range m.flows {
		s.Flows = append(s.Flows, f.board.snapshot())
	}
	return s
}

// Health judges the present state: not OK when a flow is not running, when a
// partition has stopped, and when for [StallAfter] one has had lag and has not
// moved, or the positions at the source could not be read, or the flow has had
// a trouble that concerns it as a whole: any, when no lane reads.
func (m *Mirror) Health() Health { return judge(m.State(), time.Now()) }

func judge(s State, now time.Time) Health {
	h := Health{Problems: []string{}}
	for _, f := range s.Flows {
		told := f.Phase != FlowRunning
		if told {
			h.Problems = append(h.Problems, fmt.Sprintf("flow %s is %s: %s", f.Name, f.Phase, f.Reason))
		}
		for _, t := range f.Topics {
			if !t.Ready && f.Phase == FlowRunning {
				h.Problems = append(h.Problems, fmt.Sprintf("flow %s: topic %s is not copied: %s", f.Name, t.Topic, t.Reason))
			}
		}
		for _, p := range f.Partitions {
			if p.Phase == PartitionWaiting {
				h.Remarks = append(h.Remarks, fmt.Sprintf("flow %s: %s[%d] is %s", f.Name, p.Topic, p.Partition, p.Reason))
			}
			if p.Phase == PartitionStopped || p.Phase == PartitionStalled {
				told = told || p.Phase == PartitionStalled // its reason is the trouble
				h.Problems = append(h.Problems, fmt.Sprintf("flow %s: %s[%d] is %s: %s", f.Name, p.Topic, p.Partition, p.Phase, p.Reason))
			}
		}
		if told {
			continue
		}
		for _, t := range f.Troubles {
			// One lane of several that fails is no reason to restart the process:
			// the others take its work.
			whole := f.Lanes == 0 || slices.Contains([]string{whereLag, whereRefresh, whereRecovery}, t.Where)
			if whole && now.Sub(t.Since) >= StallAfter {
				told = true
				h.Problems = append(h.Problems, fmt.Sprintf("flow %s: %s, since %s: %s", f.Name, t.Where, t.Since.Format(time.TimeOnly), t.Reason))
			}
		}
		if !told && !f.Looked.IsZero() && now.Sub(f.Looked) >= StallAfter {
			h.Problems = append(h.Problems, fmt.Sprintf("flow %s: the positions at %s were last read at %s: %s", f.Name, f.From, f.Looked.Format(time.TimeOnly), f.Reason))
		}
	}
	h.OK = len(h.Problems) == 0
	return h
}

// Status reads the positions of every flow from the clusters. It needs no
// running mirror, changes nothing, and may be called instead of Run. Flows are
// [FlowObserved]; lane and record counters are zero. A flow that can't be
// examined has its reason in its state; the error is that of the first such
// flow.
func (m *Mirror) Status(ctx context.Context) (State, error) {
	s := State{}
	var first error
	for _, f := range m.flows {
		f.board.observe()
		if err := f.named(f.patiently(ctx, f.look)); err != nil {
			f.board.phase(FlowObserved, reasonOf(err), hintOf(err))
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				err = fmt.Errorf("flow %s: %w", f.def.Name, err)
			}
			first = cmp.Or(first, err)
		}
		s.Flows = append(s.Flows, f.board.snapshot())
	}
	return s, first
}

// patiently examines a flow, and again for some seconds while a cluster's answer
// is one that passes by itself, as that of a coordinator that is starting.
func (f *flow) patiently(ctx context.Context, look func(context.Context) error) error {
	const tries = 8
	for try := 1; ; try++ {
		err := look(ctx)
		f.closeClients()
		if err == nil || !kerr.IsRetriable(err) || try == tries {
			return err
		}
		if sleep(ctx, backoff(try, 50*time.Millisecond, time.Second)) != nil {
			return err
		}
	}
}

// look examines a flow without running it.
func (f *flow) look(ctx context.Context) error {
	if err := f.open(); err != nil {
		return err
	}
	if err := f.probe(ctx); err != nil {
		return err
	}
	f.cat = f.newCatalog()
	f.cat.readOnly = true
	v, err := f.cat.refresh(ctx, nil)
	if err != nil {
		return err
	}
	if err := f.probeTxn(ctx); err != nil {
		return err
	}
	if err := f.choose(ctx, v, f.tryGroup); err != nil {
		return err
	}
	f.board.decided(f.decision)
	if f.exactly() {
		if _, err := f.findLedger(ctx); err != nil {
			return err
		}
	}
	if err := f.refresh(ctx); err != nil {
		return err
	}
	var topics []string
	for _, st := range v.states {
		topics = append(topics, st.Topic)
	}
	at, err := f.standings(ctx, topics)
	if err != nil {
		return err
	}
	f.board.looked()
	f.post(ctx, at)
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, reason := range f.stopped {
		f.board.stop(topic, -1, reason, "mend the cause, then: mirror resume --flow "+f.def.Name+" --topic "+topic)
	}
	return nil
}

// Resume clears the stop of a topic of a share flow (topic "": of all topics),
// so that every process takes it up again at its next refresh. It returns the
// topics that were stopped, sorted. It needs no running mirror.
func (m *Mirror) Resume(ctx context.Context, flowName, topic string) ([]string, error) {
	i := slices.IndexFunc(m.flows, func(f *flow) bool { return f.def.Name == flowName })
	if i < 0 {
		return nil, fmt.Errorf("no flow has the name %q", flowName)
	}
	f := m.flows[i]
	cl, err := f.client(f.def.From, "source-admin")
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	stops, err := readStops(ctx, adm, f.settings.StopsGroupID)
	if err != nil {
		return nil, err
	}
	if topic != "" {
		s, ok := stops[topic]
		if !ok {
			return nil, nil
		}
		stops = map[string]stopRecord{topic: s}
	}
	if len(stops) == 0 {
		return nil, nil
	}
	if err := clearStops(ctx, adm, f.settings.StopsGroupID, stops); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(stops)), nil
}
