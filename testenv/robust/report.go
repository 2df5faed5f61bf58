package robust

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report sums a campaign up in one line.
func (c *campaign) report(v verdict) string {
	var faults []string
	for _, f := range slices.Sorted(maps.Keys(c.history.fired)) {
		faults = append(faults, fmt.Sprintf("%s %d times", f, c.history.count(f)))
	}
	line := fmt.Sprintf("seed %d, read: %s, %s -> %s: %s; %d records, %d missing, %d copies too many (%.2f %%)",
		c.seed, c.reader, c.source.Name(), c.target.Name(), strings.Join(faults, ", "),
		v.source, len(v.copies.Missing), v.duplicates(), 100*float64(v.duplicates())/float64(max(1, v.source)))
	if len(c.restarts) > 0 {
		line += fmt.Sprintf("; from a start to the first record copied: median %v, worst %v",
			median(c.restarts).Round(time.Millisecond), slices.Max(c.restarts).Round(time.Millisecond))
	}
	return line
}

func median(ds []time.Duration) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[len(ds)/2]
}
