package topology

import (
	"fmt"
	"slices"
	"strconv"
)

// checkReader looks for settings of one flow that contradict each other about
// how it is read.
func (t *Topology) checkReader(flow *Flow, path string, f *findings) {
	protocolKey := flowLevel.consumer + keyProtocol
	own := flow.Properties[protocolKey].Text
	at := path + ".properties." + protocolKey
	if implied := readerOf(own); implied != ReaderAuto && flow.Read != ReaderAuto && flow.Read != implied {
		f.add(at, fmt.Sprintf("%s contradicts read: %s", own, flow.Read), "remove one of them")
		return
	}
	read, protocol := t.reader(flow)
	if read == ReaderShare && flow.Ordered == OrderedTrue && flow.KIP1289 == nil {
		place, says := path+".read", "read: share"
		if flow.Read != ReaderShare {
			place, says = at, "group protocol share"
		}
		f.add(place, says+" can't be had with ordered: true: a share group keeps no order", "use read: partition, or ordered: false")
	}
	if read == ReaderShare && flow.Guarantee == GuaranteeExactlyOnce && flow.KIP1289 == nil {
		place, hint := path+".read", "use read: partition or auto"
		if flow.Read != ReaderShare {
			place = path + ".guarantee" // the group protocol, on one of its levels, says share
		}
		if readerOf(t.protocol(flow)) == ReaderShare {
			hint = "use read: partition: " + keyProtocol + " says share" // under auto, too
		}
		problem := "not supported by this version: exactly-once through share groups"
		if flow.From == flow.To {
			problem = "inside one cluster exactly-once through a share group takes kip1289"
			hint += ", or see docs/KIP1289.md"
		}
		f.add(place, problem, hint)
	}
	if _, given := flow.Properties[keyGroupID]; given && read == ReaderPartition {
		f.add(path+".properties."+keyGroupID, "has no effect: this flow never reads through a share group", "remove it")
	}
	for _, key := range classicOnly {
		if _, given := flow.Properties[flowLevel.consumer+key]; given && noSessionTimeout(protocol) {
			f.add(path+".properties."+flowLevel.consumer+key, "has no effect with group protocol "+protocol, "the source's brokers set it (group."+protocol+".*)")
		}
	}
	checkPairs(t, flow, path, f)
}

// checkPairs looks at settings that bound each other, after the levels.
func checkPairs(t *Topology, flow *Flow, path string, f *findings) {
	number := func(key string) (int64, bool) {
		v, ok := flow.Properties[flowLevel.consumer+key]
		if !ok {
			v, ok = t.Properties[workerLevel.consumer+key]
		}
		n, err := strconv.ParseInt(v.Text, 10, 64)
		return n, ok && err == nil
	}
	heartbeat, okHeartbeat := number("heartbeat.interval.ms")
	session, okSession := number("session.timeout.ms")
	if okHeartbeat && okSession && heartbeat >= session {
		f.add(path+".properties."+flowLevel.consumer+"heartbeat.interval.ms",
			fmt.Sprintf("heartbeat.interval.ms %d is not below session.timeout.ms %d", heartbeat, session), "a third of it is usual")
	}
	least, okLeast := number("fetch.min.bytes")
	most, okMost := number("fetch.max.bytes")
	if okLeast && okMost && least > most {
		f.add(path+".properties."+flowLevel.consumer+"fetch.min.bytes",
			fmt.Sprintf("fetch.min.bytes %d is above fetch.max.bytes %d", least, most), "")
	}
}

// checkGroups looks for two uses of one group name on one cluster. All kinds
// of groups share one name space, and two flows in one share group would each
// get a part of the records.
func (t *Topology) checkGroups(f *findings) {
	type group struct{ cluster, name string }
	taken := map[group]string{}
	for _, flow := range t.Flows {
		taken[group{flow.From, positionsGroup(flow.Name)}] = "the positions of flow " + flow.Name
		taken[group{flow.From, stopsGroup(flow.Name)}] = "the stops of flow " + flow.Name
		if flow.To != "" {
			taken[group{flow.To, shardsGroup(flow.Name)}] = "the shards of flow " + flow.Name
		}
	}
	// Derived names first: the finding belongs to the name that was written.
	inOrder := slices.Clone(t.Flows)
	slices.SortStableFunc(inOrder, func(a, b *Flow) int { return explicitGroup(a) - explicitGroup(b) })
	for _, flow := range inOrder {
		g := group{flow.From, shareGroup(flow)}
		if owner, used := taken[g]; used && explicitGroup(flow) == 1 {
			f.add(t.path(flow)+".properties."+keyGroupID,
				fmt.Sprintf("group %q is used for %s", g.name, owner), "all kinds of groups share one name space: choose another name")
			continue
		}
		taken[g] = "flow " + flow.Name
	}
}

func explicitGroup(f *Flow) int {
	if _, ok := f.Properties[keyGroupID]; ok {
		return 1
	}
	return 0
}
