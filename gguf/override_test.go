package gguf

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ollama/ollama/fs/ggml"
	"github.com/stretchr/testify/require"
)

// overridable is a file with a value of each kind.
func overridable(t *testing.T) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	w := NewWriter()
	for key, v := range map[string]any{"general.architecture": "a", "a.u": uint32(7), "a.f": float32(1.5), "a.b": true, "a.s": "text", "a.list": []int32{1, 2}} {
		require.NoError(t, w.Put(key, v))
	}
	require.NoError(t, w.WriteFile(path))
	f, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	f.kv["a.i"], f.kv["a.d"] = int8(-3), 2.5 // which the writer does not write
	return f
}

// TestOverride: values have the kind of the file's, and the fingerprint is that of a
// file that has them.
func TestOverride(t *testing.T) {
	f := overridable(t)
	before := Fingerprint(f)
	for _, c := range []struct {
		text, was string
		value     any
	}{
		{"a.u=int:9", "uint32 7", uint32(9)},
		{"a.i=int:-8", "int8 -3", int8(-8)},
		{"a.f=float:0.25", "float32 1.5", float32(0.25)},
		{"a.d=float:0.5", "float64 2.5", 0.5},
		{"a.b=bool:false", "bool true", false},
		{"a.s=str:a=b:c", "string of 4 bytes", "a=b:c"},
		{"a.new=int:1", "missing", uint32(1)},
		{"a.negative=int:-1", "missing", int64(-1)},
		{"a.beta=float:32", "missing", float32(32)},
		{"a.empty=str:", "missing", ""},
	} {
		was, err := f.Override(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.was, was)
		key, _, _ := strings.Cut(c.text, "=")
		require.Equal(t, c.value, f.kv[key], c.text)
	}
	require.NotEqual(t, before, Fingerprint(f))
	g := overridable(t)
	require.Equal(t, before, Fingerprint(g))
	_, err := g.Override("a.u=int:7")
	require.NoError(t, err)
	require.Equal(t, before, Fingerprint(g), "the same value is the same model")
}

func TestOverrideErrors(t *testing.T) {
	f := overridable(t)
	before := Fingerprint(f)
	for text, want := range map[string]string{
		"": "is not KEY=TYPE:VALUE", "a.u": "is not KEY=TYPE:VALUE", "a.u=9": "is not KEY=TYPE:VALUE", "=int:9": "is not KEY=TYPE:VALUE",
		"a.u=uint:9": `type "uint"`, "a.u=int:x": "not an integer", "a.u=int:1.5": "not an integer", "a.u=int:-1": "-1 does not fit",
		"a.u=int:4294967296": "does not fit", "a.i=int:128": "does not fit", "a.u=float:1": "another type", "a.f=int:1": "another type",
		"a.f=float:nan": "not a float32", "a.f=float:1e39": "not a float32", "a.b=bool:1": "not true or false", "a.s=bool:true": "another type",
		"a.list=int:1": "array of 2 int32, which cannot be changed", "general.architecture=str:b": "the file was read by it",
		"general.alignment=int:64": "the file was read by it", "split.count=int:2": "the file was read by it",
	} {
		_, err := f.Override(text)
		require.ErrorContains(t, err, want, text)
	}
	require.Equal(t, before, Fingerprint(f))
}

func FuzzOverride(f *testing.F) {
	for _, s := range []string{"a.u=int:9", "a.f=float:1", "a.list=int:1", "x=str:y", "=:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := &File{index: map[string]int{}, kv: ggml.KV{"a.u": uint32(7), "a.f": float32(1), "a.s": "s", "a.b": true}}
		if _, err := file.Override(text); err == nil {
			Fingerprint(file)
		}
	})
}
