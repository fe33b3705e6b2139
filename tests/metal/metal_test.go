//go:build (darwin && cgo) || metalsim

// Package metal_test runs whole models on the Metal backend beside the CPU's.
package metal_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/reference"
	"ringmaster/metal"
	"ringmaster/model"
	"ringmaster/model/builtin"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/tests/whole"
)

func openMetal(t testing.TB) *metal.Backend {
	b, err := metal.Open(metal.Options{})
	var unsuitable *metal.UnsuitableError
	if errors.As(err, &unsuitable) && runtime.GOOS == "darwin" {
		t.Skipf("NOT CHECKED: %s", unsuitable.Reason) // as on a hosted runner
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// small has every kind of layer and few weights.
func small(t testing.TB) *gguf.File { return whole.Preset(t, "tiny", whole.Shrink) }

func builtIn(t testing.TB) *gguf.File {
	f, err := builtin.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// TestLogitsAgreeWithCPU: over 200 tokens, prefilled in chunks and then one by
// one, logits are the CPU's but for float32 rounding, and so is the best token.
// Rounding now and then tips the choice of an expert or of a compressed entry, on
// the CPU as here, and tokens after it differ by more; in the small model, whose
// rows have 64 elements, it is not rare.
func TestLogitsAgreeWithCPU(t *testing.T) {
	for _, c := range []struct {
		name         string
		file         func(testing.TB) *gguf.File
		median, most float64 // differences allowed to half and to nine in ten of the tokens
		others       int     // tokens with another best
	}{
		{"small", small, 0.01, 0.1, 5},
		{"tiny", func(t testing.TB) *gguf.File { return whole.Preset(t, "tiny", nil) }, 0.001, 0.003, 0},
		{"built-in", builtIn, 0.001, 0.003, 0},
		{"V3", func(t testing.TB) *gguf.File { return whole.Preset(t, "ds2-tiny", whole.ShrinkLatent) }, 0.01, 0.1, 5},
		{"V2-Lite, old format", func(t testing.TB) *gguf.File { return whole.Preset(t, "ds2lite-tiny", shrinkLite) }, 0.01, 0.1, 5},
		{"GLM-5.2", func(t testing.TB) *gguf.File { return whole.Preset(t, "glm5-tiny", whole.ShrinkSparse) }, 0.01, 0.1, 5},
		{"GLM", func(t testing.TB) *gguf.File { return whole.Preset(t, "glm-tiny", nil) }, 0.001, 0.003, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.file(t)
			b := openMetal(t)
			onMetal := whole.Open(t, f, b, decoder.OpenOptions{MaxTokens: 128})
			onCPU := whole.Open(t, f, whole.OpenCPU(t), decoder.OpenOptions{MaxTokens: 128})
			ids := whole.RandomIDs(onCPU.Info().Vocab, 200)
			want, err := whole.Run(t, onCPU, ids, 70, 1, 80)
			require.NoError(t, err)
			got, err := whole.Run(t, onMetal, ids, 70, 1, 80)
			require.NoError(t, err)
			d := whole.ByToken(want, got)
			others := 0
			for i := range want {
				if whole.Argmax(want[i]) != whole.Argmax(got[i]) {
					others++
				}
			}
			t.Logf("difference of a token: median %.2g, nine in ten below %.2g, all %.2g of the deviation; %d of %d best tokens differ",
				d[len(d)/2], d[len(d)*9/10], d[len(d)-1], others, len(ids))
			require.Less(t, d[len(d)/2], c.median)
			require.Less(t, d[len(d)*9/10], c.most)
			require.LessOrEqual(t, others, c.others)
		})
	}
}

// TestLogitsAgreeWithReference: token by token, where no matrix instructions come
// in, logits are those of the plain kernels.
func TestLogitsAgreeWithReference(t *testing.T) {
	f := small(t)
	o := decoder.OpenOptions{MaxTokens: 128}
	ids := whole.RandomIDs(256, 150)
	want, err := whole.Run(t, whole.Open(t, f, reference.New(), o), ids, 70)
	require.NoError(t, err)
	got, err := whole.Run(t, whole.Open(t, f, openMetal(t), o), ids)
	require.NoError(t, err)
	d := whole.ByToken(want, got)
	t.Logf("difference of a token: median %.2g, all %.2g of the deviation", d[len(d)/2], d[len(d)-1])
	require.Less(t, d[len(d)/2], 0.0005)
	require.Less(t, d[len(d)*9/10], 0.01)
}

// TestGreedyTokens: the built-in model generates the same tokens as on the CPU.
func TestGreedyTokens(t *testing.T) {
	f := builtIn(t)
	say := func(b kernels.Backend) []int32 {
		m := whole.Open(t, f, b, decoder.OpenOptions{MaxTokens: 64})
		ids := whole.RandomIDs(m.Info().Vocab, 40)
		for at := 0; len(ids) < 100; {
			s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids[at:], Want: model.WantLast}}}
			rows, err := m.Forward(context.Background(), s)
			require.NoError(t, err)
			m.Commit(s)
			at = len(ids)
			ids = append(ids, int32(whole.Argmax(rows[0])))
		}
		return ids
	}
	require.Equal(t, say(whole.OpenCPU(t)), say(openMetal(t)))
}

