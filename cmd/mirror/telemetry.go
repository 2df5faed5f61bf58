package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/onceover-mirror/onceover/mirror"
)

// serve answers HTTP at address until stop is called, which waits for
// requests under way, a second at most. The address is taken when serve
// returns.
func serve(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		usage := &usageError{problem: fmt.Sprintf("--listen %s: %v", address, err), hint: "use HOST:PORT, :PORT, or '' for none"}
		if errors.Is(err, syscall.EADDRINUSE) {
			usage.problem = fmt.Sprintf("--listen %s: another process has this port", address)
			usage.hint = "give each process its own, for example --listen 127.0.0.1:0 (any free port), or '' for none"
		}
		return nil, usage
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving the status page", "url", "http://"+listener.Addr().String()+"/")
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the status page is gone; copying goes on", "reason", err)
		}
	})
	return func() {
		// ctx is over already when a signal stops the process.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
		wg.Wait()
	}, nil
}

// newServeMux returns the handler of everything that is served:
//
//	/              status page
//	/healthz       200, or 503 with the problems; by progress, see mirror.Health
//	/readyz        200 once every flow has left its start and none was refused
//	/metrics       Prometheus
//	/api/v1/state  mirror.State as JSON
func newServeMux(source stateSource, metrics prometheus.Gatherer, page *page) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		verdict(w, source.Health())
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		verdict(w, ready(source.State()))
	})
	mux.HandleFunc("GET /api/v1/state", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, source.State())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		// One bad series is no reason to hide the others.
		ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /web/", http.FileServerFS(webFiles))
	return guarded(mux)
}

// guarded sets the headers that keep other sites and foreign scripts out.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// ready judges whether every flow copies, or would if there was anything.
func ready(s mirror.State) mirror.Health {
	h := mirror.Health{Problems: []string{}}
	if len(s.Flows) == 0 {
		h.Problems = append(h.Problems, "no flow has started")
	}
	for _, f := range s.Flows {
		switch f.Phase {
		case mirror.FlowStarting, mirror.FlowStopping:
			h.Problems = append(h.Problems, fmt.Sprintf("flow %s: %s", f.Name, f.Phase))
		case mirror.FlowStopped:
			h.Problems = append(h.Problems, fmt.Sprintf("flow %s: %s: %s", f.Name, f.Phase, f.Reason))
		case mirror.FlowRunning, mirror.FlowWaiting, mirror.FlowObserved:
		}
	}
	h.OK = len(h.Problems) == 0
	return h
}

func verdict(w http.ResponseWriter, h mirror.Health) {
	code := http.StatusOK
	if !h.OK {
		code = http.StatusServiceUnavailable
	}
	if h.Problems == nil {
		h.Problems = []string{}
	}
	reply(w, code, h)
}

func reply(w http.ResponseWriter, code int, body any) {
	data, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}
