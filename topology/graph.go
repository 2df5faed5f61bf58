package topology

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// place is one topic on one cluster.
type place struct{ cluster, topic string }

// copying is one flow's way from a place to the next.
type copying struct {
	flow *Flow
	to   place
}

// graph is where records of sample topics get to through the flows.
type graph struct {
	flows []*Flow
	// samples are topics that each flow reads.
	samples map[*Flow][]string
	edges   map[place][]copying
	// endless holds the flows that read their own copies.
	endless map[*Flow]endless
}

// endless is how a flow comes to read its own copies.
type endless struct {
	names []string // read by the flow, one after another
	last  *Flow    // wrote the last of them
}

// maxPlaces bounds the walk for declarations with very many flows.
const maxPlaces = 20_000

// checkGraph looks for records that would come back to where they were, for
// topic names without end, and for two flows that write one target.
func (t *Topology) checkGraph(f *findings) {
	g := &graph{samples: map[*Flow][]string{}, edges: map[place][]copying{}, endless: map[*Flow]endless{}}
	for _, flow := range t.Flows {
		if flow.From == "" || placeholderBroken(flow.Rename) {
			continue
		}
		g.flows = append(g.flows, flow)
		g.samples[flow] = flow.samples()
	}
	for _, flow := range g.flows {
		if t.checkSelfCopy(flow, g, f) {
			continue
		}
		for _, topic := range g.samples[flow] {
			g.walk(place{flow.From, topic}, nil)
		}
	}
	for _, flow := range g.flows {
		if e, found := g.endless[flow]; found {
			f.add(t.path(flow)+".topics", "copies its own copies under ever longer names: "+strings.Join(e.names, ", "),
				"exclude the names that copies get, for example exclude: ["+outputPattern(e.last)+"]")
		}
	}
	t.checkRings(g, f)
	t.checkWriters(g, f)
}

func placeholderBroken(rename string) bool {
	return strings.Count(rename, placeTopic) > 1 || strings.Count(rename, placeCluster) > 1
}

// checkSelfCopy reports a flow whose target topic is its source topic.
func (t *Topology) checkSelfCopy(flow *Flow, g *graph, f *findings) bool {
	if flow.From != flow.To || flow.Sink != nil {
		return false
	}
	for _, topic := range g.samples[flow] {
		if flow.TargetTopic(topic) == topic {
			f.add(t.path(flow)+".to", fmt.Sprintf("topic %s of cluster %s would be copied onto itself", topic, flow.From), "inside one cluster each name has to change: set rename")
			return true
		}
	}
	return false
}

// step is one copying on the way to a place.
type step struct {
	flow  *Flow
	topic string // read by flow
}

// walk follows every flow that reads at. It ends where it was before, and
// where a flow reads its own output for the third time under longer names.
func (g *graph) walk(at place, way []step) {
	if _, seen := g.edges[at]; seen || len(g.edges) >= maxPlaces {
		return
	}
	g.edges[at] = []copying{}
	for _, flow := range g.flows {
		if flow.From != at.cluster || flow.Sink != nil || !flow.Match(at.topic) {
			continue
		}
		next := place{flow.To, flow.TargetTopic(at.topic)}
		if illegalTopic(next.topic) != "" || next == at {
			continue
		}
		g.edges[at] = append(g.edges[at], copying{flow, next})
		if names := readBefore(way, flow, at.topic); len(names) > 2 {
			if _, found := g.endless[flow]; !found {
				g.endless[flow] = endless{names, way[len(way)-1].flow}
			}
			continue
		}
		g.walk(next, append(slices.Clip(way), step{flow, at.topic}))
	}
}

// readBefore lists the topics that flow has read on the way and topic, as
// long as each holds the one before.
func readBefore(way []step, flow *Flow, topic string) []string {
	var names []string
	for _, s := range append(slices.Clip(way), step{flow, topic}) {
		if s.flow != flow {
			continue
		}
		if n := len(names); n > 0 && !grows(names[n-1], s.topic) {
			names = nil
		}
		names = append(names, s.topic)
	}
	return names
}

// grows reports whether next holds the whole of before and more.
func grows(before, next string) bool {
	return len(next) > len(before) && strings.Contains(next, before)
}

// outputPattern is a pattern, in YAML, for the names that a flow makes.
func outputPattern(flow *Flow) string {
	return "'" + strings.ReplaceAll(regexp.QuoteMeta(flow.TargetTopic("\x00")), "\x00", ".*") + "'"
}

// checkRings reports flows without provenance on a way back to where a record
// was: nothing would stop it. The mark has to be set and looked at by every
// flow of the ring.
func (t *Topology) checkRings(g *graph, f *findings) {
	reported := map[*Flow]bool{}
	starts := slices.SortedFunc(maps.Keys(g.edges), func(a, b place) int {
		return strings.Compare(a.topic+"\x00"+a.cluster, b.topic+"\x00"+b.cluster)
	})
	for _, start := range starts {
		for _, c := range g.edges[start] {
			if c.flow.Provenance || reported[c.flow] {
				continue
			}
			if ring := g.back(c.to, start); ring != nil {
				reported[c.flow] = true
				names := []string{c.flow.Name}
				for _, flow := range ring {
					names = append(names, flow.Name)
				}
				f.add(t.path(c.flow)+".provenance",
					fmt.Sprintf("topic %s goes round for ever through %s", start.topic, strings.Join(names, ", ")),
					"set provenance: true in each of them, or rename so that copies are not copied back")
			}
		}
	}
}

// back returns the flows on a shortest way from one place to another, nil
// when there is none.
func (g *graph) back(from, to place) []*Flow {
	ways := map[place][]*Flow{from: {}}
	for queue := []place{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, c := range g.edges[at] {
			if _, seen := ways[c.to]; seen {
				continue
			}
			ways[c.to] = append(slices.Clip(ways[at]), c.flow)
			if c.to == to {
				return ways[c.to]
			}
			queue = append(queue, c.to)
		}
	}
	return nil
}

// checkWriters reports two flows that write one topic or one file.
func (t *Topology) checkWriters(g *graph, f *findings) {
	for i, flow := range g.flows {
		for _, other := range g.flows[:i] {
			switch {
			case flow.Sink != nil && other.Sink != nil:
				if a, b := flow.Sink.File, other.Sink.File; a != nil && b != nil && a.Path == b.Path {
					f.add(t.path(flow)+".sink.file.path", fmt.Sprintf("flow %s writes this file too", other.Name), "give each flow its own file")
				}
			case flow.Sink != nil || other.Sink != nil || flow.To != other.To || flow.To == "":
			default:
				if topic, both := g.bothWrite(flow, other); both {
					f.add(t.path(flow)+".topics", fmt.Sprintf("flow %s writes topic %s of cluster %s too", other.Name, topic, flow.To),
						"exclude it from one of them, or rename with {cluster}")
				}
			}
		}
	}
}

// bothWrite finds a target topic that both flows make, from one name that
// both match or from a name of each.
func (g *graph) bothWrite(a, b *Flow) (string, bool) {
	targets := map[string]bool{}
	samples := slices.Concat(g.samples[a], g.samples[b])
	for _, topic := range samples {
		if a.Match(topic) {
			targets[a.TargetTopic(topic)] = true
		}
	}
	for _, topic := range samples {
		if b.Match(topic) && targets[b.TargetTopic(topic)] {
			return b.TargetTopic(topic), true
		}
	}
	return "", false
}
