package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/urfave/cli/v2"
)

// logFlags say how the log looks and, unless told otherwise, from which level
// on; "" is no log at all.
func logFlags(level string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "log-level", Value: level, Usage: "debug, info (state transitions), warn or error", DefaultText: cmp.Or(level, "no log")},
		&cli.StringFlag{Name: "log-format", Usage: "text or json (default: text on a terminal, else json)"},
	}
}

// newHandler returns the handler of the log on w as the flags say.
func newHandler(c *cli.Context, w io.Writer, terminal bool) (slog.Handler, error) {
	if c.String("log-level") == "" {
		return slog.DiscardHandler, nil
	}
	var level slog.Level
	if name := c.String("log-level"); level.UnmarshalText([]byte(name)) != nil || !slices.Contains([]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}, level) {
		return nil, &usageError{problem: fmt.Sprintf("--log-level %q is not known", name), hint: "use debug, info, warn or error"}
	}
	opts := &slog.HandlerOptions{Level: level}
	switch format := c.String("log-format"); {
	case format == "text", format == "" && terminal:
		return slog.NewTextHandler(w, opts), nil
	case format == "json", format == "":
		return slog.NewJSONHandler(w, opts), nil
	default:
		return nil, &usageError{problem: fmt.Sprintf("--log-format %q is not known", format), hint: "use text or json"}
	}
}

// counting is a handler that counts warnings and errors by the attribute
// "flow", also those that the log level keeps out of the log.
type counting struct {
	slog.Handler
	flow  string
	count func(flow string, level slog.Level)
}

// Enabled reports true for whatever is logged or counted.
func (h counting) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle counts r and passes it on if its level is logged.
func (h counting) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		flow := h.flow
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "flow" {
				flow = a.Value.String()
			}
			return true
		})
		h.count(flow, r.Level)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs remembers the flow.
func (h counting) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "flow" {
			h.flow = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup passes the group on.
func (h counting) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
