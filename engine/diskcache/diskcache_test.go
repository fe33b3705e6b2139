package diskcache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model/snapshot"
)

// bed is a Store with its own clock.
type bed struct {
	*Store
	t   *testing.T
	now time.Time
	log *bytes.Buffer
}

func open(t *testing.T, dir string, budget int64) *bed {
	t.Helper()
	b, err := tryOpen(t, dir, budget)
	require.NoError(t, err)
	return b
}

func tryOpen(t *testing.T, dir string, budget int64) (*bed, error) {
	return openOn(t, dir, budget, nil)
}

func openOn(t *testing.T, dir string, budget int64, files Files) (*bed, error) {
	b := &bed{t: t, now: time.Now(), log: &bytes.Buffer{}}
	var err error
	b.Store, err = Open(dir, Options{Budget: budget, Logger: slog.New(slog.NewTextHandler(b.log, nil)), Clock: func() time.Time { return b.now }, Files: files})
	if err == nil {
		b.Use("model", 8, 0)
	}
	return b, err
}

func (b *bed) close() {
	b.t.Helper()
	require.NoError(b.t, b.Close(b.t.Context()))
}

// ids returns n token ids.
func ids(seed uint64, n int) (out []int32) {
	r := rand.New(rand.NewPCG(seed, 2))
	for range n {
		out = append(out, int32(r.IntN(1000)))
	}
	return out
}

// state returns a snapshot with n bytes of state.
func state(t testing.TB, tokens []int32, n int) []byte {
	return stateOf(t, Sequence{Tokens: tokens, Peak: len(tokens)}, n)
}

// stateOf returns a snapshot with n bytes of state, and as many of each checkpoint.
func stateOf(t testing.TB, q Sequence, n int) []byte {
	var out bytes.Buffer
	h := snapshot.Header{Model: "m", Layout: "l", Length: len(q.Tokens), Peak: q.Peak, Checkpoints: q.Checkpoints}
	require.NoError(t, snapshot.Write(&out, h, q.Tokens, sections(q, n)))
	return out.Bytes()
}

// partOf returns the snapshot of the tokens that a Saver takes.
func partOf(t testing.TB, q Sequence, w *Saver, n int) []byte {
	h := snapshot.Header{Model: "m", Layout: "l", Length: w.To(), Peak: q.Peak, From: w.From()}
	for _, at := range q.Checkpoints {
		if w.From() < at && at <= w.To() {
			h.Checkpoints = append(h.Checkpoints, at)
		}
	}
	var out bytes.Buffer
	require.NoError(t, snapshot.Write(&out, h, q.Tokens[:w.To()], sections(Sequence{Checkpoints: h.Checkpoints}, n)))
	return out.Bytes()
}

// sections returns the sections of stateOf.
func sections(q Sequence, n int) []snapshot.Section {
	out := []snapshot.Section{{Name: "s", Parts: [][]byte{make([]byte, n)}}}
	for _, at := range q.Checkpoints {
		out = append(out, snapshot.Section{Name: fmt.Sprintf("s at %d", at), Parts: [][]byte{make([]byte, n)}})
	}
	return out
}

// save writes a snapshot as the engine does, and waits for its end; false if none was
// wanted.
func (b *bed) save(scope string, tokens []int32, n int, worth Worth) bool {
	b.t.Helper()
	return b.saveAll(Sequence{Scope: scope, Tokens: tokens, Peak: len(tokens), Worth: worth}, n)
}

// saveAll is save for a sequence with checkpoints.
func (b *bed) saveAll(q Sequence, n int) bool {
	b.t.Helper()
	w := b.Save(q)
	if w == nil {
		return false
	}
	for rest := partOf(b.t, q, w, n); len(rest) > 0 && !w.Ended(); {
		if !w.Ready() {
			continue // another goroutine writes
		}
		k := min(len(rest), snapshot.MaxPiece)
		w.Put(rest[:k])
		rest = rest[k:]
	}
	w.Finish()
	b.wg.Wait()
	if w.To() < len(q.Tokens) {
		q.Cuts = nil
		b.saveAll(q, n)
	}
	return true
}

// load reads a snapshot to its end.
func (b *bed) load(e *Entry) ([]byte, error) {
	l := b.Load(e)
	defer l.Close()
	var out []byte
	for {
		piece, ok, err := l.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		case ok:
			out = append(out, piece...)
		}
	}
}

