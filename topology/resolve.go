package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Resolved are the settings that hold for one flow once every level was
// looked at: default, worker properties, flow properties and keys. The later
// level wins.
type Resolved struct {
	// Settings are all of them with their origin, sorted by key.
	Settings []Setting
	// Read is the flow's reader with the group protocol taken into account:
	// consumer.group.protocol=share is read: share, consumer and classic are
	// read: partition. It is auto where neither says anything.
	Read Reader
	// Protocol is the group protocol asked for: share, consumer, classic, or
	// "" when the source decides.
	Protocol string
	// ShareGroupID is the share group on the source. Default:
	// onceover.<flow>.
	ShareGroupID string
	// GroupID is the consumer group of the partition reader:
	// onceover.<flow>.positions. It is never the share group's name, as all
	// kinds of groups share one name space.
	GroupID string
	// StopsGroupID is the group that keeps the stopped topics of a share
	// flow: onceover.<flow>.stops.
	StopsGroupID string
	// Consumer and Producer are the overridden client settings by Kafka's
	// names, without prefix; each has been checked. max.poll.records is not
	// among them: it is the flow's Limits.Records.
	Consumer, Producer map[string]string
}

// Setting is one resolved setting.
type Setting struct {
	// Key is Kafka's name (consumer.* and producer.* without "override") or
	// the key of the declaration.
	Key string
	// Value as text.
	Value string
	// Origin is where the value was written: "default", "worker, line 3",
	// "flow east-to-west, line 12", or the same without a line when there is
	// no file.
	Origin string
}

func positionsGroup(flow string) string { return "onceover." + flow + ".positions" }
func stopsGroup(flow string) string     { return "onceover." + flow + ".stops" }
func shardsGroup(flow string) string    { return "onceover." + flow + ".shards" }
func shareGroup(f *Flow) string {
	if v, ok := f.Properties[keyGroupID]; ok {
		return v.Text
	}
	return "onceover." + f.Name
}

// Resolve returns the settings of f, a flow of t. The error, for a topology
// that was not validated, is a *multierror.Error of *Finding.
func (t *Topology) Resolve(f *Flow) (*Resolved, error) {
	found := &findings{lines: t.lines}
	path := t.path(f)
	workerLevel.check(t.Properties, "", found)
	flowLevel.check(f.Properties, path, found)
	if err := found.err(); err != nil {
		return nil, fmt.Errorf("resolve settings of flow %s: %w", f.Name, err)
	}
	r := &Resolved{
		ShareGroupID: shareGroup(f),
		GroupID:      positionsGroup(f.Name),
		StopsGroupID: stopsGroup(f.Name),
		Consumer:     map[string]string{},
		Producer:     map[string]string{},
	}
	s := settings{}
	s.declared(t, f, path)
	r.Read, r.Protocol = t.reader(f)
	s.protocol(t, f, r)
	s.properties(t.Properties, workerLevel, "worker", r)
	s.properties(f.Properties, flowLevel, "flow "+f.Name, r)
	s.set(keyGroupID, r.ShareGroupID, "default")
	s.set(keyAckMode, "explicit", "default")
	for _, key := range []string{keyGroupID, keyAckMode} {
		if v, ok := f.Properties[key]; ok {
			s.set(key, v.Text, origin("flow "+f.Name, v.Line))
		}
	}
	r.Settings = slices.SortedFunc(maps.Values(s), func(a, b Setting) int { return cmp.Compare(a.Key, b.Key) })
	return r, nil
}

// reader applies the levels to the choice of the reader: the flow's own
// "read" and its protocol stand above the worker's protocol. With kip1289, read:
// auto is read: share.
func (t *Topology) reader(f *Flow) (Reader, string) {
	asked := t.protocol(f)
	if f.KIP1289 != nil && f.Read == ReaderAuto {
		return ReaderShare, protocolShare
	}
	implied := readerOf(asked)
	switch {
	case implied == ReaderAuto:
		return f.Read, impliedProtocol(f.Read)
	case f.Read == ReaderAuto || f.Read == implied:
		return implied, asked
	}
	return f.Read, impliedProtocol(f.Read)
}

// protocol is the group protocol that the flow, or else the worker, names.
func (t *Topology) protocol(f *Flow) string {
	v, own := f.Properties[flowLevel.consumer+keyProtocol]
	if !own {
		v = t.Properties[workerLevel.consumer+keyProtocol]
	}
	return v.Text
}

func impliedProtocol(r Reader) string {
	if r == ReaderShare {
		return protocolShare
	}
	return ""
}

