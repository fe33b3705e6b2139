package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
)

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := command(func() time.Time { return time.Unix(0, 0) })
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func kind(t *testing.T, f *gguf.File, name string) gguf.Type {
	t.Helper()
	x, ok := f.Tensor(name)
	require.True(t, ok, name)
	return x.Type
}

// TestArchitecture: the flag picks a preset, or gives a preset's shape another
// architecture with the same kind of attention.
func TestArchitecture(t *testing.T) {
	open := func(args ...string) *gguf.File {
		path := filepath.Join(t.TempDir(), "m.gguf")
		out, err := execute(t, append(args, "--out", path, "--holes")...)
		require.NoError(t, err, out)
		f := gguftest.OpenFile(t, path)
		return f
	}
	for arch, experts := range map[string]uint64{"deepseek4": 16, "deepseek41": 9, "deepseek2": 32, "deepseek32": 32, "glm-dsa": 16} {
		f := open("--arch", arch)
		require.Equal(t, arch, f.Architecture())
		n, err := f.RequireUint(arch + ".expert_count")
		require.NoError(t, err)
		require.Equal(t, experts, n)
	}
	f := open("--arch", "glm-dsa", "--preset", "k2-tiny", "--set", "idx_topk=7,idx_every=2")
	require.Equal(t, "glm-dsa", f.Architecture())
	n, err := f.RequireUint("glm-dsa.attention.indexer.top_k")
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	full, err := f.RequireBools("glm-dsa.attention.indexer.types")
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, true, false}, full)
	kind(t, f, "blk.2.indexer.k_norm.bias")
	out, err := execute(t, "--arch", "glm-dsa", "--preset", "tiny", "--out", filepath.Join(t.TempDir(), "m.gguf"))
	require.Error(t, err)
	require.Contains(t, out, "a shape of deepseek4 cannot be one of")
}

func TestFlagsReachTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	t.Setenv("RINGMASTER_MKMODEL_SEED", "9")
	t.Setenv("RINGMASTER_MKMODEL_DOWN", "q8_0")
	t.Setenv("RINGMASTER_MKMODEL_EMBD", "q4_0") // the flag wins
	out, err := execute(t, "--preset", "tiny", "--out", path, "--ratios", "128,128,4", "--set", "n_expert=5,n_used=2",
		"--set", "scale=2.5", "--experts", "iq2", "--up", "iq2_xs", "--layer-experts", "1=q6_k", "--layer-down", "2=q5_k",
		"--dense", "q5_0", "--embd", "bf16", "--output", "q6_k", "--aux", "f32", "--split", "2")
	require.NoError(t, err, out)
	var said struct {
		Files []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said))
	require.Len(t, said.Files, 2)
	f := gguftest.OpenFile(t, said.Files[0])
	layers, err := f.RequireUint("deepseek4.block_count")
	require.NoError(t, err)
	require.EqualValues(t, 3, layers)
	ratios, err := f.RequireInts("deepseek4.attention.compress_ratios")
	require.NoError(t, err)
	require.Equal(t, []int64{128, 128, 4}, ratios)
	for name, want := range map[string]gguf.Type{
		"blk.0.ffn_gate_exps.weight": gguf.IQ2XXS, "blk.0.ffn_up_exps.weight": gguf.IQ2XS,
		"blk.0.ffn_down_exps.weight": gguf.Q8_0, "blk.1.ffn_gate_exps.weight": gguf.Q6_K,
		"blk.1.ffn_down_exps.weight": gguf.Q6_K, "blk.2.ffn_gate_exps.weight": gguf.IQ2XXS,
		"blk.2.ffn_down_exps.weight": gguf.Q5_K, "blk.0.attn_q_a.weight": gguf.Q5_0,
		"token_embd.weight": gguf.BF16, "output.weight": gguf.Q6_K, "blk.0.ffn_gate_inp.weight": gguf.F32,
	} {
		require.Equal(t, want, kind(t, f, name), name)
	}
	seeded, ok := f.Tensor("blk.0.attn_q_a.weight")
	require.True(t, ok)
	other := filepath.Join(t.TempDir(), "m.gguf")
	_, err = execute(t, "-o", other, "--seed", "1", "--dense", "q5_0")
	require.NoError(t, err)
	g := gguftest.OpenFile(t, other)
	first, ok := g.Tensor("blk.0.attn_q_a.weight")
	require.True(t, ok)
	require.False(t, bytes.Equal(seeded.Data, first.Data), "the seed of the environment")
}

func TestScales(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	out, err := execute(t, "--preset", "tiny", "--out", path, "--experts", "nvfp4", "--scale", "random")
	require.NoError(t, err, out)
	f := gguftest.OpenFile(t, path)
	require.Equal(t, gguf.NVFP4, kind(t, f, "blk.0.ffn_up_exps.weight"))
	x, ok := f.Tensor("blk.0.ffn_up_exps.scale")
	require.True(t, ok)
	require.Equal(t, []int64{16}, x.Shape)
	_, ok = f.Tensor("blk.0.attn_q_a.scale")
	require.False(t, ok, "it is Q8_0")
	out, err = execute(t, "--preset", "tiny", "--out", path, "--scale", "twos")
	require.Error(t, err)
	require.Contains(t, out, "want ones or random")
}

func TestHoles(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		real bool
	}{
		{"tiny", nil, true},
		{"tiny", []string{"--holes"}, false},
		{"flash", nil, false},
		{"flash", []string{"--holes=false", "--vocab-only"}, true}, // no tensors
	} {
		out, err := execute(t, append([]string{"--preset", c.name, "--out", filepath.Join(dir, "m.gguf")}, c.args...)...)
		require.NoError(t, err, out)
		require.Contains(t, out, map[bool]string{true: `"holes":false`, false: `"holes":true`}[c.real])
	}
}

func TestFaultsNameTheFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	for want, args := range map[string][]string{
		"--out is required":       {"--preset", "tiny"},
		"want one of bench":       {"--preset", "huge", "--out", path},
		"--gate":                  {"--gate", "q9", "--out", path},
		"--layer-down":            {"--layer-down", "1=q9", "--out", path},
		"want KEY=VALUE":          {"--set", "n_embd", "--out", path},
		"3 ratios for 4 layers":   {"--ratios", "0,0,4", "--set", "n_layer=4", "--out", path},
		"ffn_down_exps.weight":    {"--set", "n_ff=96", "--out", path},
		"--split 0":               {"--split", "0", "--out", path},
		"--embd":                  {"--embd", "i32", "--out", path},
		"n_head 8":                {"--set", "o_groups=3", "--out", path},
		"power of two":            {"--set", "idx_dim=96", "--out", path},
		"n_rot 300 is odd or mor": {"--set", "n_rot=300", "--out", path},
	} {
		_, err := execute(t, args...)
		require.ErrorContains(t, err, want, "%v", args)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestPretokenizerReachesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.gguf")
	out, err := execute(t, "--out", path, "--vocab-only", "--pre", "kimi-k2")
	require.NoError(t, err, out)
	f := gguftest.OpenFile(t, path)
	pre, err := f.RequireString("tokenizer.ggml.pre")
	require.NoError(t, err)
	require.Equal(t, "kimi-k2", pre)
	_, err = execute(t, "--out", path, "--pre", "gpt2")
	require.ErrorContains(t, err, "deepseek-llm")
}