func (b *bed) finds(scope string, prompt []int32) int {
	_, n := b.Find(scope, prompt)
	return n
}

const kib = 1 << 10

// TestFind: Find returns the longest prefix of a prompt over all snapshots of its scope,
// within what can be rewound, in this Store and in the next.
func TestFind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	b := open(t, dir, 1<<30)
	long := ids(1, 400)
	other := append(append([]int32(nil), long[:250]...), ids(2, 50)...)
	require.True(t, b.save("x", long[:200], 5, Worth{}))
	require.True(t, b.save("x", long, 3<<20, Worth{Hit: true}))
	require.True(t, b.save("y", long[:300], 5, Worth{}))
	require.False(t, b.save("x", long, 5, Worth{}), "it is known")
	require.False(t, b.save("x", long[:MinTokens-1], 5, Worth{}), "it is short")
	for range 2 {
		require.Equal(t, 400, b.finds("x", append(long[:400:400], 7)))
		require.Equal(t, 399, b.finds("x", long), "one token is left to run")
		require.Equal(t, 392, b.finds("x", append(long[:395:395], 7, 8)), "rewound; exactly how far the tokens tell")
		require.Equal(t, 200, b.finds("x", long[:350]), "not rewound so far")
		require.Equal(t, 200, b.finds("x", other))
		require.Equal(t, 300, b.finds("y", long))
		require.Zero(t, b.finds("y", other))
		require.Zero(t, b.finds("", long))
		require.Zero(t, b.finds("x", long[:100]))
		require.Zero(t, b.finds("x", nil))
		e, _ := b.Find("x", long)
		got, err := b.load(e)
		require.NoError(t, err)
		require.Equal(t, state(t, long, 3<<20), got)
		require.True(t, e.Hit)
		parent, _ := b.Find("x", long[:350])
		require.True(t, parent.superseded)
		require.False(t, e.superseded)
		b.Use("another", 8, 0)
		require.Zero(t, b.finds("x", long))
		b.Use("model", 8, 0)
		b.close()
		b = open(t, dir, 1<<30)
	}
	b.close()
	// Names and headers contain nothing of a scope.
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 4)
}

// TestUnlimitedRewind: a model that can be rewound to any length finds roughly the common
// beginning of any two conversations.
func TestUnlimitedRewind(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
	b.Use("model", 1<<20, 0)
	long := ids(1, 9000)
	require.True(t, b.save("", long, 5, Worth{}))
	for _, n := range []int{200, 1000, 5000, 8999} {
		got := b.finds("", append(long[:n:n], ids(3, 100)...))
		require.LessOrEqual(t, got, n)
		require.Greater(t, got, n-150)
	}
	b.close()
}

// TestEviction: to stay within the budget, also that of a smaller next server, the least
// valuable are evicted; a snapshot that is worth less than all others is not written.
func TestEviction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	const size = 100 * kib
	b := open(t, dir, 3*(size+8*kib))
	long := ids(1, 600)
	require.True(t, b.save("", long[:300], size, Worth{}))
	b.now = b.now.Add(time.Hour)
	require.True(t, b.save("", long, size, Worth{})) // continues the first
	require.True(t, b.save("", ids(2, 300), size, Worth{Awaited: true}))
	require.Equal(t, 3, b.Stats().Entries)
	require.True(t, b.save("", ids(3, 300), size, Worth{}))
	require.Zero(t, b.finds("", long[:400]), "superseded, so it went first")
	require.Equal(t, 599, b.finds("", long))
	require.Equal(t, 299, b.finds("", ids(2, 300)))
	b.save("", ids(4, 150), size, Worth{}) // the title of a conversation
	require.Zero(t, b.finds("", ids(4, 150)), "it is worth less than all others")
	require.Equal(t, 3, b.Stats().Entries)
	require.EqualValues(t, 1, b.Stats().Evicted)
	b.now = b.now.Add(30 * 24 * time.Hour)
	e, _ := b.Find("", long)
	b.Used(e, 1)
	b.save("", ids(5, 200), size, Worth{})
	require.Zero(t, b.finds("", ids(3, 300)), "not used for long")
	b.save("", ids(6, 5000), 4*size, Worth{})
	require.Zero(t, b.finds("", ids(6, 5000)), "larger than the budget")
	require.Contains(t, b.log.String(), "larger than the budget")
	require.LessOrEqual(t, b.Stats().Bytes, b.Stats().Budget)
	b.close()

	b = open(t, dir, 2*(size+8*kib))
	require.Equal(t, 2, b.Stats().Entries)
	require.Equal(t, 599, b.finds("", long), "used last")
	b.close()
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, list, 3)
}

