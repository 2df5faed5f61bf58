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
	how := string(c.reader)
	if c.exactly {
		how = "partition, exactly-once"
	}
	if c.bound {
		how = "share, exactly-once"
	}
	line := fmt.Sprintf("seed %d, read: %s, %s -> %s: %s; %d records, %d missing, %d copies too many (%.2f %%)",
		c.seed, how, c.source.Name(), c.target.Name(), strings.Join(faults, ", "),
		v.source, len(v.copies.Missing), v.duplicates(), 100*float64(v.duplicates())/float64(max(1, v.source)))
	if len(c.restarts) > 0 {
		line += fmt.Sprintf("; from a start to the first record copied: median %v, worst %v",
			median(c.restarts).Round(time.Millisecond), slices.Max(c.restarts).Round(time.Millisecond))
	}
	for _, how := range slices.Sorted(maps.Keys(c.recoveries)) {
		var first, all []time.Duration
		for _, r := range c.recoveries[how] {
			first, all = append(first, r.first), append(all, r.all)
		}
		line += fmt.Sprintf("; %s %d times: first new record after %v (median; worst %v), of every partition after %v (worst %v)",
			how, len(first), median(first).Round(time.Millisecond), slices.Max(first).Round(time.Millisecond),
			median(all).Round(time.Millisecond), slices.Max(all).Round(time.Millisecond))
	}
	return line
}

func median(ds []time.Duration) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[len(ds)/2]
}
