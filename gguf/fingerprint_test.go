package gguf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// read opens a file from memory.
func read(t testing.TB, r *raw) *File {
	t.Helper()
	f, err := Read("test", r.bytes())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// TestFingerprintForm computes a fingerprint by hand, from the description.
func TestFingerprintForm(t *testing.T) {
	r := newRaw().kv("b", kindString, rawString("größe"))
	r.kv("a", kindInt16, le(int16(-2)))
	r.array("c", kindFloat64, 2, le([]float64{0.1, -2}))
	r.array("d", kindString, 2, append(rawString("x"), rawString("")...))
	r.kv("e", kindBool, []byte{1})
	long := string(splitmix(3, 3*digestBuffer+1)) // as long as a chat template
	r.kv("f", kindString, rawString(long))
	r.tensor("z", F32, 0, 24, 2, 3).tensor("y", Q8_0, 32, 34, 32)

	want := slices.Concat([]byte("ringmaster model fingerprint 1\n"), le(uint64(6)),
		rawString("a"), le(uint32(kindInt16)), le(int16(-2)),
		rawString("b"), le(uint32(kindString)), rawString("größe"),
		rawString("c"), le(uint32(kindArray)), le(uint32(kindFloat64)), le(uint64(2)), le([]float64{0.1, -2}),
		rawString("d"), le(uint32(kindArray)), le(uint32(kindString)), le(uint64(2)), rawString("x"), rawString(""),
		rawString("e"), le(uint32(kindBool)), []byte{1},
		rawString("f"), le(uint32(kindString)), rawString(long),
		le(uint64(2)),
		rawString("y"), le(uint32(Q8_0)), le(uint32(1)), le(uint64(32)), le(uint64(34)),
		rawString("z"), le(uint32(F32)), le(uint32(2)), le(uint64(2)), le(uint64(3)), le(uint64(24)))
	sum := sha256.Sum256(want)
	require.Equal(t, hex.EncodeToString(sum[:]), Fingerprint(read(t, r)))
}

// TestFingerprintTellsEveryChange changes each byte of the metadata and of the
// tensor table in turn: whatever still opens has a different fingerprint.
func TestFingerprintTellsEveryChange(t *testing.T) {
	r := everyKind().tensor("blk.0.w", F32, 0, 96, 8, 3).tensor("blk.1.w", Q8_0, 96, 34, 32)
	data := r.bytes()
	f, err := Read("test", data)
	require.NoError(t, err)
	defer f.Close()
	seen := map[string]int{Fingerprint(f): -1}
	offsets := map[int]bool{} // the bytes of the tensors' offsets, which do not count
	for _, name := range []string{"blk.0.w", "blk.1.w"} {
		at := bytes.Index(data, []byte(name)) + len(name) + 4 // after the number of dimensions
		at += 8*int(binary.LittleEndian.Uint32(data[at-4:])) + 4
		for i := range 8 {
			offsets[at+i] = true
		}
	}
	opened := 0
	for i := range 24 + len(r.kvs) + len(r.infos) {
		if offsets[i] {
			continue
		}
		changed := bytes.Clone(data)
		changed[i] ^= 2
		if data[i] <= 1 { // a bool remains a bool
			changed[i] = data[i] ^ 1
		}
		f, err := Read("test", changed)
		if err != nil {
			continue
		}
		opened++
		sum := Fingerprint(f)
		require.NoError(t, f.Close())
		before, again := seen[sum]
		require.False(t, again, "bytes %d and %d changed: same fingerprint", before, i)
		seen[sum] = i
	}
	require.Greater(t, opened, len(r.kvs)/3)
}

// TestFingerprintOfKinds: the same number in another kind, or as an array of
// one, is a different value.
func TestFingerprintOfKinds(t *testing.T) {
	files := []*raw{
		newRaw().kv("k", kindUint32, le(uint32(1))), newRaw().kv("k", kindInt32, le(int32(1))),
		newRaw().kv("k", kindUint8, le(uint8(1))), newRaw().kv("k", kindBool, []byte{1}),
		newRaw().array("k", kindUint32, 1, le(uint32(1))), newRaw().array("k", kindUint32, 0, nil),
		newRaw().array("k", kindInt32, 0, nil), newRaw().array("k", kindString, 0, nil), newRaw(),
		newRaw().kv("l", kindUint32, le(uint32(1))),
		newRaw().array("k", kindString, 2, append(rawString("ab"), rawString("c")...)),
		newRaw().array("k", kindString, 2, append(rawString("a"), rawString("bc")...)),
		// The shape counts, not only the number of elements; so does the type.
		newRaw().tensor("w", F32, 0, 24, 2, 3), newRaw().tensor("w", F32, 0, 24, 3, 2), newRaw().tensor("w", F32, 0, 24, 6),
		newRaw().tensor("w", F32, 0, 24, 2, 3, 1), newRaw().tensor("w", I32, 0, 24, 2, 3), newRaw().tensor("v", F32, 0, 24, 2, 3),
	}
	seen := map[string]int{}
	for i, r := range files {
		sum := Fingerprint(read(t, r))
		require.Len(t, sum, 64)
		require.NotContains(t, seen, sum, "file %d", i)
		seen[sum] = i
	}
}

// TestFingerprintIgnoresLayout: neither the order of keys and tensors, nor
// their offsets, nor opening the file again makes a difference.
func TestFingerprintIgnoresLayout(t *testing.T) {
	a := newRaw().kv("a", kindUint8, []byte{1}).kv("b", kindUint8, []byte{2}).tensor("v", F32, 0, 4, 1).tensor("w", F32, 32, 4, 1)
	b := newRaw().kv("b", kindUint8, []byte{2}).kv("a", kindUint8, []byte{1}).tensor("w", F32, 0, 4, 1).tensor("v", F32, 96, 4, 1)
	b.version = 2
	require.Equal(t, Fingerprint(read(t, a)), Fingerprint(read(t, b)))
	path := write(t, "m.gguf", a.bytes())
	require.Equal(t, Fingerprint(read(t, a)), Fingerprint(open(t, path)))
	require.Equal(t, Fingerprint(open(t, path)), Fingerprint(open(t, path)))
}

// TestSplitAndJoined: a split model equals the same model in one file.
func TestSplitAndJoined(t *testing.T) {
	var sums, contents []string
	for _, parts := range []int{1, 2, 3} {
		w := NewWriter()
		require.NoError(t, w.Put("general.architecture", "test"))
		require.NoError(t, w.SetParts(parts))
		for i := range 11 { // by name, blk.10 precedes blk.2
			fill := func(out io.Writer) error {
				_, err := out.Write(splitmix(uint64(i), 64*4))
				return err
			}
			require.NoError(t, w.Add(fmt.Sprintf("blk.%d.w", i), F32, []int64{64}, fill))
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, w.WriteFile(path))
		f := open(t, w.Paths(path)[0])
		content, err := ContentHash(t.Context(), f, nil)
		require.NoError(t, err)
		sums, contents = append(sums, Fingerprint(f)), append(contents, content)
	}
	require.Equal(t, sums[0], sums[1])
	require.Equal(t, sums[0], sums[2])
	require.Equal(t, contents[0], contents[1])
	require.Equal(t, contents[0], contents[2])
	// A joined file as gguf-split writes it.
	r := newRaw().kv("k", kindUint8, []byte{1})
	joined := newRaw().kv("k", kindUint8, []byte{1}).kv(keySplitCount, kindUint16, le(uint16(0))).kv(keySplitTensors, kindInt32, le(int32(0)))
	require.Equal(t, Fingerprint(read(t, r)), Fingerprint(read(t, joined)))
}

func TestContentHash(t *testing.T) {
	const big = contentPiece/4 + 8 // elements: more than a piece
	r := newRaw().tensor("w", F32, 0, 4*big, big).tensor("v", F32, 4*big, 12, 3)
	data := r.bytes()
	start := len(r.header())
	hash := func(data []byte) string {
		f, err := Read("test", data)
		require.NoError(t, err)
		defer f.Close()
		sum, err := ContentHash(t.Context(), f, nil)
		require.NoError(t, err)
		return sum
	}
	v, w := data[start+4*big:start+4*big+12], data[start:start+4*big]
	want := sha256.Sum256(slices.Concat(v, w))
	require.Equal(t, hex.EncodeToString(want[:]), hash(data))
	for _, i := range []int{start, start + contentPiece, start + 4*big - 1, start + 4*big, len(data) - 1} {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		require.NotEqual(t, hash(data), hash(changed), "byte %d", i)
	}

	type step struct{ done, total int64 }
	var steps []step
	f := read(t, r)
	_, err := ContentHash(t.Context(), f, func(done, total int64) { steps = append(steps, step{done, total}) })
	require.NoError(t, err)
	const total = 4*big + 12
	require.Equal(t, []step{{12, total}, {12 + contentPiece, total}, {total, total}}, steps)

	why := errors.New("the program ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = ContentHash(ctx, f, func(int64, int64) { cancel(why) })
	require.ErrorIs(t, err, why)
	require.EqualError(t, err, fmt.Sprintf("test: content hash: stopped after 12 of %d bytes: the program ends", total))
}

// TestWeightSample: models of one shape with different weights have different
// samples, a split model has the sample of the joined one, and only the first
// bytes of a tensor count.
func TestWeightSample(t *testing.T) {
	const size = 2 * sampledBytes
	sample := func(tensors, parts int, change func(tensor int, data []byte)) string {
		w := NewWriter()
		require.NoError(t, w.Put("general.architecture", "test"))
		require.NoError(t, w.SetParts(parts))
		for i := range tensors {
			require.NoError(t, w.Add(fmt.Sprintf("blk.%04d.w", i), F32, []int64{size / 4}, func(out io.Writer) error {
				data := splitmix(uint64(i), size)
				change(i, data)
				_, err := out.Write(data)
				return err
			}))
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, w.WriteFile(path))
		return WeightSample(open(t, w.Paths(path)[0]))
	}
	same := func(int, []byte) {}
	flip := func(tensor, at int) func(int, []byte) {
		return func(i int, data []byte) {
			if i == tensor {
				data[at] ^= 1
			}
		}
	}
	want := sample(7, 1, same)
	require.Equal(t, want, sample(7, 1, same))
	require.Equal(t, want, sample(7, 3, same))
	require.NotEqual(t, want, sample(7, 1, flip(0, 0)))
	require.NotEqual(t, want, sample(7, 1, flip(6, sampledBytes-1)))
	require.Equal(t, want, sample(7, 1, flip(6, sampledBytes)))
	// With this many tensors every other one is sampled.
	many := sample(sampledTensors+1, 1, same)
	require.NotEqual(t, many, sample(sampledTensors+1, 1, flip(sampledTensors, 0)))
	require.Equal(t, many, sample(sampledTensors+1, 1, flip(1, 0)))
	require.Equal(t, WeightSample(read(t, newRaw())), WeightSample(read(t, newRaw())), "a file without tensors")
}

func TestHashesOfClosedFile(t *testing.T) {
	f, err := Read("test", newRaw().tensor("w", F32, 0, 4, 1).bytes())
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Empty(t, Fingerprint(f))
	require.Empty(t, WeightSample(f))
	_, err = ContentHash(t.Context(), f, nil)
	require.ErrorIs(t, err, os.ErrClosed)
}

// BenchmarkFingerprint uses a header the size of a DeepSeek V4 model's.
func BenchmarkFingerprint(b *testing.B) {
	f := open(b, write(b, "vocab.gguf", vocabulary()))
	b.ReportAllocs()
	for b.Loop() {
		Fingerprint(f)
	}
}

func BenchmarkContentHash(b *testing.B) {
	const n = 64 << 20
	f := read(b, newRaw().tensor("w", F32, 0, n, n/4))
	b.SetBytes(n)
	for b.Loop() {
		_, err := ContentHash(b.Context(), f, nil)
		require.NoError(b, err)
	}
}