// TestDirectory: who may use a directory.
func TestDirectory(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "cache")
	b := open(t, dir, 1000)
	_, err := tryOpen(t, dir, 1000)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, dir)
	b.close()
	open(t, dir, 1000).close()

	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = tryOpen(t, dir, 1000)
	require.ErrorIs(t, err, ErrExposed)
	file := filepath.Join(base, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = tryOpen(t, file, 1000)
	require.ErrorContains(t, err, "not a directory")
	_, err = tryOpen(t, dir, 0)
	require.ErrorContains(t, err, "budget of 0")
	if os.Getuid() != 0 {
		require.NoError(t, os.Chmod(dir, 0o500))
		_, err = tryOpen(t, dir, 1000)
		require.ErrorIs(t, err, os.ErrPermission)
	}
}

// TestFilesOfOthers: a file that is not a snapshot of this format is left or removed,
// depending on its name, and costs nothing else.
func TestFilesOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b, e, path := withSnapshot(t, dir)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	b.close()

	name := func(c string) string { return filepath.Join(dir, strings.Repeat(c, nameLength)) }
	older, renamed := bytes.Clone(good), bytes.Clone(good)
	copy(older, "RMCACHE1")
	bad := bytes.Clone(good)
	bad[100] ^= 1
	for path, content := range map[string][]byte{
		filepath.Join(dir, "notes.txt"):       []byte("mine"),
		filepath.Join(dir, "my.snapshot"):     []byte("mine"),
		name("a") + partial:                   good[:5000],
		name("b") + final:                     older,
		name("c") + final:                     renamed,
		name("d") + final:                     good[:100],
		name("e") + final:                     nil,
		filepath.Join(dir, e.name) + final:    append(bytes.Clone(good), 0),
		filepath.Join(dir, e.name[1:]) + "x":  good,
		name("f") + final:                     bad,
		filepath.Join(dir, "replays.partial"): nil,
	} {
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	require.NoError(t, os.Mkdir(name("0")+final, 0o700))
	b = open(t, dir, 1<<20)
	require.Zero(t, b.Stats().Entries)
	require.Zero(t, b.Stats().Bytes)
	require.EqualValues(t, 6, b.Stats().Refused)
	for _, c := range []string{"b", "c", "d", "e", "f"} {
		require.Contains(t, b.log.String(), name(c)+final)
	}
	b.close()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var left []string
	for _, f := range list {
		left = append(left, f.Name())
	}
	require.ElementsMatch(t, []string{"lock", "notes.txt", "my.snapshot", e.name[1:] + "x", "replays.partial", strings.Repeat("0", nameLength) + final}, left)
}

// failing is a file on a disk that fails.
type failing struct {
	File
	left *int // bytes until it is full
	sync error
}

var errFull = errors.New("no space left on device")

func (f failing) Write(b []byte) (int, error) {
	if *f.left -= len(b); *f.left < 0 {
		return 0, errFull
	}
	return f.File.Write(b)
}

func (f failing) Sync() error { return errors.Join(f.sync, f.File.Sync()) }

// fullDisk makes files that fail.
type fullDisk struct {
	OS
	fail func(f File) (File, error)
}

func (d *fullDisk) Create(path string) (File, error) {
	f, err := d.OS.Create(path)
	if err != nil || d.fail == nil {
		return f, err
	}
	return d.fail(f)
}

