package topology

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// parser turns YAML nodes into values and findings.
type parser struct {
	findings
	lookup func(string) (string, bool)
}

// setter reads one node into the place that it was made for.
type setter func(n *yaml.Node, path string)

// fields are the keys that a mapping may have.
type fields map[string]setter

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// object reads a mapping with a closed set of keys.
func (p *parser) object(n *yaml.Node, path string, known fields) {
	misspelt := map[string]bool{}
	p.entries(n, path, func(key string, n *yaml.Node, at string) {
		set, ok := known[key]
		if !ok {
			hint := didYouMean(key, slices.Collect(maps.Keys(known)))
			p.addBroken(p.line(at), at, "unknown key", hint)
			if meant, found := strings.CutPrefix(hint, "did you mean \""); found {
				misspelt[join(path, strings.TrimSuffix(meant, "\"?"))] = true
			}
			return
		}
		set(n, at)
	})
	for meant := range misspelt {
		if _, given := p.lines[meant]; !given {
			p.silence(meant) // not missing
		}
	}
}

func (p *parser) nested(known fields) setter {
	return func(n *yaml.Node, path string) { p.object(n, path, known) }
}

// entries calls visit for each key of a mapping, in order, and records where
// it stands.
func (p *parser) entries(n *yaml.Node, path string, visit func(key string, n *yaml.Node, path string)) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		p.wrongType(n, path, "a mapping of keys to values")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Value == "" {
			p.addBroken(k.Line, path, "a key has to be a plain word", "")
			continue
		}
		at := join(path, k.Value)
		if line, again := first[k.Value]; again {
			p.list = append(p.list, &Finding{
				File: p.file, Line: k.Line, Path: at,
				Problem: fmt.Sprintf("given twice, first on line %d", line), Hint: "keep one of them",
			})
			continue
		}
		first[k.Value] = k.Line
		p.lines[at] = k.Line
		visit(k.Value, v, at)
	}
}

// items calls visit for each element of a list, in order.
func (p *parser) items(n *yaml.Node, path string, visit func(n *yaml.Node, path string)) {
	if n.Kind != yaml.SequenceNode || n.Anchor != "" {
		p.wrongType(n, path, "a list")
		return
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.lines[at] = item.Line
		visit(item, at)
	}
}

func (p *parser) wrongType(n *yaml.Node, path, want string) {
	got, hint := "text", ""
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.addBroken(n.Line, path, "YAML anchors and aliases are not supported", "write the value out")
		return
	case n.Kind == yaml.MappingNode:
		got = "a mapping"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case n.ShortTag() == "!!null":
		got = "nothing"
	case n.ShortTag() == "!!int":
		got = "a number"
	case n.ShortTag() == "!!float":
		got = "a number with a fraction"
	case n.ShortTag() == "!!bool":
		got = "true or false"
	case n.ShortTag() != "!!str":
		got = n.ShortTag()
	}
	if want == wantText && n.Kind == yaml.ScalarNode && got != "nothing" {
		hint = "put it in quotes"
	}
	p.addBroken(n.Line, path, fmt.Sprintf("expected %s, got %s", want, got), hint)
}

const wantText = "text"

// scalar returns the expanded text of a scalar whose type is one of tags. A
// text that holds a variable may stand for any type.
func (p *parser) scalar(n *yaml.Node, path, want string, tags ...string) (string, bool) {
	variable := n.ShortTag() == "!!str" && strings.Contains(n.Value, "${")
	if n.Kind != yaml.ScalarNode || n.Anchor != "" || !variable && !slices.Contains(tags, n.ShortTag()) {
		p.wrongType(n, path, want)
		return "", false
	}
	return p.expand(n.Value, n.Line, path)
}

func (p *parser) text(dst *string) setter {
	return func(n *yaml.Node, path string) {
		if s, ok := p.scalar(n, path, wantText, "!!str"); ok {
			*dst = s
		}
	}
}

func (p *parser) textOrBoolean(dst *string) setter {
	return func(n *yaml.Node, path string) {
		if s, ok := p.scalar(n, path, wantText, "!!str", "!!bool"); ok {
			*dst = strings.ToLower(s)
		}
	}
}

