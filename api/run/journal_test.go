package run

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/chat"
)

// kept returns Replays in a file, with its log.
func kept(t testing.TB, path, model string, limit int64) (*Replays, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	r := NewReplays(limit)
	require.NoError(t, r.Keep(path, model, 1000, slog.New(slog.NewTextHandler(log, nil))))
	return r, log
}

func closed(t testing.TB, r *Replays) {
	t.Helper()
	require.NoError(t, r.Close(t.Context()))
}

// example is an answer with two calls, or one with an id of its own.
func example(i int) *replay {
	p := &replay{id: fmt.Sprint("id", i), reasoning: "Hm.", content: "Yes \"<x>\" 🎪", tokens: []int32{int32(i % 1000), 2}, thought: []int32{5}}
	if i%2 == 0 {
		p.thought, p.reasoning = nil, ""
		p.calls = []chat.Call{{ID: p.id, Name: "weather", Arguments: `{"a": "\u00e9"}`}, {ID: p.id + "b", Name: "clock", Arguments: `{}`}}
	}
	return p
}

func message(p *replay) *chat.Message {
	return &chat.Message{ID: p.id, Content: p.content, Calls: p.calls, Reasoning: p.reasoning}
}

// TestReplaysOverARestart: the next process finds exactly what this one remembered.
func TestReplaysOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replays")
	r, _ := kept(t, path, "m", 1<<20)
	for i := range 10 {
		r.remember(example(i))
	}
	closed(t, r)
	closed(t, r) // closing again does nothing
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for life := range 3 {
		r, log := kept(t, path, "m", 1<<20)
		for i := range 10 + life {
			p := example(i)
			tokens, thought := r.Find("", message(p))
			require.Equal(t, p.tokens, tokens)
			require.Equal(t, p.thought, thought)
		}
		require.Empty(t, log.String())
		r.remember(example(10 + life))
		closed(t, r)
	}
	r, log := kept(t, path, "another", 1<<20)
	used, _ := r.Bytes()
	require.Zero(t, used)
	require.Contains(t, log.String(), "of another model")
	closed(t, r)
}

// TestTheFileIsBounded: the file is at most twice the limit, and has the latest answers.
func TestTheFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replays")
	const limit = 40 << 10
	for life := range 3 {
		r, _ := kept(t, path, "m", limit)
		for i := range 150 {
			p := example(life*1000 + 2*i + 1)
			p.content = strings.Repeat("x", 500)
			for len(r.journal.queue) == cap(r.journal.queue) {
				runtime.Gosched() // an answer without a place in the queue is not written
			}
			r.remember(p)
		}
		closed(t, r)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(2*limit))
	}
	r, _ := kept(t, path, "m", limit)
	last := example(2*1000 + 2*149 + 1)
	last.content = strings.Repeat("x", 500)
	tokens, _ := r.Find("", message(last))
	require.NotNil(t, tokens)
	used, _ := r.Bytes()
	require.LessOrEqual(t, used, int64(limit))
	closed(t, r)
}

// TestADamagedJournal: whatever is cut or changed, the answers before it are read, the
// file is valid again afterwards, and nothing is found that was not written.
func TestADamagedJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replays")
	r, _ := kept(t, path, "m", 1<<20)
	for i := range 3 {
		r.remember(example(i))
	}
	closed(t, r)
	good := testenv.ReadFile(t, path)
	check := func(data []byte, what string) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		r, _ := kept(t, path, "m", 1<<20)
		found := 0
		for i := range 3 {
			p := example(i)
			if tokens, thought := r.Find("", message(p)); tokens != nil {
				require.Equal(t, p.tokens, tokens, what)
				require.Equal(t, p.thought, thought, what)
				found++
			}
		}
		require.Less(t, found, 3, what)
		r.remember(example(3))
		closed(t, r)
		r, log := kept(t, path, "m", 1<<20)
		require.Empty(t, log.String(), what)
		tokens, _ := r.Find("", message(example(3)))
		require.NotNil(t, tokens, what)
		closed(t, r)
	}
	for i := 0; i < len(good); i += 61 {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		check(bad, fmt.Sprint("byte ", i))
		check(good[:i], fmt.Sprint("cut at ", i))
	}
	r = NewReplays(1 << 20)
	require.Error(t, r.Keep(filepath.Join(path, "below"), "m", 1000, slog.New(slog.DiscardHandler)))
	require.NoError(t, os.WriteFile(path, append(bytes.Clone(good[:13]), "\xff\xff\xff\x7fabcd"...), 0o600))
	r, log := kept(t, path, "m", 1<<20)
	require.Contains(t, log.String(), "a record of 2147483647 bytes")
	closed(t, r)
}

// FuzzJournal: whatever is in the file, reading it ends, and the file is valid
// afterwards.
func FuzzJournal(f *testing.F) {
	path := filepath.Join(f.TempDir(), "replays")
	r, _ := kept(f, path, "m", 1<<16)
	r.remember(example(0))
	r.remember(example(1))
	closed(f, r)
	good := testenv.ReadFile(f, path)
	f.Add(good)
	f.Add(good[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "replays"), data)
		r, _ := kept(t, path, "m", 1<<16)
		used, limit := r.Bytes()
		require.LessOrEqual(t, used, limit)
		closed(t, r)
		again, log := kept(t, path, "m", 1<<16)
		require.Empty(t, log.String())
		now, _ := again.Bytes()
		require.Equal(t, used, now)
		closed(t, again)
	})
}

// TestAJournalThatIsNone: a pipe in place of the file does not delay the start. Neither a
// link nor a file that others may write to is trusted; the target of a link stays as it
// is.
func TestAJournalThatIsNone(t *testing.T) {
	dir := t.TempDir()
	sound := filepath.Join(dir, "sound")
	r, _ := kept(t, sound, "m", 1<<20)
	r.remember(example(1))
	closed(t, r)
	text := testenv.ReadFile(t, sound)
	for name, put := range map[string]func(path string) error{
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link": func(path string) error { return os.Symlink(sound, path) },
		"link to a pipe": func(path string) error {
			return errors.Join(syscall.Mkfifo(path+"-", 0o600), os.Symlink(path+"-", path))
		},
		"writable": func(path string) error { return errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, 0o666)) },
		"another user's": func(path string) error {
			if os.Geteuid() != 0 {
				return os.Mkdir(path+".not", 0o700)
			}
			return errors.Join(os.WriteFile(path, text, 0o600), os.Chown(path, 65534, -1))
		},
	} {
		path := filepath.Join(dir, name, "replays")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		require.NoError(t, put(path))
		r, log := kept(t, path, "m", 1<<20)
		tokens, _ := r.Find("", message(example(1)))
		require.Nil(t, tokens, name)
		r.remember(example(2))
		closed(t, r)
		if name != "another user's" {
			require.Contains(t, log.String(), "its answers are ignored", name)
		}
		r, _ = kept(t, path, "m", 1<<20)
		tokens, _ = r.Find("", message(example(2)))
		require.NotNil(t, tokens, "%s was replaced", name)
		closed(t, r)
	}
	after := testenv.ReadFile(t, sound)
	require.Equal(t, text, after)
}
