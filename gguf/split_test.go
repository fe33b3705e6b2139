package gguf

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// splitPart is part no (from 0) of count with one tensor.
func splitPart(no, count, tensors int) *raw {
	r := newRaw()
	if no == 0 {
		r.kv(keyArchitecture, kindString, rawString("test"))
	}
	r.kv(keySplitNo, kindUint16, le(uint16(no))).kv(keySplitCount, kindUint16, le(uint16(count)))
	r.kv(keySplitTensors, kindInt32, le(int32(tensors)))
	return r.tensor(fmt.Sprintf("blk.%d.w", no), F32, 0, 32, 8)
}

// writeParts writes parts, nil for a missing file, and returns the directory.
func writeParts(t *testing.T, parts ...*raw) string {
	dir := t.TempDir()
	for i, p := range parts {
		if p != nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, splitPath("m-00001-of-00001.gguf", i, len(parts))), p.bytes(), 0o600))
		}
	}
	return dir
}

func TestSplit(t *testing.T) {
	empty := newRaw().kv(keyArchitecture, kindString, rawString("test")) // as gguf-split --no-tensor-first-split
	empty.kv(keySplitNo, kindUint8, []byte{0}).kv(keySplitCount, kindUint64, le(uint64(3))).kv(keySplitTensors, kindInt32, le(int32(2)))
	for _, first := range []*raw{splitPart(0, 3, 3), empty} {
		dir := writeParts(t, first, splitPart(1, 3, 3), splitPart(2, 3, 3))
		f := open(t, filepath.Join(dir, "m-00001-of-00003.gguf"))
		require.Equal(t, "test", f.Architecture())
		require.Len(t, f.Mappings(), 3)
		n := int(first.tensors)
		require.Len(t, f.Tensors(), n+2)
		for i, x := range f.Tensors() {
			no := i + 1 - n
			require.Equal(t, fmt.Sprintf("blk.%d.w", no), x.Name)
			require.Equal(t, no, x.Part)
			m := f.Mappings()[no]
			require.Same(t, &m[len(m)-32], &x.Data[0])
		}
	}
	// A single part under a split name, with and without the keys.
	for _, only := range []*raw{splitPart(0, 1, 1), newRaw().tensor("w", F32, 0, 4, 1)} {
		f := open(t, filepath.Join(writeParts(t, only), "m-00001-of-00001.gguf"))
		require.Len(t, f.Tensors(), 1)
	}
	// A merged model keeps the key with a count of 0.
	f, err := Read("merged", newRaw().kv(keySplitCount, kindUint16, le(uint16(0))).bytes())
	require.NoError(t, err)
	require.True(t, f.Has(keySplitCount))
}

func TestSplitErrors(t *testing.T) {
	twice := splitPart(1, 2, 2)
	copy(twice.infos, splitPart(0, 2, 2).infos)
	untyped := newRaw().kv(keySplitNo, kindUint16, le(uint16(0))).kv(keySplitCount, kindString, rawString("2"))
	uncounted := newRaw().kv(keySplitNo, kindUint16, le(uint16(0))).kv(keySplitCount, kindUint16, le(uint16(2)))
	for _, c := range []struct {
		name  string
		parts []*raw
		open  string
		want  []string
	}{
		{"missing part", []*raw{splitPart(0, 2, 2), nil}, "m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf is missing: part 2 of 2 of a split model"}},
		{"damaged part", []*raw{splitPart(0, 2, 2), {version: 9, alignment: 32}}, "m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf: GGUF version 9"}},
		{"second part opened", []*raw{splitPart(0, 2, 2), splitPart(1, 2, 2)}, "m-00002-of-00002.gguf", []string{"part 2 of a split model; open the first part", "m-00001-of-00002.gguf"}},
		{"part 0", []*raw{splitPart(0, 1, 1)}, "m-00000-of-00002.gguf", []string{"part 0 of 2 is impossible"}},
		{"part 3 of 2", []*raw{splitPart(0, 1, 1)}, "m-00003-of-00002.gguf", []string{"part 3 of 2 is impossible"}},
		{"of 0", []*raw{splitPart(0, 1, 1)}, "m-00001-of-00000.gguf", []string{"part 1 of 0 is impossible"}},
		{"count differs", []*raw{splitPart(0, 2, 2), splitPart(1, 3, 2)}, "m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf: ", keySplitCount, "is 3; expected 2"}},
		{"no differs", []*raw{splitPart(0, 2, 2), splitPart(0, 2, 2)}, "m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf: ", keySplitNo, "is 0; expected 1"}},
		{"no keys", []*raw{splitPart(0, 2, 2), newRaw()}, "m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf: ", keySplitCount, "is missing"}},
		{"count is a string", []*raw{untyped, splitPart(1, 2, 1)}, "m-00001-of-00002.gguf", []string{"m-00001-of-00002.gguf: ", keySplitCount, "expected the integer 2"}},
		{"tensor count", []*raw{splitPart(0, 2, 5), splitPart(1, 2, 5)}, "m-00001-of-00002.gguf", []string{"m-00001-of-00002.gguf: ", keySplitTensors, "is 5, but the 2 parts have 2 tensors"}},
		{"no tensor count", []*raw{uncounted, splitPart(1, 2, 1)}, "m-00001-of-00002.gguf", []string{keySplitTensors, "is missing or not an integer; expected 1"}},
		{"of another model", []*raw{splitPart(0, 2, 2).kv("a.scale", kindFloat32, le(float32(1))), splitPart(1, 2, 2).kv("a.scale", kindFloat32, le(float32(2)))},
			"m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf: ", `key "a.scale" has another value than in the first part`}},
		{"of another architecture", []*raw{splitPart(0, 2, 2), splitPart(1, 2, 2).kv("general.architecture", kindString, rawString("deepseek4"))},
			"m-00001-of-00002.gguf", []string{"m-00002-of-00002.gguf: ", `key "general.architecture" has another value`}},
		{"tensor in both", []*raw{splitPart(0, 2, 2), twice}, "m-00001-of-00002.gguf", []string{`tensor "blk.0.w" is in both `, "m-00001-of-00002.gguf and ", "m-00002-of-00002.gguf"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeParts(t, c.parts...)
			_, err := Open(filepath.Join(dir, c.open))
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
