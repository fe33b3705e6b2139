package decodertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// scaled is the model Small of NVFP4 with scales, see synthetic.Config.Scale.
func (a Architecture) scaled(t testing.TB, scale string) synthetic.Config {
	c := a.Small(t)
	c.QRank, c.FF, c.Scale = 64, 64, scale // whole blocks
	if c.Arch == "deepseek2" {
		c.Latent.Nope = 64
	}
	n := gguf.NVFP4
	c.Types = synthetic.Types{Gate: n, Up: n, Down: n, Dense: n, Aux: gguf.F16, Embd: gguf.F16, Output: n}
	return c
}

// without is a copy of a file's tensors without those with scales of weights. With fold it
// multiplies the weights by them, in F32. c has made the file.
func without(t testing.TB, c synthetic.Config, f *gguf.File, fold bool) *gguf.File {
	c.VocabOnly = true
	w, err := c.Writer()
	require.NoError(t, err)
	for _, x := range f.Tensors() {
		base, isWeight := strings.CutSuffix(x.Name, ".weight")
		scale, scaled := f.Tensor(base + ".scale")
		kind, data := x.Type, x.Data
		switch {
		case strings.HasSuffix(x.Name, ".scale"):
			continue
		case fold && scaled && isWeight:
			kind, data = gguf.F32, folded(t, x, scale)
		}
		require.NoError(t, w.Add(x.Name, kind, x.Shape, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		}))
	}
	return gguftest.Open(t, "test file", w)
}

// folded is the elements of x times its scale, or those of each expert times the expert's, as F32.
func folded(t testing.TB, x, scale gguf.Tensor) (data []byte) {
	n := int64(1)
	for _, d := range x.Shape {
		n *= d
	}
	values, factors := make([]float32, n), make([]float32, len(scale.Data)/4)
	require.NoError(t, gguf.Dequantize(values, x.Type, x.Data))
	require.NoError(t, gguf.Dequantize(factors, scale.Type, scale.Data))
	for i, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v*factors[i*len(factors)/len(values)]))
	}
	return data
}

// Scales: a model of NVFP4 with scales has the logits of one with the scales folded into its
// weights, but for rounding, and far others without its scales. Chunks and any number of ranks
// change no bit, and neither do scales of 1.
func (a Architecture) Scales(t *testing.T) {
	c := a.scaled(t, synthetic.ScaleRandom)
	configs := map[string]synthetic.Config{"": c}
	if c.Arch == "deepseek2" {
		merged := c
		merged.Latent.Split = 1 - c.Latent.Split
		configs["the other format"] = merged
	}
	steps := History(rand.New(rand.NewPCG(41, 42)), c.Vocab)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
	for what, c := range configs {
		f := InMemory(t, c)
		got := a.PlayAlone(t, f, o, steps)
		RequireFinite(t, got)
		near, far := distance(a.PlayAlone(t, without(t, c, f, true), o, steps), got), distance(a.PlayAlone(t, without(t, c, f, false), o, steps), got)
		t.Logf("%s: %.2g from folded scales, %.2g from none", what, near, far)
		require.Less(t, near, 0.002, what)
		require.Greater(t, far, 0.1, what)
		for i, shares := range [][]float64{Ones(2), {2, 1, 3}} {
			all := a.OpenAll(t, f, len(shares), i == 1, o)
			for _, how := range BothShares {
				all.Join(t, how, shares)
				RequireSame(t, got, all.Play(t, steps), fmt.Sprint(what, how, shares))
			}
		}
	}
	if !a.NoBlock {
		a.scaledBlock(t, c)
	}
	f := InMemory(t, c)
	ids := RandomIDs(rand.New(rand.NewPCG(43, 44)), c.Vocab, 60)
	want := Feed(t, a.OpenOn(t, f, false, o), 1, 0, ids, Always(48))
	for _, n := range []int{1, 5, 17} {
		RequireSame(t, want, Feed(t, a.OpenOn(t, f, false, o), 1, 0, ids, Always(n)), fmt.Sprint("chunks of ", n))
	}
	none, ones := a.scaled(t, ""), a.scaled(t, synthetic.ScaleOnes)
	RequireSame(t, a.PlayAlone(t, InMemory(t, none), o, steps), a.PlayAlone(t, InMemory(t, ones), o, steps), "scales of 1")
}