// TestAFullDisk: no trace remains of what could not be written, existing snapshots are
// still found, and after a while the disk is tried again.
func TestAFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	disk := &fullDisk{}
	b, err := openOn(t, dir, 1<<30, disk)
	require.NoError(t, err)
	require.True(t, b.save("", ids(1, 300), 5, Worth{}))
	for name, fail := range map[string]func(f File) (File, error){
		"open":   func(f File) (File, error) { return nil, errors.Join(f.Close(), errFull) },
		"header": func(f File) (File, error) { return failing{File: f, left: new(int)}, nil },
		"state": func(f File) (File, error) {
			n := 1 << 20
			return failing{File: f, left: &n}, nil
		},
		"sync": func(f File) (File, error) {
			n := 1 << 30
			return failing{File: f, left: &n, sync: errFull}, nil
		},
	} {
		disk.fail = fail
		before := b.Stats()
		require.True(t, b.save("", ids(2, 300), 9<<20, Worth{}), name)
		after := b.Stats()
		require.Equal(t, before.Errors+1, after.Errors, name)
		require.Equal(t, before.Bytes, after.Bytes, name)
		require.Contains(t, b.log.String(), errFull.Error())
		require.False(t, b.save("", ids(2, 300), 5, Worth{}), "not at once")
		require.Equal(t, 299, b.finds("", ids(1, 300)))
		b.now = b.now.Add(retryAfter)
	}
	disk.fail = nil
	require.True(t, b.save("", ids(2, 300), 5, Worth{}))
	require.Equal(t, 299, b.finds("", ids(2, 300)))
	list, err := filepath.Glob(filepath.Join(dir, "*"+partial))
	require.NoError(t, err)
	require.Empty(t, list)
	b.close()
}

// TestAbort: a snapshot that is not completed leaves nothing, whatever piece it ends at.
func TestAbort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := open(t, dir, 1<<30)
	whole := state(t, ids(1, 300), 5<<20)
	for n := range 4 {
		w := b.Save(Sequence{Tokens: ids(1, 300), Peak: 300})
		for i := range n {
			w.Put(whole[i<<20 : (i+1)<<20])
		}
		w.Abort()
		b.wg.Wait()
		require.True(t, w.Ended())
	}
	w := b.Save(Sequence{Tokens: ids(1, 300), Peak: 300})
	w.Put(whole[:1<<20])
	w.Finish() // too early
	b.wg.Wait()
	st := b.Stats()
	require.Zero(t, st.Entries)
	require.Zero(t, st.Bytes)
	require.Zero(t, st.Errors)
	b.close()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// TestReadsEnd: Close ends a read that its reader has not ended.
func TestReadsEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := open(t, dir, 1<<30)
	require.True(t, b.save("", ids(1, 300), 20<<20, Worth{}))
	e, _ := b.Find("", ids(1, 300))
	l := b.Load(e)
	for ok := false; !ok; {
		var err error
		_, ok, err = l.Next()
		require.NoError(t, err)
	}
	l.Close()
	b.close()
}

// FuzzHeader: decoding any bytes ends with an error or with what encode writes.
func FuzzHeader(f *testing.F) {
	good := form{Model: "m", Scope: hashScope("x"), Length: 300, Peak: 310, Base: 290, Stride: 32, Marks: []string{"0123456789abcdef"},
		Whole: strings.Repeat("a", 64), Bytes: 7, ID: "i", Replaces: "p", Hit: true}
	head, err := good.encode()
	require.NoError(f, err)
	f.Add(head)
	f.Add(head[:100])
	good.Checkpoints, good.Marks = []int{7, 295}, append(good.Marks, good.Marks[0], good.Marks[0])
	head, err = good.encode()
	require.NoError(f, err)
	f.Add(head)
	good.Replay = 100
	for range (290-100-2)/32 + 1 {
		good.Marks = append(good.Marks, good.Marks[0])
	}
	head, err = good.encode()
	require.NoError(f, err)
	_, err = decode(head)
	require.NoError(f, err)
	f.Add(head)
	good.From, good.Parent, good.ParentID = 5, strings.Repeat("b", 32), "j"
	head, err = good.encode()
	require.NoError(f, err)
	f.Add(head)
	f.Add(append([]byte(magic+"\xff\xff\xff\xff"), make([]byte, headerBytes-12)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode(b)
		if err != nil {
			return
		}
		require.Len(t, got.lengths(), len(got.Marks))
		require.LessOrEqual(t, got.least(), got.lengths()[0])
		again, err := got.encode()
		require.NoError(t, err)
		same, err := decode(again)
		require.NoError(t, err)
		require.Equal(t, got, same)
	})
}
