package main

import (
	"fmt"
	"strconv"
	"time"
)

// scaled prints v with at most three digits and a decimal unit: 12.3k.
func scaled(v float64, units ...string) string {
	unit := ""
	for _, u := range units {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	switch {
	case unit == "" && v == float64(int64(v)), v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64) + unit
	default:
		return strconv.FormatFloat(v, 'f', 1, 64) + unit
	}
}

// short is a number for people: 950, 12.3k, 4.5M.
func short(v float64) string { return scaled(v, "k", "M", "G", "T") }

// size is a number of bytes for people: 950 B, 4.5 MB.
func size(v float64) string {
	if v < 999.5 {
		return scaled(v) + " B"
	}
	return scaled(v, " kB", " MB", " GB", " TB", " PB")
}

// count prints every digit, in groups of three: 1,234,567.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural prints a number with its noun: 1 record, 2,000 records.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// span is a duration for people, in its two largest units: 2h5m, 12.3s.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "unknown"
	case d < time.Minute:
		return scaled(d.Truncate(100*time.Millisecond).Seconds()) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
