package main

import (
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"ringmaster/internal/trust"
	"ringmaster/internal/usage"
)

// auditLog is the file of --audit-log; nil if there is none.
type auditLog struct {
	file   io.WriteCloser
	broken atomic.Bool // the last line could not be written
}

// openAudit opens the file, to which every line is appended by itself, so that it can
// be copied and truncated while the server runs.
func openAudit(path string) (*auditLog, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, usage.Errorf("--audit-log: %w", err)
	}
	trust.WarnIfOthersMay(path, 0o007, "audit log")
	return &auditLog{file: f}, nil
}

// Write appends a line. slog has no use for an error, so the first of a row of
// failures goes to the server's log.
func (a *auditLog) Write(line []byte) (int, error) {
	n, err := a.file.Write(line)
	if failed := err != nil; a.broken.Swap(failed) != failed && failed {
		slog.Error("lines of the audit log are lost until it can be written again", "error", err)
	}
	return n, err
}

func (a *auditLog) logger() *slog.Logger {
	if a == nil {
		return nil
	}
	return slog.New(slog.NewJSONHandler(a, nil))
}

func (a *auditLog) close() {
	if a != nil {
		_ = a.file.Close()
	}
}