// scaledBlock checks the guesses of a block for multi-token prediction as Scales does the logits.
func (a Architecture) scaledBlock(t *testing.T, c synthetic.Config) {
	c.Block, c.Latent.Split = synthetic.BlockJoined, 1
	f := InMemory(t, c)
	_, scaled := f.Tensor(fmt.Sprintf("blk.%d.nextn.eh_proj.scale", c.Layers))
	require.True(t, scaled)
	ids := RandomIDs(rand.New(rand.NewPCG(45, 46)), c.Vocab, 20)
	guesses := func(f *gguf.File) (rows [][]float32) {
		for _, of := range oneByOne(t, a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 32, DraftFile: f}), ids, 1) {
			rows = append(rows, of[0])
		}
		return rows
	}
	got := guesses(f)
	near, far := distance(guesses(without(t, c, f, true)), got), distance(guesses(without(t, c, f, false)), got)
	t.Logf("guesses of a block: %.2g from folded scales, %.2g from none", near, far)
	require.Less(t, near, 0.002)
	require.Greater(t, far, 0.1)
}

// ScalesAreChecked: scales of a wrong number, that are not finite, or that belong to nothing
// that products read are refused by their name. Those of activations are not read.
func (a Architecture) ScalesAreChecked(t *testing.T) {
	c := a.scaled(t, "")
	last := fmt.Sprintf("blk.%d.", c.Layers-1)
	nan, infinite := float32(math.NaN()), float32(math.Inf(-1))
	for _, x := range []struct {
		name   string
		values []float32
		want   string
	}{
		{"output.scale", []float32{1, 1}, "expected 1 element"},
		{last + "ffn_down_exps.scale", make([]float32, c.Experts-1), fmt.Sprintf("expected 1 element or %d, one for each expert", c.Experts)},
		{last + "ffn_up_shexp.scale", []float32{nan}, "NaN"},
		{last + "ffn_gate_exps.scale", append(make([]float32, c.Experts-1), infinite), "-Inf"},
		{"token_embd.scale", []float32{1}, "not part of this architecture"},
		{last + "attn_norm.scale", []float32{1}, "not part of this architecture"},
		{last + "ffn_gate_inp.scale", []float32{1}, "not part of this architecture"},
		{last + "nothing.scale", []float32{1}, "not part of this architecture"},
		{last + "nothing.input_scale", []float32{1}, "not part of this architecture"},
	} {
		err := a.tryOpen(t, withValues(t, c, x.name, x.values...))
		require.ErrorContains(t, err, fmt.Sprintf("tensor %q", x.name), x.name)
		require.ErrorContains(t, err, x.want, x.name)
	}
	f := withValues(t, c, last+"ffn_down_exps.input_scale", make([]float32, c.Experts)...)
	require.NoError(t, a.tryOpen(t, f))
	p, err := arch.Plan(f, decoder.OpenOptions{}, 1)
	require.NoError(t, err)
	require.Contains(t, p.UnreadOf, "ffn_down_exps.input_scale (scales of activations")
	require.NoError(t, a.tryOpen(t, withValues(t, c, last+"ffn_down_exps.scale", 0.5)))
}

// withValues is the file of a shape with a further tensor of F32.
func withValues(t testing.TB, c synthetic.Config, name string, values ...float32) *gguf.File {
	w, err := c.Writer()
	require.NoError(t, err)
	require.NoError(t, w.Add(name, gguf.F32, []int64{int64(len(values))}, func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, values)
	}))
	return gguftest.Open(t, "test file", w)
}
