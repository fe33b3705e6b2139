// Package llamacpp_test checks our files and logits against llama.cpp: it loads the
// files of model/synthetic, and its logits are compared with those of `ringmaster
// logits`.
package llamacpp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/exact"
)

// tokens is the length of the compared sequences: longer than the window of 128,
// with compressed entries of ratio 128, and with far more entries of ratio 4 than
// topK.
const (
	tokens = 272
	topK   = 24
)

var cases = []struct {
	name   string
	change func(c *synthetic.Config)
	// far limits the difference of the logits: its root mean square relative to
	// the standard deviation of llama.cpp's logits. With quantised weights the
	// engines round the activations differently.
	far float64
	// same is the smallest fraction of tokens with the same most likely successor.
	same float64
}{
	{"float32", func(c *synthetic.Config) {
		f := gguf.F32
		c.Types = synthetic.Types{Gate: f, Up: f, Down: f, Dense: f, Aux: f, Embd: f, Output: f}
		c.FF, c.Seed = 64, 11
	}, 0.005, 0.99},
	{"q4_k", func(c *synthetic.Config) { c.Seed = 12 }, 0.06, 0.9},
	{"iq2_xxs and q2_k", func(c *synthetic.Config) {
		c.Types.Gate, c.Types.Up, c.Types.Down, c.Seed = gguf.IQ2XXS, gguf.IQ2XXS, gguf.Q2_K, 13
	}, 0.06, 0.9},
	{"mxfp4, 5 experts, Pro's ratios", func(c *synthetic.Config) {
		c.Types.Gate, c.Types.Up, c.Types.Down, c.Seed = gguf.MXFP4, gguf.MXFP4, gguf.MXFP4, 14
		c.Pattern, c.Experts, c.Used, c.WeightsScale = "pro", 5, 3, 2.5
	}, 0.06, 0.9},
	{"nvfp4", func(c *synthetic.Config) {
		c.Types.Gate, c.Types.Up, c.Types.Down, c.Seed = gguf.NVFP4, gguf.NVFP4, gguf.NVFP4, 20
	}, 0.06, 0.9},
	{"33 experts, a type a layer, no hash layer", func(c *synthetic.Config) {
		c.Experts, c.HashLayers, c.Seed = 33, 0, 15
		c.LayerGate = map[int]gguf.Type{0: gguf.Q6_K, 1: gguf.Q5_K, 2: gguf.IQ3XXS, 3: gguf.Q3_K, 4: gguf.IQ4XS, 5: gguf.IQ1S}
		c.LayerUp = c.LayerGate
		c.LayerDown = map[int]gguf.Type{0: gguf.Q8_0, 1: gguf.Q6_K, 2: gguf.IQ4NL, 3: gguf.IQ3S, 4: gguf.Q5_0, 5: gguf.IQ2S}
	}, 0.06, 0.9},
	{"all hash layers, ratios 4, 0, 128, 4", func(c *synthetic.Config) {
		c.Layers, c.HashLayers, c.Ratios, c.Seed = 4, 4, []int{4, 0, 128, 4, 0}, 16
		c.LayerGate = map[int]gguf.Type{0: gguf.IQ2XS, 1: gguf.IQ1M, 2: gguf.IQ2S, 3: gguf.Q4_0}
		c.LayerUp = c.LayerGate
		c.LayerDown = map[int]gguf.Type{0: gguf.Q4_1, 1: gguf.Q5_1, 2: gguf.BF16, 3: gguf.F16}
	}, 0.06, 0.9},
	{"wide low rank, dense q6_k, output q4_k", func(c *synthetic.Config) {
		c.QRank, c.Types.Dense, c.Types.Aux, c.Types.Embd, c.Types.Output = 256, gguf.Q6_K, gguf.F32, gguf.Q8_0, gguf.Q4_K
		c.Seed = 17
	}, 0.06, 0.9},
	{"split in three", func(c *synthetic.Config) { c.Parts, c.Seed, c.Layers = 3, 18, 3 }, 0.06, 0.9},
}

func TestAgreesWithLlamaCpp(t *testing.T) {
	install(t)
	binary := testenv.Program(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { agree(t, binary, tiny(t, c.change), c.far, c.same) })
	}
}

