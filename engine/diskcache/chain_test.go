package diskcache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/snapshot"
)

// agents returns conversations over one system prompt of 1,000 tokens.
func agents(n int) (out []Sequence) {
	system := ids(1, 1000)
	for i := range n {
		tokens := slices.Concat(system, ids(uint64(i+2), 150+i))
		out = append(out, Sequence{Tokens: tokens, Peak: len(tokens), Checkpoints: []int{1000, len(tokens) - 10}, Cuts: []int{1000}})
	}
	return out
}

// restored reads all snapshots of an entry as a model does, and returns the tokens and the
// checkpoints.
func (b *bed) restored(e *Entry) (tokens []int32, at []int, err error) {
	data, err := b.load(e)
	if err != nil {
		return nil, nil, err
	}
	err = snapshot.Each(bytes.NewReader(data), func(r io.Reader) error {
		x, err := snapshot.ReadOn(r, "m", "l", 1<<20, tokens)
		if err != nil {
			return err
		}
		for _, s := range sections(Sequence{Checkpoints: x.Checkpoints}, 5) {
			if err := x.Section(s); err != nil {
				return err
			}
		}
		if x.From != len(tokens) {
			return fmt.Errorf("from %d on after %d", x.From, len(tokens))
		}
		tokens, at = x.Tokens, append(at, x.Checkpoints...)
		return nil
	})
	return tokens, at, err
}

// TestAgentsShareAFile: conversations over one system prompt have its file in common, a
// prompt that shares no more reads no other, and each has its checkpoints; in this Store
// and in the next.
func TestAgentsShareAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := open(t, dir, 1<<30)
	all := agents(10)
	for i, q := range all {
		require.True(t, b.saveAll(q, 5))
		require.False(t, b.saveAll(q, 5), "it is known")
		require.Equal(t, i+2, b.Stats().Entries)
	}
	for range 2 {
		question := slices.Concat(all[0].Tokens[:1000], ids(99, 50))
		e, reuse := b.Find("", question)
		require.Equal(t, 1000, reuse)
		require.Equal(t, 1000, e.Length())
		require.Equal(t, 1008, e.Peak(), "as a fork at a checkpoint")
		require.Equal(t, e.size, e.bytes())
		for _, q := range all {
			require.Equal(t, len(q.Tokens)-1, b.finds("", q.Tokens))
			e, _ := b.Find("", q.Tokens)
			tokens, at, err := b.restored(e)
			require.NoError(t, err)
			require.Equal(t, q.Tokens, tokens)
			require.Equal(t, q.Checkpoints, at)
			require.Equal(t, q.Checkpoints, e.Checkpoints())
			require.Equal(t, q.Peak, e.Peak())
			require.False(t, e.parent.superseded)
		}
		b.close()
		b = open(t, dir, 1<<30)
	}
	b.close()
}

// TestTurnsShareFiles: the next turns of a conversation write what is new behind the last
// cut, until they have mostFiles files.
func TestTurnsShareFiles(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
	long := ids(1, 3000)
	var cuts []int
	for n := 300; n <= 2700; n += 300 {
		cuts = append(cuts, n)
		q := Sequence{Tokens: long[:n+200], Peak: n + 200, Checkpoints: slices.Clone(cuts[max(0, len(cuts)-4):]), Cuts: cuts}
		require.True(t, b.saveAll(q, 5))
		e, reuse := b.Find("", long)
		require.Equal(t, n+200, reuse)
		require.LessOrEqual(t, e.files(), mostFiles)
		require.NotNil(t, e.parent)
		require.Equal(t, min(n-n%300, 900), e.parent.form.Length)
		tokens, at, err := b.restored(e)
		require.NoError(t, err)
		require.Equal(t, q.Tokens, tokens)
		require.Equal(t, at, e.Checkpoints())
	}
	b.close()
}

// TestACutNeedsACheckpoint: a sequence that cannot be rewound to a cut is not cut there.
func TestACutNeedsACheckpoint(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
	require.True(t, b.saveAll(Sequence{Tokens: ids(1, 500), Peak: 500, Checkpoints: []int{300}, Cuts: []int{200, 490}}, 5))
	require.Equal(t, 1, b.Stats().Entries)
	require.True(t, b.saveAll(Sequence{Tokens: ids(2, 500), Peak: 500, Cuts: []int{50, 496}}, 5))
	require.Equal(t, 3, b.Stats().Entries, "cut without one, as far as the sequence can be rewound")
	b.close()
}

