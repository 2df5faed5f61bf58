package main

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
)

//go:embed web/page.css web/page.js
var webFiles embed.FS

//go:embed web/page.html
var pageText string

// pageTemplate has two entries: "page" is the whole, "live" the part that the
// page fetches again and again (/?part=live).
var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"count": count, "short": short, "size": size, "lag": lagText, "lagTime": lagTime, "unstable": unstableText,
	"span":  func(d time.Duration) string { return span(d.Truncate(time.Second)) },
	"float": func(n int64) float64 { return float64(n) },
}).Parse(pageText))

// pageRows bounds the partitions shown per flow. Those that need attention
// come first; /api/v1/state has all.
const pageRows = 500

// page renders the status page on the server, so that it can be read without
// scripts too.
type page struct {
	source            stateSource
	rate              func(flow string) rate
	instance, version string
}

// view is what the template shows.
type view struct {
	Title, Instance, Version string
	At                       time.Time
	Up                       time.Duration
	Health                   mirror.Health
	Flows                    []flowView
}

type flowView struct {
	mirror.FlowState
	Records, Bytes float64 // per second
	Total          totalsView
	Rows           []rowView
	More           int // partitions not shown
	NotCopied      []mirror.TopicState
	Copied         int64
	CopiedBytes    int64
	LastCommit     string // of an exactly-once flow
}

type totalsView struct {
	Lag                                string
	LagTime                            string
	Partitions, Stopped, Slow, Waiting int
}

type rowView struct {
	mirror.PartitionState
	For time.Duration // in its phase
}

// view takes a snapshot.
func (p *page) view(now time.Time) view {
	s := p.source.State()
	v := view{Instance: p.instance, Version: p.version, At: now.UTC(), Health: p.source.Health(), Title: "Onceover"}
	if !s.Started.IsZero() {
		v.Up = now.Sub(s.Started)
	}
	if !v.Health.OK {
		v.Title = "(!) Onceover"
	}
	for _, f := range s.Flows {
		var sum totals
		sum.add(f)
		r := p.rate(f.Name)
		fv := flowView{
			FlowState: f, Records: r.records, Bytes: r.bytes, Copied: f.Records, CopiedBytes: f.Bytes,
			Total: totalsView{
				Lag: sum.lagText(), LagTime: lagTime(sum.lagSeconds),
				Partitions: sum.partitions, Stopped: sum.stopped, Slow: sum.stalled, Waiting: sum.waiting,
			},
		}
		if f.Shards != nil {
			fv.LastCommit = ago(now.Truncate(time.Second), f.Shards.LastCommit.Truncate(time.Second))
		}
		for _, t := range f.Topics {
			if !t.Ready {
				fv.NotCopied = append(fv.NotCopied, t)
			}
		}
		ps := worstFirst(f.Partitions)
		fv.More = max(0, len(ps)-pageRows)
		for _, ps := range ps[:len(ps)-fv.More] {
			row := rowView{PartitionState: ps}
			if !ps.Since.IsZero() {
				row.For = max(0, now.Sub(ps.Since))
			}
			fv.Rows = append(fv.Rows, row)
		}
		v.Flows = append(v.Flows, fv)
	}
	return v
}

// ServeHTTP answers with the page, or its live part.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := "page"
	if r.URL.Query().Get("part") == "live" {
		name = "live"
	}
	var out bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&out, name, p.view(time.Now())); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
