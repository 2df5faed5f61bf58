package topology

import (
	"regexp/syntax"
	"slices"
	"unicode"
)

// maxSamples bounds the names made from one pattern.
const maxSamples = 24

// samples returns topic names that the flow surely copies: its exact names
// and some that its patterns match. Whatever is found with them is real; a
// finding that would need another name is missed.
func (f *Flow) samples() []string {
	var names []string
	for _, entry := range f.Topics.Include {
		if isName(entry) {
			names = append(names, entry)
			continue
		}
		re, err := syntax.Parse(entry, syntax.Perl)
		if err != nil {
			continue
		}
		for _, repeats := range []int{1, 0} {
			names = append(names, matching(re.Simplify(), repeats)...)
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again || illegalTopic(name) != "" || !f.Match(name)
	})
}

// matching returns texts that re matches, with that many repeats of what may
// be left out.
func matching(re *syntax.Regexp, repeats int) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"x"}
	case syntax.OpCharClass:
		return []string{fromClass(re.Rune)}
	case syntax.OpStar, syntax.OpQuest:
		if repeats == 0 {
			return []string{""}
		}
		return matching(re.Sub[0], repeats)
	case syntax.OpPlus, syntax.OpCapture:
		return matching(re.Sub[0], repeats)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, matching(sub, repeats)...)
		}
		return all[:min(len(all), maxSamples)]
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, head := range all {
				for _, tail := range matching(sub, repeats) {
					longer = append(longer, head+tail)
				}
			}
			all = longer[:min(len(longer), maxSamples)]
		}
		return all
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return []string{""}
	default:
		return nil
	}
}

// fromClass picks a character that is legal in a topic name, a letter or
// digit if there is one.
func fromClass(ranges []rune) string {
	best := ""
	for _, legal := range "xabcdefghijklmnopqrstuvwyzXABCDEFGHIJKLMNOPQRSTUVWYZ0123456789._-" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if legal >= ranges[i] && legal <= ranges[i+1] {
				if unicode.IsLetter(legal) || unicode.IsDigit(legal) {
					return string(legal)
				}
				best += string(legal)
			}
		}
	}
	return best[:min(1, len(best))]
}
