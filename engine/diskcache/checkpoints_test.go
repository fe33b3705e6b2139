package diskcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/snapshot"
)

// TestFindByCheckpoints: what cannot be rewound to the common prefix is reused up to its
// last checkpoint in it, in this Store and in the next.
func TestFindByCheckpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := open(t, dir, 1<<30)
	long := ids(1, 1000)
	q := Sequence{Scope: "x", Tokens: long, Peak: 1004, Checkpoints: []int{150, 600}}
	require.True(t, b.saveAll(q, 5))
	branch := func(n int) []int32 { return append(long[:n:n], ids(3, 50)...) }
	for range 2 {
		for n, reuse := range map[int]int{149: 0, 150: 150, 599: 150, 600: 600, 601: 600, 995: 600, 998: 996, 1000: 1000} {
			require.Equal(t, reuse, b.finds("x", branch(n)), "a prompt that shares %d tokens", n)
			require.Zero(t, b.finds("y", branch(n)))
		}
		require.Equal(t, 150, b.finds("x", long[:600]), "one token is left to run")
		require.Equal(t, 600, b.finds("x", long[:601]))
		require.Zero(t, b.finds("x", long[:150]))
		e, _ := b.Find("x", long)
		require.Equal(t, q.Checkpoints, e.Checkpoints())
		got, err := b.load(e)
		require.NoError(t, err)
		require.Equal(t, stateOf(t, q, 5), got)
		b.close()
		b = open(t, dir, 1<<30)
	}
	b.close()
}

// TestSharedSystemPrompt: of the snapshots that save a prompt equally much, the shortest
// file is restored.
func TestSharedSystemPrompt(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
	system := ids(1, 500)
	var least []int32
	for i, n := range []int{3000, 200, 900} {
		tokens := append(slices.Clone(system), ids(uint64(i+2), n)...)
		require.True(t, b.saveAll(Sequence{Tokens: tokens, Peak: len(tokens), Checkpoints: []int{500}}, n))
		if n == 200 {
			least = tokens
		}
	}
	e, reuse := b.Find("", append(slices.Clone(system), 1, 2, 3))
	require.Equal(t, 500, reuse)
	require.Equal(t, len(least), e.Length())
	b.close()
}

// TestFindAsTheTokensSay: over random trees of conversations, Find is what a comparison of
// all tokens finds: exactly, if that ends at a checkpoint or a whole snapshot, otherwise
// at most a stride less.
func TestFindAsTheTokensSay(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		rewind, replay := []int{0, 8, 64, 1 << 20, 8, 0}[seed], []int{0, 0, 0, 0, 40, 120}[seed]
		b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
		b.Use("model", rewind, replay)
		var saved []Sequence
		grow := func() []int32 {
			tokens := ids(9, 100)
			if len(saved) > 0 {
				from := saved[r.IntN(len(saved))].Tokens
				tokens = from[:1+r.IntN(len(from))]
			}
			return append(slices.Clone(tokens), ids(r.Uint64(), 130+r.IntN(300))...)
		}
		for range 20 {
			q := Sequence{Tokens: grow()}
			q.Peak = len(q.Tokens) + r.IntN(rewind%(1<<20)+1)
			for at := r.IntN(100); len(q.Checkpoints) < r.IntN(6) && at < len(q.Tokens); at += 1 + r.IntN(100) {
				q.Checkpoints = append(q.Checkpoints, at+1)
			}
			if b.saveAll(q, 5) {
				saved = append(saved, q)
			}
		}
		require.NotEmpty(t, saved)
		exact := 0
		for range 300 {
			prompt := grow()
			if r.IntN(4) == 0 { // a prompt that is saved as a whole, or begins one that is
				prompt = saved[r.IntN(len(saved))].Tokens
				prompt = prompt[:len(prompt)-r.IntN(3)]
			}
			best, stride := 0, 0
			for _, q := range saved {
				common := 0
				for common < min(len(q.Tokens), len(prompt)-1) && q.Tokens[common] == prompt[common] {
					common++
				}
				n := 0
				if q.Peak-common <= rewind {
					n = common
				}
				for _, at := range q.Checkpoints {
					if at <= common {
						n = max(n, at)
					}
				}
				if replay > 0 && common-replay > n {
					if common-replay > best {
						best, stride = common-replay, leastMarks
					}
					continue
				}
				switch {
				case n > best && (n == len(q.Tokens) || slices.Contains(q.Checkpoints, n)):
					best, stride = n, 0
				case n > best:
					best, stride = n, leastMarks
				}
			}
			got := b.finds("", prompt)
			require.LessOrEqual(t, got, best)
			require.GreaterOrEqual(t, got, best-stride)
			if stride == 0 && best > 0 {
				exact++
			}
		}
		require.Positive(t, exact)
		b.close()
	}
}