// TestWithoutItsParent: a file whose parent is damaged, missing or another one is a miss,
// while the Store runs and in the next, and both are removed.
func TestWithoutItsParent(t *testing.T) {
	harms := map[string]func(t *testing.T, path string){
		"missing": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"another": func(t *testing.T, path string) {
			b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
			require.True(t, b.saveAll(agents(1)[0], 5))
			other, err := os.ReadFile(b.path(filepath.Base(path)[:nameLength], final))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, other, 0o600))
			b.close()
		},
	}
	probe := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
	require.True(t, probe.saveAll(agents(1)[0], 5))
	e, _ := probe.Find("", agents(1)[0].Tokens[:1001])
	size := e.size
	probe.close()
	step := int64(401)
	if testenv.At(testenv.Full) {
		step = 37
	}
	for at := int64(0); at < size; at += step {
		harms[fmt.Sprint("byte ", at)] = func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[at] ^= 4
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}
	}
	for name, harm := range harms {
		dir := filepath.Join(t.TempDir(), "cache")
		b := open(t, dir, 1<<30)
		all := agents(2)
		for _, q := range all {
			require.True(t, b.saveAll(q, 5))
		}
		e, _ := b.Find("", all[1].Tokens)
		harm(t, b.path(e.parent.name, final))
		if len(name)%2 == 0 { // the next Store finds it
			b.close()
			b = open(t, dir, 1<<30)
		}
		if e, _ = b.Find("", all[1].Tokens); e != nil {
			l := b.Load(e)
			var err error
			for err == nil {
				_, _, err = l.Next()
			}
			if errors.Is(err, io.EOF) { // a model reads it, and finds the damage in the first file
				_, _, err = b.restored(e)
				require.Error(t, err, name)
				b.Refuse(e.parent, err)
			} else {
				require.Equal(t, e.parent, l.At(), name)
				b.Refuse(l.At(), err)
			}
			l.Close()
		}
		require.Zero(t, b.Stats().Entries, name)
		require.Zero(t, b.finds("", all[0].Tokens))
		require.True(t, b.saveAll(all[0], 5), name)
		require.Equal(t, len(all[0].Tokens)-1, b.finds("", all[0].Tokens))
		b.close()
		list, err := filepath.Glob(filepath.Join(dir, "*"+final))
		require.NoError(t, err)
		require.Len(t, list, 2, name)
	}
}

// holds checks what holds of a Store at any time: its bytes are those of its files and
// within the budget, and no entry lacks what it continues.
func (b *bed) holds(what string) {
	b.t.Helper()
	require.LessOrEqual(b.t, b.bytes, b.o.Budget, what)
	list, err := filepath.Glob(filepath.Join(b.dir, "*.*"))
	require.NoError(b.t, err)
	require.Len(b.t, list, len(b.entries), what)
	sum, children := int64(0), map[*Entry]int{}
	for _, path := range list {
		info, err := os.Stat(path)
		require.NoError(b.t, err)
		sum += info.Size()
	}
	require.Equal(b.t, b.bytes, sum, what)
	for _, e := range b.entries {
		if children[e.parent]++; e.From > 0 {
			require.Equal(b.t, e.parent, b.entries[e.Parent], what)
			require.Equal(b.t, e.From, e.parent.form.Length, what)
			require.LessOrEqual(b.t, e.files(), mostFiles, what)
		}
	}
	for _, e := range b.entries {
		require.Equal(b.t, children[e], e.children, what)
	}
}

