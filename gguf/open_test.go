package gguf

import (
	"bytes"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// allocatedBytes is how much f allocates, whether freed or not.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// write creates a file in a new directory.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), name), data)
	return path
}

// open opens path and closes it at the end of the test.
func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// TestTensors has tensors out of order, of several types, with a gap between
// them, and a non-default alignment.
func TestTensors(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		r := newRaw()
		r.version, r.alignment = version, 64
		r.kv(keyAlignment, kindUint32, le(uint32(64)))
		r.tensor("late", Q4_K, 1024, 6*144, 512, 3).tensor("early", F32, 0, 480, 2, 3, 4, 5).tensor("mid", I32, 512, 4, 1)
		data := r.bytes()
		start := len(r.header())
		path := write(t, "model.gguf", data)
		f := open(t, path)

		require.Equal(t, path, f.Path())
		require.Equal(t, int64(len(data)), f.Size())
		require.Equal(t, [][]byte{data}, f.Mappings())
		names := []string{}
		for _, x := range f.Tensors() {
			names = append(names, x.Name)
		}
		require.Equal(t, []string{"late", "early", "mid"}, names)

		late, ok := f.Tensor("late")
		require.True(t, ok)
		require.Equal(t, Q4_K, late.Type)
		require.Equal(t, []int64{512, 3}, late.Shape)
		require.Equal(t, data[start+1024:start+1024+6*144], late.Data)
		require.Equal(t, len(late.Data), cap(late.Data))
		early, _ := f.Tensor("early")
		require.Equal(t, []int64{2, 3, 4, 5}, early.Shape)
		require.Equal(t, data[start:start+480], early.Data)
		require.Same(t, &f.Mappings()[0][start], &early.Data[0], "data is used in place")
		_, ok = f.Tensor("none")
		require.False(t, ok)
	}
}

// TestEveryTypeHasItsSize opens a file with one tensor of each type.
func TestEveryTypeHasItsSize(t *testing.T) {
	r, offset := newRaw(), 0
	sizes := map[string]int{ // 512 elements: twice the spec's (256 elements, bytes), 16 times (32, bytes), 512 times
		"F32": 2048, "F16": 1024, "BF16": 1024, "I8": 512, "I32": 2048, "Q4_0": 288, "Q4_1": 320, "Q5_0": 352, "Q5_1": 384, "Q8_0": 544,
		"MXFP4": 272, "NVFP4": 288, "IQ4_NL": 288, "Q2_K": 168, "Q3_K": 220, "Q4_K": 288, "Q5_K": 352, "Q6_K": 420, "IQ1_S": 100, "IQ1_M": 112,
		"IQ2_XXS": 132, "IQ2_XS": 148, "IQ2_S": 164, "IQ3_XXS": 196, "IQ3_S": 220, "IQ4_XS": 272,
	}
	for _, typ := range slices.Sorted(maps.Keys(layouts)) {
		size, ok := sizes[typ.String()]
		require.True(t, ok, typ)
		r.tensor(typ.String(), typ, uint64(offset), size, 512)
		offset += (size + 31) / 32 * 32
	}
	f, err := Read("types", r.bytes())
	require.NoError(t, err)
	require.Len(t, f.Tensors(), len(sizes))
	for _, x := range f.Tensors() {
		require.Len(t, x.Data, sizes[x.Name], x.Name)
		require.Equal(t, x.Type.RowBytes(512), len(x.Data))
		require.Equal(t, x.Name, x.Type.String())
	}
}

