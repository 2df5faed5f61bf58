package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Plan is what running the topology now would do, see [Mirror.Plan].
type Plan struct {
	// Flows in the order in which they were declared.
	Flows []FlowPlan `json:"flows"`
}

// FlowPlan is the plan of one flow.
type FlowPlan struct {
	// Name, From and To are as declared; To names the file of a file sink.
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
	// Guarantee, Reader, Order ("per partition" or "not kept") and Why are as in
	// [FlowState], empty where the flow is refused. They hold for every topic of
	// the flow.
	Guarantee string `json:"guarantee"`
	Reader    string `json:"reader"`
	Order     string `json:"order"`
	Why       string `json:"why"`
	// Reason and Hint say why the flow would be refused, or can't be examined.
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Topics that match, sorted.
	Topics []TopicPlan `json:"topics"`
	// Changes are what would be made or altered.
	Changes []Change `json:"changes"`
	// Groups that the flow would join.
	Groups []GroupPlan `json:"groups"`
	// Missing are rights that the flow as a whole lacks; those that a topic lacks
	// stand beside it.
	Missing []Advice `json:"missing"`
	// Warnings are about what would be copied, and turn out otherwise than
	// somebody may expect.
	Warnings []Advice `json:"warnings"`
	// Notes are worth knowing.
	Notes []string `json:"notes"`
}

// TopicPlan is what would become of one source topic.
type TopicPlan struct {
	// Topic at the source, and the Target topic that gets its copies.
	Topic  string `json:"topic"`
	Target string `json:"target"`
	// Partitions of the source topic, 0 where they can't be seen or are not copied.
	Partitions int `json:"partitions"`
	// Compacted topics need order.
	Compacted bool `json:"compacted"`
	// Copied tells whether it would be copied, after the changes; else Reason and
	// Hint say why not.
	Copied bool   `json:"copied"`
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// Change is one thing that would be made or altered on a cluster.
type Change struct {
	// Action is "create topic", "add partitions" or "set group configs", Cluster
	// where.
	Action  string `json:"action"`
	Cluster string `json:"cluster"`
	// Name of the topic or group.
	Name string `json:"name"`
	// Partitions of the topic then; 0 for a group.
	Partitions int `json:"partitions,omitempty"`
	// ReplicationFactor of a topic that is made; -1 is the cluster's default.
	ReplicationFactor int16 `json:"replication_factor,omitempty"`
	// Configs that are set.
	Configs map[string]string `json:"configs,omitempty"`
}

// GroupPlan is a group of the flow.
type GroupPlan struct {
	// Cluster that has it, and its Name there.
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	// Purpose in a few words.
	Purpose string `json:"purpose"`
	// Exists tells that the cluster lists it. One that it does not list is made by
	// joining it, which is no change to be planned.
	Exists bool `json:"exists"`
}

// Advice is a problem with what to do about it.
type Advice struct {
	// Topic at the source that it is about, empty for the whole flow.
	Topic   string `json:"topic,omitempty"`
	Problem string `json:"problem"`
	Hint    string `json:"hint,omitempty"`
}

// Pending reports whether something would be made or altered.
func (p Plan) Pending() bool {
	return slices.ContainsFunc(p.Flows, func(f FlowPlan) bool { return len(f.Changes) > 0 })
}

// Blocked counts what can't be done as declared: flows that are refused, rights
// that are missing, and topics that would not be copied.
func (p Plan) Blocked() int {
	n := 0
	for _, f := range p.Flows {
		n += len(f.Missing)
		if f.Reason != "" {
			n++
		}
		for _, t := range f.Topics {
			if !t.Copied {
				n++
			}
		}
	}
	return n
}

// Plan examines every flow and tells how it would run, what that would make and
// alter, which rights are missing and what is to be expected. It changes
// nothing, needs no running mirror, and may be called instead of Run. A flow that
// is refused, or can't be examined, has its reason in its plan; the error is that
// of the first flow that can't be examined.
func (m *Mirror) Plan(ctx context.Context) (Plan, error) {
	var (
		p     Plan
		first error
	)
	for _, f := range m.flows {
		var fp FlowPlan
		err := f.patiently(ctx, func(ctx context.Context) (err error) {
			st := f.board.snapshot()
			fp = FlowPlan{Name: st.Name, From: st.From, To: st.To, Topics: []TopicPlan{}, Changes: []Change{}, Groups: []GroupPlan{}, Missing: []Advice{}, Warnings: []Advice{}, Notes: []string{}}
			return f.plan(ctx, &fp)
		})
		if err != nil {
			fp.Reason, fp.Hint = reasonOf(err), hintOf(err)
			if _, refused := errors.AsType[*Refusal](err); !refused {
				first = cmp.Or(first, fmt.Errorf("flow %s: %w", f.def.Name, err))
			}
		}
		p.Flows = append(p.Flows, fp)
	}
	return p, first
}
