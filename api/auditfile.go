package api

import (
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"ringmaster/internal/trust"
)

// AuditFile is the file of an audit log; nil if there is none.
type AuditFile struct {
	file   io.WriteCloser
	broken atomic.Bool // the last line could not be written
}

// OpenAudit opens the file of a path, nil if it is empty. Every line is appended by itself, so that it can
// be copied and truncated while the server runs.
func OpenAudit(path string) (*AuditFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	trust.WarnIfOthersMay(path, 0o007, "audit log")
	return &AuditFile{file: f}, nil
}

// Write appends a line. slog has no use for an error, so the first of a row of
// failures goes to the server's log.
func (a *AuditFile) Write(line []byte) (int, error) {
	n, err := a.file.Write(line)
	if failed := err != nil; a.broken.Swap(failed) != failed && failed {
		slog.Error("lines of the audit log are lost until it can be written again", "error", err)
	}
	return n, err
}

// Logger is Config.Audit; nil without a file.
func (a *AuditFile) Logger() *slog.Logger {
	if a == nil {
		return nil
	}
	return slog.New(slog.NewJSONHandler(a, nil))
}

// Close closes the file.
func (a *AuditFile) Close() {
	if a != nil {
		_ = a.file.Close()
	}
}
