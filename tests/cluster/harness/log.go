package harness

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Log collects the output of a process by lines. It may be used by several
// goroutines.
type Log struct {
	mu      sync.Mutex
	lines   []string
	part    []byte        // of an incomplete line
	changed chan struct{} // closed and replaced when a line is added
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{changed: make(chan struct{})} }

// Write adds bytes; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	added := false
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			break
		}
		l.lines = append(l.lines, strings.TrimSuffix(string(line), "\r"))
		l.part = append([]byte(nil), rest...)
		added = true
	}
	if added {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	return len(p), nil
}

// Len returns the number of complete lines so far, a starting point for Wait.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.lines, "\n")
	if len(l.part) > 0 {
		s += "\n" + string(l.part)
	}
	return s
}

// From returns the log from line n onwards.
func (l *Log) From(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[min(n, len(l.lines)):], "\n")
}

// Wait returns the first line that matches, starting at line number from.
func (l *Log) Wait(ctx context.Context, from int, pattern *regexp.Regexp) (string, error) {
	for {
		l.mu.Lock()
		for ; from < len(l.lines); from++ {
			if pattern.MatchString(l.lines[from]) {
				line := l.lines[from]
				l.mu.Unlock()
				return line, nil
			}
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("no line of the log matches %q: %w", pattern, context.Cause(ctx))
		}
	}
}