// readerOf is the reader that a group protocol means.
func readerOf(protocol string) Reader {
	switch protocol {
	case protocolShare:
		return ReaderShare
	case protocolConsumer, protocolClassic:
		return ReaderPartition
	}
	return ReaderAuto
}

// settings by key, while they are put together.
type settings map[string]Setting

func (s settings) set(key, value, origin string) {
	s[key] = Setting{Key: key, Value: value, Origin: origin}
}

// properties lays one level's client settings over what is there.
func (s settings) properties(properties map[string]Value, l level, place string, r *Resolved) {
	for key, v := range properties {
		if k, ok := strings.CutPrefix(key, l.consumer); ok {
			if k == keyProtocol || slices.Contains(classicOnly, k) && noSessionTimeout(r.Protocol) {
				continue
			}
			if k != keyPollRecords {
				r.Consumer[k] = v.Text
			}
			s.set("consumer."+k, v.Text, origin(place, v.Line))
		} else if k, ok := strings.CutPrefix(key, l.producer); ok {
			r.Producer[k] = v.Text
			s.set("producer."+k, v.Text, origin(place, v.Line))
		}
	}
}

// noSessionTimeout: these protocols take session and heartbeat times from the
// broker.
func noSessionTimeout(protocol string) bool {
	return protocol == protocolShare || protocol == protocolConsumer
}

// protocol names the group protocol and the level that decided it.
func (s settings) protocol(t *Topology, f *Flow, r *Resolved) {
	key := workerLevel.consumer + keyProtocol
	if v, ok := f.Properties[flowLevel.consumer+keyProtocol]; ok {
		s.set(key, v.Text, origin("flow "+f.Name, v.Line))
	} else if v, ok := t.Properties[key]; ok && v.Text == r.Protocol {
		s.set(key, v.Text, origin("worker", v.Line))
	} else if r.Protocol != "" {
		why := "read"
		if f.KIP1289 != nil && f.Read == ReaderAuto {
			why = "kip1289"
		}
		s.set(key, r.Protocol, s[why].Origin)
	} else {
		s.set(key, "auto", "default")
	}
}

// declared lists the flow's own keys. What stands in a file or was given by
// a flag has an entry in lines.
func (s settings) declared(t *Topology, f *Flow, path string) {
	for _, d := range []struct{ key, value string }{
		{"rename", f.Rename},
		{"guarantee", string(f.Guarantee)},
		{"read", string(f.Read)},
		{"ordered", string(f.Ordered)},
		{"start", string(f.Start)},
		{"on_error", string(f.OnError)},
		{"on_gap", string(f.OnGap)},
		{"on_recreate", string(f.OnRecreate)},
		{"on_target_recreate", string(f.OnTargetRecreate)},
		{"allow_unverified_transactions", strconv.FormatBool(f.AllowUnverified)},
		{"allow_no_topic_ids", strconv.FormatBool(f.AllowNoTopicIDs)},
		{"kip1289", f.KIP1289.text()},
		{"transaction.timeout", span(f.Transaction.Timeout)},
		{"transaction.interval", span(f.Transaction.Interval)},
		{"ledger.shards", strconv.Itoa(f.Ledger.Shards)},
		{"ledger.replication_factor", strconv.Itoa(int(f.Ledger.ReplicationFactor))},
		{"provenance", strconv.FormatBool(f.Provenance)},
		{"lanes", strconv.Itoa(f.Lanes)},
		{"create.enabled", strconv.FormatBool(f.Create.Enabled)},
		{"create.replication_factor", strconv.Itoa(int(f.Create.ReplicationFactor))},
		{"limits.records", strconv.Itoa(f.Limits.Records)},
		{"limits.bytes", strconv.Itoa(f.Limits.Bytes)},
		{"limits.refresh", span(f.Limits.Refresh)},
		{"limits.shutdown", span(f.Limits.Shutdown)},
		{"limits.lock", span(f.Limits.Lock)},
	} {
		place := "default"
		if line, written := t.lines[path+"."+d.key]; written {
			place = origin("flow "+f.Name, line)
		}
		s.set(d.key, d.value, place)
	}
}

func origin(place string, line int) string {
	if line == 0 {
		return place
	}
	return fmt.Sprintf("%s, line %d", place, line)
}

// path returns the path of a flow in the declaration.
func (t *Topology) path(f *Flow) string {
	return fmt.Sprintf("flows[%d]", slices.Index(t.Flows, f))
}
