package topology

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// Match reports whether the flow copies the source topic of that name:
// included, not excluded, not internal. It compiles the patterns at its first
// call and may be called concurrently. A pattern that does not compile, which
// [Topology.Validate] rules out, matches nothing.
func (f *Flow) Match(topic string) bool {
	m := f.matcher.Load()
	if m == nil {
		m = &matcher{include: compileAll(f.Topics.Include), exclude: compileAll(f.Topics.Exclude)}
		f.matcher.Store(m)
	}
	return !Internal(topic) && anyMatch(m.include, topic) && !anyMatch(m.exclude, topic)
}

// TargetTopic returns the name that the source topic has on the target.
func (f *Flow) TargetTopic(topic string) string {
	// Asked for each record: building a strings.Replacer took a sixth of all
	// CPU time.
	before, after, found := strings.Cut(f.Rename, placeTopic)
	if !found {
		topic = ""
	}
	return strings.ReplaceAll(before, placeCluster, f.From) + topic + strings.ReplaceAll(after, placeCluster, f.From)
}

// Internal reports whether topic is bookkeeping that no flow copies: the
// broker's own topics, those of MirrorMaker 2 with any separator, and this
// tool's ledgers and maps. Names are compared exactly or by their whole
// shape; _schemas is an ordinary topic.
func Internal(topic string) bool {
	switch topic {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "heartbeats":
		return true
	}
	return internalShape.MatchString(topic)
}

// The separator of MirrorMaker 2 is a setting and may even be empty, so the
// fixed words decide. Ours are known to the letter.
var internalShape = regexp.MustCompile(`^(?:` +
	`mm2-(?:offset-syncs|configs|offsets|status).*internal` +
	`|.*checkpoints[._-]*internal` +
	`|onceover\.` + flowNameShape + `\.(?:ledger|map)\.internal` +
	`)$`)

const (
	placeTopic   = "{topic}"
	placeCluster = "{cluster}"
)

// matcher holds a flow's compiled patterns. A topic pattern that is an exact
// name compiles to its quoted form.
type matcher struct{ include, exclude []*regexp.Regexp }

func anyMatch(patterns []*regexp.Regexp, topic string) bool {
	for _, p := range patterns {
		if p.MatchString(topic) {
			return true
		}
	}
	return false
}

func compileAll(patterns []string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, p := range patterns {
		if re, err := compile(p); err == nil {
			all = append(all, re)
		}
	}
	return all
}

// compile anchors pattern. It is parsed by itself first, so that "a)|(b" is
// not made valid by the anchors.
func compile(pattern string) (*regexp.Regexp, error) {
	if isName(pattern) {
		pattern = regexp.QuoteMeta(pattern)
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return nil, err
	}
	return regexp.Compile(`^(?:` + pattern + `)$`)
}

// isName reports whether an entry of a topic list is an exact name and not a
// regular expression.
func isName(entry string) bool {
	for _, r := range entry {
		if !topicRune(r) {
			return false
		}
	}
	return entry != ""
}

func topicRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// illegalTopic says why Kafka refuses a topic name, or nothing.
func illegalTopic(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "is reserved"
	case len(name) > 249:
		return "is longer than 249 characters"
	case !isName(name):
		return "may only hold letters, digits, '.', '_' and '-'"
	}
	return ""
}