func TestMetadata(t *testing.T) {
	f, err := Read("kinds", everyKind().bytes())
	require.NoError(t, err)
	require.Equal(t, "test", f.Architecture())
	require.Len(t, f.Keys(), 1+3*12)
	require.IsIncreasing(t, f.Keys())
	require.True(t, f.Has("k.int8"))
	require.False(t, f.Has("k.none"))
	require.False(t, f.Has(keyParameterCount), "the decoder's own count is not the file's")

	type number struct {
		i  int64
		x  float64
		is bool // an integer
	}
	for name, want := range map[string]number{
		"uint8": {200, 200, true}, "int8": {-100, -100, true}, "uint16": {60000, 60000, true}, "int16": {-30000, -30000, true},
		"uint32": {4e9, 4e9, true}, "int32": {-2e9, -2e9, true}, "uint64": {1 << 60, 1 << 60, true}, "int64": {-1 << 60, -1 << 60, true},
		"float32": {0, 1.5, false}, "float64": {0, 0.1, false},
	} {
		key := "k." + name
		u, uok := f.Uint(key)
		i, iok := f.Int(key)
		x, xok := f.Float(key)
		require.True(t, xok, key)
		require.Equal(t, want.x, x, key)
		require.Equal(t, want.is, iok, key)
		require.Equal(t, want.is && want.i >= 0, uok, key)
		if iok {
			require.Equal(t, want.i, i, key)
		}
		if uok {
			require.Equal(t, uint64(want.i), u, key)
		}

		last := map[bool]number{true: {1, 1, true}, false: {0, -2, false}}[want.is]
		xs, ok := f.Floats(key + "s")
		require.True(t, ok, key)
		require.Equal(t, []float64{want.x, last.x}, xs, key)
		xs, _ = f.Floats(key)
		require.Equal(t, []float64{want.x}, xs, key)
		is, ok := f.Ints(key + "s")
		require.Equal(t, want.is, ok, key)
		if ok {
			require.Equal(t, []int64{want.i, 1}, is, key)
		}
		none, ok := f.Ints("k.no_" + name + "s")
		require.Equal(t, want.is, ok, key)
		require.Empty(t, none)
	}
	s, ok := f.String("k.string")
	require.True(t, ok)
	require.Equal(t, "größe", s)
	strings, ok := f.Strings("k.strings")
	require.True(t, ok)
	require.Equal(t, []string{"a", "", "\xff\x00"}, strings)
	strings, ok = f.Strings("k.no_strings")
	require.True(t, ok)
	require.Empty(t, strings)
	bools, ok := f.Bools("k.bools")
	require.True(t, ok)
	require.Len(t, bools, 2)
	b, ok := f.Bool("k.bool")
	require.True(t, ok)
	require.True(t, b)
}

// TestAbsentAndWrongKind: a missing key is distinguished from one of the wrong
// kind, and both errors name the file, the key and the expectation.
func TestAbsentAndWrongKind(t *testing.T) {
	r := everyKind().kv("k.max", kindUint64, le(uint64(math.MaxUint64))).array("k.maxs", kindUint64, 2, le([]uint64{1, math.MaxUint64}))
	f, err := Read("m.gguf", r.bytes())
	require.NoError(t, err)
	require2 := func(_ any, err error) error { return err }
	for _, c := range []struct {
		err  error
		kind error
		want string
	}{
		{require2(f.RequireString("x")), ErrMissing, `m.gguf: key "x" is missing; expected a string`},
		{require2(f.RequireUint("x")), ErrMissing, `m.gguf: key "x" is missing; expected an integer of 0 or more`},
		{require2(f.RequireInts("x")), ErrMissing, `m.gguf: key "x" is missing; expected an array of integers`},
		{require2(f.RequireString("k.int8")), ErrKind, `m.gguf: key "k.int8" has the wrong type: it is int8 -100; expected a string`},
		{require2(f.RequireBool("k.uint8")), ErrKind, `m.gguf: key "k.uint8" has the wrong type: it is uint8 200; expected a bool`},
		{require2(f.RequireUint("k.int8")), ErrKind, `m.gguf: key "k.int8" has the wrong type: it is int8 -100; expected an integer of 0 or more`},
		{require2(f.RequireInt("k.max")), ErrKind, `m.gguf: key "k.max" has the wrong type: it is uint64 18446744073709551615; expected an integer`},
		{require2(f.RequireInt("k.float32")), ErrKind, `m.gguf: key "k.float32" has the wrong type: it is float32 1.5; expected an integer`},
		{require2(f.RequireFloat("k.bool")), ErrKind, `m.gguf: key "k.bool" has the wrong type: it is bool true; expected a number`},
		{require2(f.RequireFloat("k.string")), ErrKind, `m.gguf: key "k.string" has the wrong type: it is string of 7 bytes; expected a number`},
		{require2(f.RequireUint("k.uint8s")), ErrKind, `m.gguf: key "k.uint8s" has the wrong type: it is array of 2 uint8; expected an integer of 0 or more`},
		{require2(f.RequireStrings("k.string")), ErrKind, `m.gguf: key "k.string" has the wrong type: it is string of 7 bytes; expected an array of strings`},
		{require2(f.RequireStrings("k.no_int8s")), ErrKind, `m.gguf: key "k.no_int8s" has the wrong type: it is array of 0 int8; expected an array of strings`},
		{require2(f.RequireInts("k.strings")), ErrKind, `m.gguf: key "k.strings" has the wrong type: it is array of 3 string; expected an array of integers`},
		{require2(f.RequireInts("k.float64s")), ErrKind, `m.gguf: key "k.float64s" has the wrong type: it is array of 2 float64; expected an array of integers`},
		{require2(f.RequireInts("k.maxs")), ErrKind, `m.gguf: key "k.maxs" has the wrong type: it is array of 2 uint64; expected an array of integers`},
		{require2(f.RequireBools("x")), ErrMissing, `m.gguf: key "x" is missing; expected an array of bools`},
		{require2(f.RequireBools("k.bool")), ErrKind, `m.gguf: key "k.bool" has the wrong type: it is bool true; expected an array of bools`},
		{require2(f.RequireBools("k.uint8s")), ErrKind, `m.gguf: key "k.uint8s" has the wrong type: it is array of 2 uint8; expected an array of bools`},
		{require2(f.RequireFloats("k.bools")), ErrKind, `m.gguf: key "k.bools" has the wrong type: it is array of 2 bool; expected an array of numbers`},
	} {
		require.ErrorIs(t, c.err, c.kind)
		require.EqualError(t, c.err, c.want)
	}
	u, ok := f.Uint("k.max")
	require.True(t, ok)
	require.Equal(t, uint64(math.MaxUint64), u)
	require.Empty(t, (&File{}).Architecture())
}