func (p *parser) texts(dst *[]string) setter {
	return func(n *yaml.Node, path string) {
		p.items(n, path, func(n *yaml.Node, path string) {
			var s string
			p.text(&s)(n, path)
			*dst = append(*dst, s)
		})
	}
}

// addresses reads a list of host:port; one element may hold several with
// commas between, as a variable usually does.
func (p *parser) addresses(dst *[]string) setter {
	return func(n *yaml.Node, path string) {
		var list []string
		p.texts(&list)(n, path)
		for _, s := range list {
			*dst = append(*dst, splitList(s)...)
		}
		if len(list) > 0 && len(*dst) == 0 {
			p.silence(path) // its elements have findings of their own
		}
	}
}

func splitList(s string) []string {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// converted reads a scalar of the given tags through parse.
func converted[T any](p *parser, dst *T, want string, parse func(string) (T, error), tags ...string) setter {
	return func(n *yaml.Node, path string) {
		s, ok := p.scalar(n, path, want, tags...)
		if !ok {
			return
		}
		v, err := parse(s)
		if err != nil {
			p.addBroken(n.Line, path, fmt.Sprintf("expected %s, got %q", want, n.Value), "")
			return
		}
		*dst = v
	}
}

func (p *parser) boolean(dst *bool) setter {
	return converted(p, dst, "true or false", parseBoolean, "!!bool")
}

func parseBoolean(s string) (bool, error) {
	s = strings.ToLower(s)
	if s != "true" && s != "false" {
		return false, strconv.ErrSyntax
	}
	return s == "true", nil
}

func (p *parser) integer(dst *int) setter {
	return converted(p, dst, "a whole number", strconv.Atoi, "!!int")
}

func (p *parser) int16(dst *int16) setter {
	return converted(p, dst, "a whole number", func(s string) (int16, error) {
		v, err := strconv.ParseInt(s, 10, 16)
		return int16(v), err
	}, "!!int")
}

func (p *parser) int8(dst *int8) setter {
	return converted(p, dst, "a whole number", func(s string) (int8, error) {
		v, err := strconv.ParseInt(s, 10, 8)
		return int8(v), err
	}, "!!int")
}

func (p *parser) duration(dst *time.Duration) setter {
	return converted(p, dst, `a duration such as "30s"`, time.ParseDuration, "!!str")
}

// timeout reads the timeout of transactions. Whatever is no duration, -1 or
// 50d for example, gets the range told at once.
func (p *parser) timeout(dst *time.Duration) setter {
	want := fmt.Sprintf(`a duration from %s to %s such as "30s"`, span(minTxnTimeout), span(maxTxnTimeout))
	return converted(p, dst, want, time.ParseDuration, "!!str")
}

func (p *parser) size(dst *int) setter {
	return converted(p, dst, `a number of bytes such as 1048576 or "8MiB"`, parseSize, "!!int", "!!str")
}

func parseSize(s string) (int, error) {
	unit := 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = strings.TrimSpace(number), bytes
			break
		}
	}
	v, err := strconv.ParseInt(s, 10, 32)
	return int(v) * unit, err
}

// properties reads settings under Kafka's own names; as in a properties file
// every value is text.
func (p *parser) properties(dst *map[string]Value) setter {
	return func(n *yaml.Node, path string) {
		*dst = map[string]Value{}
		p.entries(n, path, func(key string, n *yaml.Node, path string) {
			if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
				(*dst)[key] = Value{Line: p.line(path)}
				return
			}
			if s, ok := p.scalar(n, path, wantText, "!!str", "!!int", "!!float", "!!bool"); ok {
				(*dst)[key] = Value{Text: s, Line: p.line(path)}
			}
		})
	}
}

// secondDocument returns the line at which a second YAML document starts, 0
// when there is none.
func secondDocument(data []byte) int {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if decoder.Decode(&doc) != nil {
		return 0
	}
	doc = yaml.Node{}
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return 0
	}
	return max(1, doc.Line)
}