// agree compares the vocabulary and the logits of a model, which must not be farther
// apart than far, with at least so many same most likely tokens.
func agree(t *testing.T, binary string, config synthetic.Config, most, least float64) {
	t.Helper()
	model := write(t, config)
	ids := randomIDs(config.Seed, tokens, config.Vocab)
	judge := startJudge(t, model)
	sameVocabulary(t, judge, model)

	theirs := filepath.Join(t.TempDir(), "theirs.f32")
	judge.ask(t, map[string]any{"op": "logits", "ids": ids, "out": theirs, "single": 16, "batch": tokens}, nil)
	want := readRows(t, theirs, len(ids), config.Vocab)
	for _, batch := range []int{tokens, 37} {
		got := ourLogits(t, binary, model, ids, batch, config.Vocab)
		far, same := exact.Distance(got, want)
		t.Logf("batch %d: relative difference %.5f, same most likely token %.3f", batch, far, same)
		require.LessOrEqual(t, far, most, "batch %d", batch)
		require.GreaterOrEqual(t, same, least, "batch %d", batch)
	}
}

// TestAliasesGiveTheSameLogits checks that files with the alternative tensor names
// and merged matrices, which llama.cpp does not read, give the logits of the plain
// file, bit for bit.
func TestAliasesGiveTheSameLogits(t *testing.T) {
	binary := testenv.Program(t)
	plain := tiny(t, func(c *synthetic.Config) { c.Seed = 19 })
	alias := plain
	alias.Alias = true
	ids := randomIDs(19, 40, plain.Vocab)
	require.Equal(t,
		ourLogits(t, binary, write(t, plain), ids, 40, plain.Vocab),
		ourLogits(t, binary, write(t, alias), ids, 40, plain.Vocab))
}

// TestVocabularyOnly checks that llama.cpp reads a vocabulary without tensors.
func TestVocabularyOnly(t *testing.T) {
	install(t)
	config := tiny(t, func(c *synthetic.Config) { c.VocabOnly, c.Vocab = true, 2000 })
	model := write(t, config)
	judge := startJudge(t, model, "--vocab-only")
	sameVocabulary(t, judge, model)
	var answer struct{ IDs []int }
	judge.ask(t, map[string]any{"op": "tokenize", "text": "<｜User｜>The router<｜Assistant｜></think>"}, &answer)
	require.Equal(t, config.Vocab-6, answer.IDs[0])
	require.Equal(t, []int{config.Vocab - 5, config.Vocab - 3}, answer.IDs[len(answer.IDs)-2:])
}

// tiny is the preset with a smaller top-k of the indexer and further changes.
func tiny(t *testing.T, change func(c *synthetic.Config)) synthetic.Config {
	t.Helper()
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	c.TopK = topK
	change(&c)
	return c
}

// write writes the model to a temporary directory and returns its first file.
func write(t *testing.T, c synthetic.Config) string {
	t.Helper()
	written, err := c.WriteFile(filepath.Join(t.TempDir(), "model.gguf"))
	require.NoError(t, err)
	return written.Files[0]
}

// randomIDs starts with BOS, as llama.cpp expects of a sequence.
func randomIDs(seed uint64, n, vocab int) []int {
	r := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int, n)
	for i := 1; i < n; i++ {
		ids[i] = 3 + r.IntN(vocab-3)
	}
	return ids
}

func sameVocabulary(t *testing.T, j *judge, model string) {
	t.Helper()
	f := gguftest.OpenFile(t, model)
	want, err := f.RequireStrings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	var answer struct{ Tokens []string }
	j.ask(t, map[string]any{"op": "tokens", "count": len(want)}, &answer)
	require.Equal(t, want, answer.Tokens)
}

// ourLogits runs `ringmaster logits`.
func ourLogits(t *testing.T, binary, model string, ids []int, batch, vocab int) [][]float64 {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "ids.txt"), filepath.Join(dir, "ours.f32")
	require.NoError(t, os.WriteFile(in, []byte(strings.Trim(fmt.Sprint(ids), "[]")), 0o600))
	cmd := exec.Command(binary, "logits", "--model", model, "--tokens", in, "--out", out, "--batch", fmt.Sprint(batch), "--threads", "1")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return readRows(t, out, len(ids), vocab)
}

// readRows reads float32 [rows][vocab], all finite.
func readRows(t *testing.T, path string, rows, vocab int) [][]float64 {
	t.Helper()
	b := testenv.ReadFile(t, path)
	require.Len(t, b, 4*rows*vocab, path)
	x := make([][]float64, rows)
	for i := range x {
		x[i] = make([]float64, vocab)
		for j := range x[i] {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*(i*vocab+j):])))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%s: logit %d of row %d is %v", path, j, i, v)
			}
			x[i][j] = v
		}
	}
	return x
}
