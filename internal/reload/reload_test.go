package reload

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestFollowsTheFiles: a value follows the files within the interval. Unusable contents
// leave it as it was, with one line in the log for each problem.
func TestFollowsTheFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(a, "1")
	write(b, "1")
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	reads := 0
	v, err := New(Options[string]{
		Paths: []string{a, b}, Every: time.Second, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Parse: func(c [][]byte) (string, error) {
			reads++
			if !bytes.Equal(c[0], c[1]) {
				return "", errors.New("a and b differ")
			}
			return string(c[0]), nil
		},
	})
	require.NoError(t, err)
	require.Equal(t, "1", v.Get())

	write(a, "2")
	require.Equal(t, "1", v.Get(), "not before the interval has passed")
	for range 3 {
		now = now.Add(time.Second)
		require.Equal(t, "1", v.Get(), "half of a change")
		require.True(t, v.Failed())
	}
	require.Equal(t, 2, reads, "what did not change is not parsed again")
	require.Equal(t, 1, strings.Count(log.String(), "a and b differ"))
	write(b, "2")
	now = now.Add(time.Second)
	require.Equal(t, "2", v.Get())
	require.False(t, v.Failed())

	// The same length at the same time: only the contents differ.
	info, err := os.Stat(a)
	require.NoError(t, err)
	for _, path := range []string{a, b} {
		write(path, "3")
		require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	now = now.Add(time.Second)
	require.Equal(t, "3", v.Get())

	require.NoError(t, os.Remove(a))
	for range 3 {
		now = now.Add(time.Second)
		require.Equal(t, "3", v.Get(), "a file that is gone revokes nothing by accident")
		require.True(t, v.Failed())
	}
	require.Equal(t, 1, strings.Count(log.String(), "no such file"))
	write(a, "3")
	now = now.Add(time.Second)
	require.Equal(t, "3", v.Get())
	require.False(t, v.Failed(), "the file is back")
}

func TestRefusals(t *testing.T) {
	parse := func(c [][]byte) (int, error) { return len(c[0]), nil }
	dir := t.TempDir()
	_, err := New(Options[int]{Paths: []string{dir}, Parse: parse})
	require.ErrorContains(t, err, "expected a regular file")
	_, err = New(Options[int]{Paths: []string{filepath.Join(dir, "none")}, Parse: parse})
	require.ErrorIs(t, err, os.ErrNotExist)
	long := testenv.WriteFile(t, filepath.Join(dir, "long"), make([]byte, MaxFile+1))
	_, err = New(Options[int]{Paths: []string{long}, Parse: parse})
	require.ErrorContains(t, err, "is it the right file?")
}

// TestReduce: contents that Parse refuses, and a file that is gone or has become a pipe,
// leave what Reduce returns; an unreadable file leaves all of it.
func TestReduce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("1")
	now := time.Unix(1000, 0)
	v, err := New(Options[string]{
		Paths: []string{path}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Parse: func(c [][]byte) (string, error) {
			if string(c[0]) == "wrong" {
				return "", errors.New("wrong")
			}
			return string(c[0]), nil
		},
		Reduce: func(c [][]byte) string {
			if c == nil {
				return "gone"
			}
			return "left of " + string(c[0])
		},
	})
	require.NoError(t, err)
	get := func() string {
		now = now.Add(time.Second)
		return v.Get()
	}
	for _, step := range []struct {
		change func()
		want   string
		failed bool
	}{
		{func() { write("wrong") }, "left of wrong", true},
		{func() { write("2") }, "2", false},
		{func() { require.NoError(t, os.Remove(path)) }, "gone", true},
		{func() { write("3") }, "3", false},
		{func() { require.NoError(t, os.Remove(path)); require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "gone", true},
		{func() { require.NoError(t, os.Remove(path)); write("4") }, "4", false},
		{func() { require.NoError(t, os.WriteFile(path, make([]byte, MaxFile+1), 0o600)) }, "4", true},
	} {
		step.change()
		require.Equal(t, step.want, get())
		require.Equal(t, step.failed, v.Failed())
	}
}

// TestAPipeDoesNotBlock: a pipe that replaces a file after the check is refused at once;
// opening it only for reading would wait for a writer.
func TestAPipeDoesNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	opened := make(chan error, 1)
	go func() {
		_, err := openRegular(path)
		opened <- err
	}()
	select {
	case err := <-opened:
		require.ErrorContains(t, err, "expected a regular file")
	case <-time.After(time.Minute):
		require.Fail(t, "opening waits for a writer")
	}
}

// TestReadersDoNotWait: while one caller checks the files, others get the previous value.
func TestReadersDoNotWait(t *testing.T) {
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "f"), "1")
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	parsing, proceed := make(chan struct{}), make(chan struct{})
	first := true
	v, err := New(Options[string]{Paths: []string{path}, Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
		Parse: func(c [][]byte) (string, error) {
			if !first {
				close(parsing)
				<-proceed
			}
			first = false
			return string(c[0]), nil
		}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("2"), 0o600))
	mu.Lock()
	now = now.Add(Every)
	mu.Unlock()
	done := make(chan string)
	go func() { done <- v.Get() }()
	<-parsing
	require.Equal(t, "1", v.Get())
	close(proceed)
	require.Equal(t, "2", <-done)
}

// TestClockJumps: a clock that is set back or forward delays no change.
func TestClockJumps(t *testing.T) {
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "f"), "0")
	now := time.Unix(1_700_000_000, 0)
	v, err := New(Options[string]{Paths: []string{path}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Parse: func(c [][]byte) (string, error) { return string(c[0]), nil }})
	require.NoError(t, err)
	for i, jump := range []time.Duration{time.Second, -time.Hour, 100 * 365 * 24 * time.Hour, -200 * 365 * 24 * time.Hour, -2 * time.Second, time.Second} {
		text := strings.Repeat("x", i+1)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		now = now.Add(jump)
		require.Equal(t, text, v.Get(), "after a jump of %v", jump)
	}
}
