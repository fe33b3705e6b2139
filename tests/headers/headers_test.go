// Package headers opens files with the headers of published models, built from recipes,
// whose weights are holes: what people download must be ready, or be refused in one line
// that says why.
package headers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/tokenizer"
)

// recipesDir finds the recipes: $RINGMASTER_HEADERS, or headers/ in the folder shared/ next
// to the checkout.
func recipesDir(t *testing.T) string {
	dir := os.Getenv("RINGMASTER_HEADERS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "headers")
	}
	if _, err := os.Stat(filepath.Join(dir, "expected.txt")); err != nil {
		t.Skipf("NOT CHECKED: no recipes of real files at %s; set RINGMASTER_HEADERS", dir)
	}
	testenv.NeedTool(t, "python3", "the recipes of real files need python3")
	return dir
}

// recipe is a line of expected.txt.
type recipe struct {
	name    string
	layers  int      // it is ready with so many layers; 0: it is refused
	refused []string // words of the refusal
}

func recipes(t *testing.T, dir string) (all []recipe) {
	text, err := os.ReadFile(filepath.Join(dir, "expected.txt"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		require.Len(t, fields, 3, line)
		r := recipe{name: fields[0]}
		switch fields[1] {
		case "ready":
			r.layers, err = strconv.Atoi(fields[2])
			require.NoError(t, err)
		case "refused":
			r.refused = strings.Fields(fields[2])
		default:
			t.Fatalf("expected.txt: %s", line)
		}
		if layers, ok := runSince[r.name]; ok {
			r.layers, r.refused = layers, nil
		}
		all = append(all, r)
	}
	require.NotEmpty(t, all)
	return all
}

// runSince are recipes, with their layers, that expected.txt may still call refused: their types
// are computed with since.
var runSince = map[string]int{"v4-flash-nvfp4": 43}

// fast are the recipes of every run: each way to write MTP, each kind of file that is
// refused, an old format, and a file of many types.
var fast = map[string]bool{
	"v4-flash-mtp-e_proj-h_proj": true, "v4-flash-ds4shard-mtp-43blocks": true, "v4-flash-vision-exp-text": true, "glm-4.7-flash-mtp": true,
	"28-Deep-2-Lite-64x1.5B-F16-mla": true, "03-DeepSeek-Coder-V2-Lite-Instruct-Q4_K_M": true,
	"v4-flash-mtp-companion": true, "v4-mtp-sidecar-antirez": true, "v4-dspark-sidecar": true, "v4-flash-FP4-FP8-native": true,
	"18-DeepSeek-R1-0528-THIREUS-BF16-SPECIAL_TENSOR": true, "v41-flash-ds4-q2": true, "v4-flash-nvfp4": true,
}

// TestRecipes: each file is ready with its number of layers, or refused in one line with
// the words that tell why.
func TestRecipes(t *testing.T) {
	dir := recipesDir(t)
	build := builder(t, dir)
	ran := 0
	for _, r := range recipes(t, dir) {
		if !fast[r.name] && !testenv.At(testenv.Full) {
			continue
		}
		ran++
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, dir, build(t, r.name))
		})
	}
	require.GreaterOrEqual(t, ran, len(fast))
	testenv.Rest(t, testenv.Full, "the other recipes of real files")
}

// builder makes the file of a recipe and returns its path. build.py asks mkmodel for a
// vocabulary each time; there are few, which are kept.
func builder(t *testing.T, dir string) func(t *testing.T, name string) string {
	kept := t.TempDir()
	mkmodel := filepath.Join(kept, "mkmodel")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", mkmodel, "ringmaster/cmd/mkmodel").CombinedOutput()
	require.NoError(t, err, string(out))
	once := filepath.Join(kept, "once")
	// It is called with --preset NAME --out PATH.
	script := fmt.Sprintf("#!/bin/sh\nset -e\n[ -f '%[1]s'/\"$2\" ] || { '%[2]s' --preset \"$2\" --out '%[1]s'/\"$2.$$\"; mv '%[1]s'/\"$2.$$\" '%[1]s'/\"$2\"; }\nln -s '%[1]s'/\"$2\" \"$4\"\n", kept, mkmodel)
	require.NoError(t, os.WriteFile(once, []byte(script), 0o700))
	return func(t *testing.T, name string) string {
		path := filepath.Join(t.TempDir(), name+".gguf")
		cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(dir, "build.py"), filepath.Join(dir, name+".json"), path, "--mkmodel", once)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		parts, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		first, _, _ := strings.Cut(string(parts), "\n")
		return first
	}
}

// check opens the file of a recipe as a server does.
func (r recipe) check(t *testing.T, dir, path string) {
	layers, err := open(t, path)
	if name := architecture(t, dir, r.name); r.layers > 0 && !arch.Runs(name) {
		require.ErrorContains(t, err, strconv.Quote(name))
		require.NotContains(t, err.Error(), "\n")
		return
	}
	if r.layers > 0 {
		require.NoError(t, err)
		require.Equal(t, r.layers, layers)
		return
	}
	require.Error(t, err)
	for _, word := range r.refused {
		require.ErrorContains(t, err, word)
	}
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 2000)
}

// architecture is general.architecture of a recipe.
func architecture(t *testing.T, dir, name string) string {
	text := testenv.ReadFile(t, filepath.Join(dir, name+".json"))
	r := testenv.FromJSON[struct{ KV [][]any }](t, text)
	for _, pair := range r.KV {
		if pair[0] == "general.architecture" {
			return pair[2].(string)
		}
	}
	t.Fatalf("%s has no architecture", name)
	return ""
}

// open opens a file and its vocabulary, and returns the number of its layers. The keys of
// a file of the old format, tens of seconds of work, are not transposed.
func open(t *testing.T, path string) (layers int, err error) {
	f, err := arch.OpenFile(path)
	if err != nil {
		return 0, err
	}
	defer func() { require.NoError(t, f.Close()) }()
	if _, err := tokenizer.FromGGUF(f); err != nil {
		return 0, err
	}
	p, err := arch.Plan(f, decoder.OpenOptions{}, 1)
	if err != nil {
		return 0, err
	}
	o := decoder.OpenOptions{Context: 64, MaxTokens: 4}
	if old(f) {
		tracer, err := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) { return arch.Open(f, b, o) })
		if err != nil {
			return 0, err
		}
		return p.Layers, tracer.Close()
	}
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	m, err := arch.Open(f, b, o)
	if err != nil {
		return 0, err
	}
	return p.Layers, m.Close()
}

// old reports whether a file has keys and values as one matrix, as those of 2024.
func old(f *gguf.File) bool {
	_, merged := f.Tensor("blk.0.attn_kv_b.weight")
	_, split := f.Tensor("blk.0.attn_k_b.weight")
	return merged && !split
}
