package main

import (
	"fmt"
	"io"
	"slices"
)

// ratios of two contenders that ran in pairs: the second by the first, pair by
// pair.
func ratios(runs []result, figures []figure) []result {
	if len(runs) == 0 {
		return nil
	}
	base := runs[0].Name
	var all []result
	for _, b := range runs {
		if b.Name == base {
			continue
		}
		i := slices.IndexFunc(runs, func(a result) bool { return a.Name == base && a.Run == b.Run })
		if i < 0 {
			continue
		}
		ratio := result{Name: b.Name + " / " + base, Run: b.Run}
		for _, f := range figures {
			if d := *f.of(&runs[i]); d != 0 {
				*f.of(&ratio) = *f.of(&b) / d
			}
		}
		all = append(all, ratio)
	}
	return all
}

// writeRatios adds a table of the ratios to the report.
func (r *report) writeRatios(out io.Writer) error {
	var figures []figure
	for _, f := range r.figures {
		if f.title != otherCPUs.title {
			f.format = "%.2f"
			figures = append(figures, f)
		}
	}
	r.Ratios = summary(ratios(r.Runs, figures), figures, least, median, most)
	t := newTable(figures)
	for i := range r.Ratios {
		t.add(&r.Ratios[i], r.Ratios[i].Of)
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return t.write(out)
}
