package harness

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Log keeps what a process writes, line by line. It may be used by any
// goroutine.
type Log struct {
	mu      sync.Mutex
	lines   []string
	part    []byte        // of a line that has not ended
	changed chan struct{} // closed when a line is added, then renewed
}

// NewLog is an empty log.
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

// Len is the number of lines so far, a place for Wait to begin.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// String is the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.lines, "\n")
	if len(l.part) > 0 {
		s += "\n" + string(l.part)
	}
	return s
}

// Wait returns the first line from number from on that matches.
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