// TestBudgetOfSharedFiles: over random trees of conversations with a small budget, uses,
// refusals and restarts, a Store holds no more than its budget and nothing that lacks a part,
// and what it finds is whole.
func TestBudgetOfSharedFiles(t *testing.T) {
	deep, evicted := 0, uint64(0)
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 17))
		dir := filepath.Join(t.TempDir(), "cache")
		budget := int64(120_000)
		b := open(t, dir, budget)
		b.Use("model", []int{8, 1 << 20}[seed%2], 0)
		var saved []Sequence
		for i := range 150 {
			var q Sequence
			if len(saved) > 0 {
				from := saved[max(0, len(saved)-1-r.IntN(8))]
				n := 1 + r.IntN(len(from.Tokens))
				q.Tokens = from.Tokens[:n:n]
				for _, at := range from.Cuts {
					if at <= n {
						q.Cuts = append(q.Cuts, at)
					}
				}
			}
			for range 1 + r.IntN(2) {
				q.Tokens = append(q.Tokens, ids(r.Uint64(), 150+r.IntN(300))...)
				q.Cuts = append(q.Cuts, len(q.Tokens)-r.IntN(20))
			}
			if len(q.Tokens) > 3000 {
				continue
			}
			q.Peak, q.Checkpoints = len(q.Tokens), slices.Clone(q.Cuts[max(0, len(q.Cuts)-r.IntN(8)):])
			q.Hit = r.IntN(3) == 0
			b.now = b.now.Add(time.Duration(r.IntN(1000)) * time.Minute)
			if b.saveAll(q, 5) {
				saved = append(saved, q)
			}
			b.holds(fmt.Sprint("seed ", seed, ", save ", i))
			prompt := saved[r.IntN(len(saved))].Tokens
			e, reuse := b.Find("", prompt)
			if e == nil {
				continue
			}
			deep = max(deep, e.files())
			tokens, at, err := b.restored(e)
			require.NoError(t, err)
			require.Equal(t, prompt[:reuse], tokens[:reuse])
			require.Equal(t, e.Checkpoints(), at)
			switch r.IntN(12) {
			case 0:
				b.Refuse(e, ErrMismatch)
				b.wg.Wait()
			case 1:
				evicted += b.Stats().Evicted
				b.close()
				b = open(t, dir, budget-int64(r.IntN(20_000)))
				b.Use("model", []int{8, 1 << 20}[seed%2], 0)
			default:
				b.Used(e, reuse)
				b.wg.Wait()
			}
			b.holds(fmt.Sprint("seed ", seed, ", after save ", i))
		}
		evicted += b.Stats().Evicted
		b.close()
	}
	require.Equal(t, mostFiles, deep)
	require.Greater(t, evicted, uint64(20))
}

// dying is a disk to which nothing happens any more after a number of operations.
type dying struct {
	OS
	left int
}

var errDead = errors.New("the machine has lost power")

func (d *dying) lives() error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return nil
}

func (d *dying) Create(path string) (File, error) {
	if err := d.lives(); err != nil {
		return nil, err
	}
	f, err := d.OS.Create(path)
	return dyingFile{f, d}, err
}

func (d *dying) Rename(from, to string) error {
	if err := d.lives(); err != nil {
		return err
	}
	return d.OS.Rename(from, to)
}

func (d *dying) Remove(path string) error {
	if err := d.lives(); err != nil {
		return err
	}
	return d.OS.Remove(path)
}

type dyingFile struct {
	File
	d *dying
}

func (f dyingFile) Write(b []byte) (int, error) {
	if err := f.d.lives(); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

// TestACrashAtAnyPoint: whenever a machine stops while conversations that share files are
// saved, evicted and refused, the next Store finds only what is whole.
func TestACrashAtAnyPoint(t *testing.T) {
	found := 0
	step := 3
	if testenv.At(testenv.Full) {
		step = 1
	}
	for left := 0; left < 60; left += step {
		dir := filepath.Join(t.TempDir(), "cache")
		disk := &dying{left: 1 << 30}
		b, err := openOn(t, dir, 22_000, disk)
		require.NoError(t, err)
		disk.left = left
		all := agents(6)
		for i, q := range all {
			b.saveAll(q, 5)
			b.now = b.now.Add(time.Hour)
			if e, _ := b.Find("", q.Tokens[:1001]); i == 3 && e != nil {
				b.Refuse(e, ErrMismatch)
				b.wg.Wait()
			}
		}
		b.close()
		b = open(t, dir, 22_000)
		b.holds(fmt.Sprint("after ", left, " operations"))
		for _, q := range all {
			e, reuse := b.Find("", q.Tokens)
			if e == nil {
				continue
			}
			tokens, at, err := b.restored(e)
			require.NoError(t, err)
			require.Equal(t, q.Tokens[:reuse], tokens[:reuse])
			require.Equal(t, e.Checkpoints(), at)
			found++
		}
		b.close()
	}
	require.Greater(t, found, 20)
}
