package api

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// connectionErrors takes the lines that net/http writes about connections. It counts
// failed TLS handshakes and logs them at debug level only, because any stranger can cause
// them.
type connectionErrors struct {
	log        *slog.Logger
	handshakes atomic.Uint64
}

// Write takes one line.
func (e *connectionErrors) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		e.handshakes.Add(1)
		level = slog.LevelDebug
	}
	e.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

func (e *connectionErrors) collector() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ringmaster_http_tls_handshake_errors_total", Help: "TLS handshakes that failed."},
		func() float64 { return float64(e.handshakes.Load()) })
}