// TestParameterCountIsTheFiles: the decoder replaces this key by its own sum.
func TestParameterCountIsTheFiles(t *testing.T) {
	f, err := Read("p", newRaw().kv(keyParameterCount, kindInt32, le(int32(77))).tensor("w", F32, 0, 4, 1).bytes())
	require.NoError(t, err)
	n, ok := f.Uint(keyParameterCount)
	require.True(t, ok)
	require.Equal(t, uint64(77), n)
	require.Equal(t, []string{keyParameterCount}, f.Keys())
}

// TestReadCopies: the tensors of Read are in separate, page-aligned memory,
// unaffected by what becomes of the bytes it was given.
func TestReadCopies(t *testing.T) {
	data := newRaw().tensor("w", F32, 0, 64, 16).bytes()
	want := bytes.Clone(data[len(data)-64:])
	f, err := Read("copied", data)
	require.NoError(t, err)
	clear(data)
	w, ok := f.Tensor("w")
	require.True(t, ok)
	require.Zero(t, uintptr(unsafe.Pointer(&f.Mappings()[0][0]))%4096)
	require.Equal(t, want, w.Data)
	require.NoError(t, f.Close())
	require.Empty(t, f.Mappings())
}

func TestClose(t *testing.T) {
	f, err := Open(write(t, "m.gguf", everyKind().tensor("w", F32, 0, 4, 1).bytes()))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.Empty(t, f.Tensors())
	require.Empty(t, f.Mappings())
	require.Zero(t, f.Size())
	_, ok := f.Tensor("w")
	require.False(t, ok)
	s, _ := f.Strings("k.strings")
	require.Equal(t, []string{"a", "", "\xff\x00"}, s, "metadata is no part of the mapping")
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "none.gguf"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, "none.gguf"))
	_, err = Open(dir)
	require.ErrorContains(t, err, "is a directory; expected a GGUF file, such as one in it")
	require.ErrorContains(t, err, dir)
	_, err = Open(os.DevNull)
	require.ErrorContains(t, err, "expected a regular file")
	_, err = Open(write(t, "empty.gguf", nil))
	require.ErrorContains(t, err, "empty.gguf: is empty; expected a GGUF file")
}

// TestOpenSaysWhatLiesThere: what a failed download leaves at the path of a model is named.
func TestOpenSaysWhatLiesThere(t *testing.T) {
	for text, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1\n": "a Git LFS pointer",
		"\n<!DOCTYPE html>\n<html>Sign in to continue</html>":                   "a web page",
		"<html>404</html>":                     "a web page",
		"{\"error\":\"Repository not found\"}": "like JSON",
	} {
		_, err := Open(write(t, "download.gguf", []byte(text)))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "ringmaster pull")
	}
}

// TestDecoderPanicIsAnError covers the recover behind the checks.
func TestDecoderPanicIsAnError(t *testing.T) {
	data := newRaw().tensor("w", F32, 0, 4, 1).bytes()
	h, err := checkHeader(data)
	require.NoError(t, err)
	h.end = int64(len(data)) + 1 // past the end: slicing panics
	_, _, err = decode(data[:len(data):len(data)], h, 0)
	require.ErrorContains(t, err, "header cannot be decoded")
}
