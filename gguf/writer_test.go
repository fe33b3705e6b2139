package gguf_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ollama/ollama/fs/ggml"
	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
)

// pattern is n bytes that differ from tensor to tensor and are never zero.
func pattern(salt byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = salt + byte(i%97) | 1
	}
	return b
}

func fillWith(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		for left := b; len(left) > 0; { // in pieces
			n := min(len(left), 1000)
			if _, err := w.Write(left[:n]); err != nil {
				return err
			}
			left = left[n:]
		}
		return nil
	}
}

// sample is a writer with every kind of value and tensors of odd sizes.
func sample(t *testing.T) *gguf.Writer {
	t.Helper()
	w := gguf.NewWriter()
	for _, kv := range []struct {
		key string
		v   any
	}{
		{"general.architecture", "deepseek4"}, {"u32", uint32(7)}, {"i32", int32(-7)}, {"u64", uint64(1) << 40},
		{"f32", float32(1.5)}, {"yes", true}, {"no", false}, {"tokenizer.strings", []string{"a", "", "ü"}},
		{"tokenizer.i32s", []int32{-1, 2}}, {"tokenizer.u32s", []uint32{3}},
		{"tokenizer.f32s", []float32{0.25, -8}}, {"none", []string{}}, {"bools", []bool{true, false, true}},
	} {
		require.NoError(t, w.Put(kv.key, kv.v))
	}
	require.NoError(t, w.Add("a", gguf.F32, []int64{3}, fillWith(pattern(1, 12))))
	require.NoError(t, w.Add("hole", gguf.Q8_0, []int64{64, 1000, 3}, nil))
	require.NoError(t, w.Add("b", gguf.Q4_K, []int64{512, 5}, fillWith(pattern(2, 2*144*5))))
	require.NoError(t, w.Add("c", gguf.F16, []int64{7, 3}, fillWith(pattern(3, 42))))
	return w
}

// decode reads a file with ollama's decoder: an oracle that shares no code.
func decode(t *testing.T, path string) *ggml.GGML {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	g, err := ggml.Decode(f, -1)
	require.NoError(t, err)
	return g
}

func tensorData(t *testing.T, path, name string) []byte {
	t.Helper()
	g := decode(t, path)
	file := testenv.ReadFile(t, path)
	for _, x := range g.Tensors().Items() {
		if x.Name == name {
			at := g.Tensors().Offset + x.Offset
			require.Zero(t, at%gguf.WriterAlignment, "alignment of %s", name)
			return file[at : at+x.Size()]
		}
	}
	t.Fatalf("%s holds no tensor %s", path, name)
	return nil
}

func TestWriterIsReadByOllama(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, sample(t).WriteFile(path))
	g := decode(t, path)
	kv := g.KV()
	require.Equal(t, "deepseek4", kv.Architecture())
	require.EqualValues(t, 7, kv["u32"])
	require.EqualValues(t, -7, kv["i32"])
	require.EqualValues(t, uint64(1)<<40, kv["u64"])
	require.EqualValues(t, float32(1.5), kv["f32"])
	require.Equal(t, true, kv["yes"])
	require.Equal(t, false, kv["no"])
	require.Equal(t, []string{"a", "", "ü"}, kv.Strings("tokenizer.strings"))
	require.Equal(t, []int32{-1, 2}, kv.Ints("tokenizer.i32s"))
	require.Equal(t, []uint32{3}, kv.Uints("tokenizer.u32s"))
	require.Equal(t, []float32{0.25, -8}, kv.Floats("tokenizer.f32s"))
	ours := gguftest.OpenFile(t, path)
	bools, ok := ours.Bools("bools")
	require.True(t, ok)
	require.Equal(t, []bool{true, false, true}, bools)
	require.Len(t, g.Tensors().Items(), 4)
	require.Equal(t, pattern(1, 12), tensorData(t, path, "a"))
	require.Equal(t, make([]byte, 34*2*1000*3), tensorData(t, path, "hole"))
	require.Equal(t, pattern(2, 2*144*5), tensorData(t, path, "b"))
	require.Equal(t, pattern(3, 42), tensorData(t, path, "c"))
	require.EqualValues(t, gguf.Q4_K, g.Tensors().Items()[2].Kind)
	require.Equal(t, []uint64{512, 5}, g.Tensors().Items()[2].Shape)
}

func TestWriterSameBytesForAnyWorkers(t *testing.T) {
	dir := t.TempDir()
	var first []byte
	for _, workers := range []int{0, 1, 2, 9} {
		path := filepath.Join(dir, "m.gguf")
		w := sample(t)
		w.SetWorkers(workers)
		require.NoError(t, w.WriteFile(path))
		got := testenv.ReadFile(t, path)
		if first == nil {
			first = got
		}
		require.True(t, bytes.Equal(first, got), "%d workers", workers)
	}
}

func TestWriterHolesTakeNoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	w := gguf.NewWriter()
	require.NoError(t, w.Add("big", gguf.F32, []int64{1 << 20, 1 << 16}, nil)) // 256 GiB
	require.EqualValues(t, 1<<38, w.DataBytes())
	require.NoError(t, w.WriteFile(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Greater(t, info.Size(), int64(1)<<38)
	require.Less(t, allocated(t, info), int64(1)<<20)
}

func TestWriterSplit(t *testing.T) {
	dir := t.TempDir()
	w := sample(t)
	require.NoError(t, w.SetParts(3))
	path := filepath.Join(dir, "m.gguf")
	paths := w.Paths(path)
	require.Equal(t, filepath.Join(dir, "m-00002-of-00003.gguf"), paths[1])
	require.NoError(t, w.WriteFile(path))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	want := [][]string{{"a", "hole"}, {"b"}, {"c"}} // the hole has most of the bytes
	for i, p := range paths {
		g := decode(t, p)
		var names []string
		for _, x := range g.Tensors().Items() {
			names = append(names, x.Name)
		}
		require.Equal(t, want[i], names)
		require.Equal(t, uint16(i), g.KV()["split.no"])
		require.Equal(t, uint16(3), g.KV()["split.count"])
		require.Equal(t, int32(4), g.KV()["split.tensors.count"])
		_, has := g.KV()["u32"]
		require.Equal(t, i == 0, has)
	}
	require.Equal(t, pattern(2, 2*144*5), tensorData(t, paths[1], "b"))
	require.NoError(t, w.SetParts(5))
	require.ErrorContains(t, w.WriteFile(path), "4 tensors do not fill 5 parts")
	require.Error(t, w.SetParts(0))
}

func TestWriterRefusesBadInput(t *testing.T) {
	nop := func(io.Writer) error { return nil }
	for _, c := range []struct {
		what string
		do   func(*gguf.Writer) error
	}{
		{"int", func(w *gguf.Writer) error { return w.Put("k", 3) }},
		{"value of type []int64", func(w *gguf.Writer) error { return w.Put("k", []int64{1}) }},
		{"must not be empty", func(w *gguf.Writer) error { return w.Put("", true) }},
		{"twice", func(w *gguf.Writer) error { w.Put("k", true); return w.Put("k", true) }},
		{"SetParts", func(w *gguf.Writer) error { return w.Put("split.count", uint32(2)) }},
		{"general.alignment", func(w *gguf.Writer) error { return w.Put("general.alignment", uint32(64)) }},
		{"twice", func(w *gguf.Writer) error {
			w.Add("t", gguf.F32, []int64{1}, nop)
			return w.Add("t", gguf.F32, []int64{1}, nop)
		}},
		{"want 1 to 63", func(w *gguf.Writer) error { return w.Add(strings.Repeat("x", 64), gguf.F32, []int64{1}, nop) }},
		{"type Q4_2", func(w *gguf.Writer) error { return w.Add("t", gguf.Type(4), []int64{1}, nop) }},
		{"0 dimensions", func(w *gguf.Writer) error { return w.Add("t", gguf.F32, nil, nop) }},
		{"5 dimensions", func(w *gguf.Writer) error { return w.Add("t", gguf.F32, []int64{1, 1, 1, 1, 1}, nop) }},
		{"not a multiple of Q4_K's block of 256", func(w *gguf.Writer) error { return w.Add("t", gguf.Q4_K, []int64{128}, nop) }},
		{"negative", func(w *gguf.Writer) error { return w.Add("t", gguf.F32, []int64{-1, -1}, nop) }},
		{"too large", func(w *gguf.Writer) error { return w.Add("t", gguf.F32, []int64{1 << 40, 1 << 40}, nop) }},
	} {
		w := gguf.NewWriter()
		err := c.do(w)
		require.ErrorContains(t, err, c.what)
		require.Equal(t, err, w.WriteFile(filepath.Join(t.TempDir(), "m.gguf")), "WriteFile returns it too")
	}
	require.NoError(t, gguf.NewWriter().Put("general.alignment", uint32(32)))
}

func TestWriterLeavesNothingAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	for what, fill := range map[string]func(io.Writer) error{
		"broken":                        func(io.Writer) error { return broken },
		"fill wrote 4 bytes of 8":       fillWith(make([]byte, 4)),
		"fill writes more than 8 bytes": fillWith(make([]byte, 9)),
	} {
		for _, parts := range []int{1, 2} {
			dir := t.TempDir()
			w := sample(t)
			require.NoError(t, w.Add("bad", gguf.F32, []int64{2}, fill))
			require.NoError(t, w.SetParts(parts))
			w.SetWorkers(2)
			err := w.WriteFile(filepath.Join(dir, "m.gguf"))
			require.ErrorContains(t, err, what)
			require.ErrorContains(t, err, `tensor "bad"`)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		}
	}
	err := sample(t).WriteFile(filepath.Join(t.TempDir(), "no such directory", "m.gguf"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestWriterKeepsDevices: root may rename over a device, and /dev/null would be a file.
func TestWriterKeepsDevices(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"m.gguf":                func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"m-00002-of-00002.gguf": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"m-00001-of-00002.gguf": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		at := filepath.Join(dir, name)
		require.NoError(t, create(at))
		before, err := os.Lstat(at)
		require.NoError(t, err)
		w := sample(t)
		if strings.Contains(name, "of") {
			require.NoError(t, w.SetParts(2))
		}
		require.ErrorContains(t, w.WriteFile(filepath.Join(dir, "m.gguf")), at+": it exists and is not a regular file")
		after, err := os.Lstat(at)
		require.NoError(t, err)
		require.Equal(t, before.Mode(), after.Mode())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
}