// TestCheckpointsThatCannotBeSaved are named in the log, and the sequence is not saved.
func TestCheckpointsThatCannotBeSaved(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "cache"), 1<<30)
	var many []int
	for n := range MaxCheckpoints {
		many = append(many, 1+n)
	}
	for text, at := range map[string][]int{
		"33 checkpoints; at most 32 are possible":  append(slices.Clone(many), 300),
		"checkpoints at [0] of 300 tokens":         {0},
		"checkpoints at [301] of 300 tokens":       {301},
		"checkpoints at [150 150] of 300 tokens":   {150, 150},
		"checkpoints at [150 20 30] of 300 tokens": {150, 20, 30},
	} {
		require.False(t, b.saveAll(Sequence{Tokens: ids(1, 300), Peak: 300, Checkpoints: at}, 5))
		require.Contains(t, b.log.String(), text)
	}
	// The header has room for the most, and for the marks of a rewind to any length.
	b.Use(strings.Repeat("m", 64), 1<<20, 0)
	require.True(t, b.saveAll(Sequence{Tokens: ids(1, 1<<20), Peak: 1 << 20, Checkpoints: many}, 5))
	e, _ := b.Find("", append(ids(1, 32), 1))
	require.NotNil(t, e)
	require.LessOrEqual(t, len(e.Marks), mostMarks)
	b.close()
}

// TestDamagedCheckpoints: whatever byte of a file has changed, it is a miss: the Store
// refuses the file or the model refuses the snapshot.
func TestDamagedCheckpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := open(t, dir, 1<<30)
	q := Sequence{Tokens: ids(1, 200), Peak: 200, Checkpoints: []int{70, 150}}
	require.True(t, b.saveAll(q, 40))
	e, _ := b.Find("", q.Tokens)
	path := b.path(e.name, final)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	restore := func() error {
		got, err := b.load(e)
		if err != nil {
			return err
		}
		in, err := snapshot.Read(bytes.NewReader(got), "m", "l", 1000)
		if err != nil {
			return err
		}
		for _, s := range sections(q, 40) {
			if err := in.Section(s); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, restore())
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	every := testenv.Rest(t, testenv.Full, "restoring with each byte changed")
	for i := range good {
		bad := []byte{good[i] ^ 1<<(i%8)}
		_, err := f.WriteAt(bad, int64(i))
		require.NoError(t, err)
		if i < headerBytes { // as the next server reads it
			_, err = decode(append(append(bytes.Clone(good[:i]), bad...), good[i+1:headerBytes]...))
			require.Error(t, err, "byte %d", i)
		}
		if i%17 == 0 || every && i >= headerBytes {
			err = restore()
			require.True(t, errIsDamaged(err), "byte %d: %v", i, err)
		}
		_, err = f.WriteAt(good[i:i+1], int64(i))
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	require.NoError(t, restore())
	b.close()
}

// errIsDamaged reports whether Refuse would remove the file.
func errIsDamaged(err error) bool {
	return errors.Is(err, snapshot.ErrDamaged) || errors.Is(err, snapshot.ErrForeign)
}

// rewritten returns a header with another description.
func rewritten(t *testing.T, head []byte, change func(text string) string) []byte {
	n := binary.LittleEndian.Uint32(head[len(magic):])
	text := change(string(head[len(magic)+4:][:n]))
	out := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))
	out = binary.LittleEndian.AppendUint32(append(out, text...), crc32.Checksum([]byte(text), castagnoli))
	require.LessOrEqual(t, len(out), headerBytes)
	return append(out, make([]byte, headerBytes-len(out))...)
}

// TestHeadersOfCheckpoints: files without checkpoints are read; headers that no build writes,
// or that differ from their snapshot, are refused.
func TestHeadersOfCheckpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	b := open(t, dir, 1<<30)
	tokens := ids(1, 300)
	require.True(t, b.save("", tokens, 5, Worth{}))
	e, _ := b.Find("", tokens)
	old, err := os.ReadFile(b.path(e.name, final))
	require.NoError(t, err)
	require.NotContains(t, string(old), "checkpoints")
	b.close()
	b = open(t, dir, 1<<30)
	e, n := b.Find("", tokens)
	require.Equal(t, 299, n)
	require.Empty(t, e.Checkpoints())

	q := Sequence{Tokens: tokens, Peak: 300, Checkpoints: []int{70, 150}}
	b.Use("another", 8, 0)
	require.True(t, b.saveAll(q, 5))
	e, _ = b.Find("", tokens)
	path := b.path(e.name, final)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	const field = `"checkpoints":[70,150]`
	for at, refused := range map[string]bool{"[70,150]": false, "[70,151]": false, "[150,70]": true, "[70,70]": true, "[0,70]": true, "[70,301]": true, "[70]": true, "[70,150,160]": true, "null": true} {
		head := rewritten(t, file, func(text string) string {
			require.Contains(t, text, field)
			return strings.Replace(text, field, `"checkpoints":`+at, 1)
		})
		_, err := decode(head)
		require.Equal(t, refused, err != nil, "%s: %v", at, err)
		if at == "[70,151]" {
			require.NoError(t, os.WriteFile(path, append(head, file[headerBytes:]...), 0o600))
			_, err = b.load(e)
			require.ErrorContains(t, err, "its header has changed")
			b.close()
			b = open(t, dir, 1<<30)
			b.Use("another", 8, 0)
			e, _ = b.Find("", tokens)
			require.Equal(t, []int{70, 151}, e.Checkpoints())
			_, err = b.load(e)
			require.ErrorIs(t, err, snapshot.ErrDamaged)
			require.ErrorContains(t, err, "checkpoints at [70 150], the header 0 to 300 and [70 151]")
		}
	}
	b.close()
}
