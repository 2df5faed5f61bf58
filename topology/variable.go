package topology

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var reference = regexp.MustCompile(`\$\$|\$\{([^{}]*)\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} and $$. Findings name the variable, never its value.
func (p *parser) expand(text string, line int, path string) (string, bool) {
	ok := true
	text = reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		name := strings.TrimSuffix(strings.TrimPrefix(ref, "${"), "}")
		if !strings.HasSuffix(ref, "}") || !variableName.MatchString(name) {
			ok = false
			p.addBroken(line, path, "malformed variable reference "+strconv.Quote(ref), "write ${NAME}, or $$ for a dollar sign")
			return ""
		}
		value, found := p.lookup(name)
		if !found {
			ok = false
			p.addBroken(line, path, "variable "+name+" is not set", "set it in the environment, or write $$ for a dollar sign")
		}
		return value
	})
	if ok && !utf8.ValidString(text) {
		ok = false
		p.addBroken(line, path, "not valid UTF-8", "")
	}
	return text, ok
}
