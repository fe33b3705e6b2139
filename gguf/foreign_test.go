package gguf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// A file with types that this program does not compute with is refused once, with all of
// them from all parts, who makes them and which download helps.
func TestForeignTypesOfAllPartsAreNamed(t *testing.T) {
	dir := t.TempDir()
	part := func(no, count int, r *raw) {
		r.kv("split.no", kindUint16, le(uint16(no))).kv("split.count", kindUint16, le(uint16(count)))
		path := splitPath(filepath.Join(dir, "m-00001-of-00002.gguf"), no, count)
		require.NoError(t, os.WriteFile(path, r.bytes(), 0o600))
	}
	first := newRaw().kv("general.architecture", kindString, rawString("deepseek2"))
	part(0, 2, first.tensor("a", F32, 0, 16, 4).tensor("b", Type(338), 32, 32, 256).tensor("c", Type(338), 64, 32, 256))
	part(1, 2, newRaw().tensor("d", Type(139), 0, 32, 256).tensor("e", Type(41), 32, 32, 64).tensor("f", Type(77), 64, 32, 32))
	_, err := Open(filepath.Join(dir, "m-00001-of-00002.gguf"))
	var types *ForeignTypes
	require.ErrorAs(t, err, &types)
	require.Equal(t, "deepseek2", types.Architecture)
	for _, want := range []string{"m-00001-of-00002.gguf: ", `IQ3_K_R4 (ik_llama.cpp, rows interleaved; 2 tensors, the first "b")`,
		`IQ4_K (ik_llama.cpp; 1 tensor, "d")`, `Q1_0 (GGML; 1 tensor, "e")`, `type 77 (unknown; 1 tensor, "f")`, "only ik_llama.cpp reads them", "Q4_K_M"} {
		require.Contains(t, err.Error(), want)
	}
	require.NotContains(t, err.Error(), "\n")
}

// A hostile file with a type for each tensor gets a line, not a book.
func TestForeignTypesAreBounded(t *testing.T) {
	r := newRaw()
	for i := range 1000 {
		r.tensor(strings.Repeat("w", 300)+string(rune('a'+i%26))+strings.Repeat("x", i/26), Type(1000+i), uint64(32*i), 32, 32)
	}
	_, err := Read("hostile", r.bytes())
	require.ErrorContains(t, err, "984 more")
	require.Less(t, len(err.Error()), 8<<10)
}

// No number has two meanings: a type is computed with or foreign.
func TestForeignTypesAreNotKnown(t *testing.T) {
	for n := range foreign {
		require.False(t, n.Known(), n)
	}
}

// All types of the recipes of real files have their names.
func TestNamesOfTypes(t *testing.T) {
	path := filepath.Join("..", "..", "shared", "headers", "types.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("NOT CHECKED: no recipes of real files at %s", path)
	}
	types := testenv.FromJSON[map[string][3]int](t, text)
	for name, t3 := range types {
		require.Contains(t, Type(t3[0]).String(), strings.ToUpper(name))
	}
}