// againstOne gives the logits of 60 tokens, 40 of them in one step, on one rank, then on
// two ranks that divide the experts and on three that divide everything.
func againstOne(t *testing.T, f *gguf.File, reduce parallel.Reduce, compare func(how parallel.Share, want, got [][]float32)) {
	o := decoder.OpenOptions{MaxTokens: 64, Reduce: reduce}
	one := whole.Open(t, f, openMetal(t), o)
	ids := whole.RandomIDs(one.Info().Vocab, 60)
	want, err := whole.Run(t, one, ids, 40)
	require.NoError(t, err)
	for how, backends := range map[parallel.Share][]kernels.Backend{
		parallel.ShareExperts: {openMetal(t), openMetal(t)}, parallel.ShareAll: {openMetal(t), openMetal(t), openMetal(t)},
	} {
		got, err := whole.Ranks(t, how, f, backends, o, ids, 40)
		require.NoError(t, err)
		compare(how, want, got)
	}
}

// TestRanks: two or three ranks that reduce exactly give the bits of one, whatever is
// divided; with float16 sums they agree with each other, and with one rank up to
// rounding.
func TestRanks(t *testing.T) {
	f := small(t)
	againstOne(t, f, parallel.Exact, func(how parallel.Share, want, got [][]float32) {
		require.True(t, whole.Same(want, got), "%v: the ranks differ from one", how)
	})
	againstOne(t, f, parallel.Sum, func(_ parallel.Share, want, got [][]float32) {
		require.Less(t, whole.Difference(want, got), 0.02)
	})
}

// TestRowsOnRanks: ranks that divide the rows of a step give the bits of ranks that all
// compute all rows.
func TestRowsOnRanks(t *testing.T) {
	onEach(t, func(name string, f *gguf.File, reduce parallel.Reduce, backends []kernels.Backend) {
		o, ids := decoder.OpenOptions{MaxTokens: 64, Reduce: reduce}, whole.RandomIDs(256, 50)
		want, undivided, err := whole.RanksOfRows(t, parallel.ShareAll, 0, f, backends, o, ids, 40)
		require.NoError(t, err)
		got, divided, err := whole.RanksOfRows(t, parallel.ShareAll, 32, f, backends, o, ids, 40)
		require.NoError(t, err)
		require.True(t, whole.Same(want, got), "%s, %v: divided rows have other bits", name, reduce)
		require.Greater(t, divided, undivided, "%s, %v: the rows of the first step were not divided", name, reduce)
	})
}

// onEach runs a check on two devices with a model and exact sums; in the full form with
// models of both architectures and both ways to sum.
func onEach(t *testing.T, check func(name string, f *gguf.File, reduce parallel.Reduce, backends []kernels.Backend)) {
	files, ways := map[string]*gguf.File{"deepseek4": small(t)}, []parallel.Reduce{parallel.Exact}
	if testenv.At(testenv.Full) {
		files["deepseek2"], ways = whole.Preset(t, "ds2-tiny", whole.ShrinkLatent), append(ways, parallel.Sum)
	}
	for name, f := range files {
		for _, reduce := range ways {
			check(name, f, reduce, []kernels.Backend{openMetal(t), openMetal(t)})
		}
	}
}

// eager is a backend that skips every Flush except the last one of a step, where
// the logits are read.
type eager struct {
	kernels.Backend
	flushes, layers int
}

func (e *eager) Flush() error {
	e.flushes++
	if e.flushes%(e.layers+1) == 0 {
		return e.Backend.Flush()
	}
	e.Submit()
	return nil
}

// TestFlushBeforeExchange: without it ranks exchange values that are not computed
// yet, and the logits differ. Needs a device that is slower than the host, which
// the software device always is in lazy mode.
func TestFlushBeforeExchange(t *testing.T) {
	f := small(t)
	o := decoder.OpenOptions{MaxTokens: 64}
	ids := whole.RandomIDs(256, 20)
	flushed := []kernels.Backend{openMetal(t), openMetal(t)}
	want, err := whole.Ranks(t, parallel.ShareExperts, f, flushed, o, ids, 10)
	require.NoError(t, err)
	const layers = 5
	unflushed := []kernels.Backend{
		&eager{Backend: openMetal(t), layers: layers}, &eager{Backend: openMetal(t), layers: layers},
	}
	got, err := whole.Ranks(t, parallel.ShareExperts, f, unflushed, o, ids, 10)
	if err == nil {
		require.False(t, whole.Same(want, got), "logits are right without the flush before the exchange")
	}
}

// TestCommandBuffers: in a group a layer takes one command buffer before the exchange and
// one during it, with everything divided one before each exchange, and a step one more for
// its first dispatches. Alone a step takes a few.
func TestCommandBuffers(t *testing.T) {
	f := small(t)
	const layers, steps, trial = 5, 3, 1 // trial: of the types of weights, when the model is opened
	one := openMetal(t)
	m := whole.Open(t, f, one, decoder.OpenOptions{MaxTokens: 64})
	before := one.CommandBuffers()
	_, err := whole.Run(t, m, whole.RandomIDs(256, steps))
	require.NoError(t, err)
	require.LessOrEqual(t, one.CommandBuffers()-before, steps*4)

	two := []kernels.Backend{openMetal(t), openMetal(t)}
	_, err = whole.Ranks(t, parallel.ShareExperts, f, two, decoder.OpenOptions{MaxTokens: 64}, whole.RandomIDs(256, steps))
	require.NoError(t, err)
	require.Equal(t, trial+steps*(2*layers+2), two[0].(*metal.Backend).CommandBuffers())

	// With everything divided: one before each of the two exchanges, and the head.
	two = []kernels.Backend{openMetal(t), openMetal(t)}
	_, err = whole.Ranks(t, parallel.ShareAll, f, two, decoder.OpenOptions{MaxTokens: 64}, whole.RandomIDs(256, steps))
	require.NoError(t, err)
	require.Equal(t, trial+steps*(2*layers+2), two[0].(*metal.Backend).CommandBuffers())
}
