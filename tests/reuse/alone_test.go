// Package reuse compares servers that reuse prompts with one that does not. Both must give
// any tree of conversations the same tokens with the same log-probabilities.
//
//	go test ./tests/reuse -v -timeout 2h -args -histories 1000 -seed 7
package reuse

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

var (
	histories = flag.Int("histories", 0, "histories of each architecture; 0: those of the form")
	firstSeed = flag.Uint64("seed", 1, "the first history")
)

// shapes are small models of each architecture, with every kind of layer.
var shapes = []struct {
	name  string
	level testenv.Level
	shape func(t testing.TB) synthetic.Config
}{
	{"deepseek4", testenv.Fast, func(t testing.TB) synthetic.Config {
		c := small(decodertest.Preset(t, "tiny"))
		c.HeadDim, c.RotDim, c.ORank, c.OGroups, c.Window, c.HashLayers = 64, 32, 32, 2, 24, 1
		c.IndexHeads, c.IndexDim, c.TopK, c.Ratios = 4, 32, 8, []int{4, 128, 0}
		return c
	}},
	{"deepseek2", testenv.Fast, func(t testing.TB) synthetic.Config {
		c := small(decodertest.Preset(t, "ds2-tiny"))
		c.Layers, c.RotDim, c.Shared = 2, 16, 4
		l := &c.Latent
		l.Rank, l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 64, 32, 32, 1, 128, 4, 2
		return c
	}},
	{"deepseek41", testenv.Fast, func(t testing.TB) synthetic.Config {
		c := small(decodertest.Preset(t, "v41-tiny"))
		c.Layers, c.HeadDim, c.RotDim, c.ORank, c.OGroups, c.Window = 5, 64, 32, 32, 2, 6
		c.IndexHeads, c.IndexDim, c.TopK, c.Ratios = 4, 32, 8, []int{0, 2, 1, 1, 1}
		e := &c.Engram
		e.Sources, e.Indexes, e.At = []int{1, 2}, []int{1, 2, 4}, []int{0, 2}
		e.Kept, e.Size, e.Width, e.LeastPrime, e.Table = 4, 4, 64, 50, gguf.F16
		return c
	}},
	{"glm-dsa", testenv.Full, func(t testing.TB) synthetic.Config {
		c := small(decodertest.Preset(t, "ds2-tiny"))
		require.NoError(t, c.SetArch("glm-dsa"))
		c.Layers, c.RotDim, c.Shared = 2, 16, 4
		l := &c.Latent
		l.Rank, l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 64, 32, 32, 1, 128, 4, 2
		c.IndexHeads, c.IndexDim, c.TopK, l.IndexEvery = 3, 32, 12, 2
		return c
	}},
}

func small(c synthetic.Config) synthetic.Config {
	c.Layers, c.Embd, c.Heads, c.QRank, c.Experts, c.Used, c.FF, c.Types = 3, 64, 4, 32, 8, 3, 32, decodertest.SmallTypes
	return c
}

// open opens a model on one thread.
func open(t require.TestingT, f *gguf.File, o decoder.OpenOptions) (m decoder.Decoder, closed func()) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	o.Context, o.Reduce = contextLength, parallel.Exact // the same bits on any number of ranks
	m, err = arch.Open(f, b, o)
	require.NoError(t, err)
	return m, func() {
		require.NoError(t, m.Close())
		require.NoError(t, b.Close())
	}
}

// gated is a model that runs a step when the test lets it.
type gated struct {
	decoder.Decoder
	model.Portable
	gate chan struct{}
	seen *reached
}

func (g *gated) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	return g.seen.forward(ctx, g.gate, g.Decoder, s)
}

// forward runs a step of a model once the gate lets it, and records how it failed.
func (r *reached) forward(ctx context.Context, gate <-chan struct{}, m model.Model, s model.Step) ([][]float32, error) {
	select {
	case <-gate:
	case <-ctx.Done():
		return nil, fmt.Errorf("between layers: %w", ctx.Err())
	}
	rows, err := m.Forward(ctx, s)
	r.failed(err)
	return rows, err
}

func (g *gated) Commit(s model.Step) {
	g.Decoder.Commit(s)
	g.seen.committed(g.Decoder, s)
}

// plainEngine is an engine without a cache.
func plainEngine(t *testing.T, f *gguf.File) (*engine.Engine, func()) {
	m, closed := open(t, f, decoder.OpenOptions{})
	e, err := engine.New(m, enginetest.Vocabulary{}, engine.Options{CacheEntries: -1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return e, func() {
		require.NoError(t, e.Close(context.Background()))
		closed()
	}
}

// TestAlone runs random trees of conversations on one rank with little memory. Clients begin,
// continue, regenerate, edit and branch conversations, ask for several choices, ask several
// requests at once and cancel them; servers restart with a cache on disk.
func TestAlone(t *testing.T) {
	n := *histories
	if n == 0 {
		n = 5
		switch {
		case testenv.At(testenv.Exhaustive):
			n = 25
		case testenv.At(testenv.Full):
			n = 10
		}
	}
	for _, s := range shapes {
		if !testenv.At(s.level) {
			continue // Rest has logged it
		}
		t.Run(s.name, func(t *testing.T) {
			f := decodertest.InMemory(t, s.shape(t))
			seen := &reached{kinds: map[string]int{}}
			for i := range uint64(n) {
				ok := t.Run(fmt.Sprint("seed ", *firstSeed+i), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { aloneHistory(t, f, *firstSeed+i, seen) })
				})
				if !ok {
					t.Fatalf("reproduce with -run '%s' -args -histories 1 -seed %d", t.Name(), *firstSeed+i)
				}
			}
			seen.require(t, n/3, s.name)
			require.True(t, s.name != "deepseek41" || n < 3 || seen.replayed > 0, "the histories do not reach: replays")
		})
	}
}

// aloneHistory runs one history over several lives of a server.
func aloneHistory(t *testing.T, f *gguf.File, seed uint64, seen *reached) {
	random := rand.New(rand.NewPCG(seed, 35))
	plain, closed := plainEngine(t, f)
	defer closed()
	h := newHistory(t, t.Context(), random, plain)
	dir := filepath.Join(t.TempDir(), "cache")
	for range 2 + random.IntN(2) {
		aloneLife(t, f, h, dir, seen)
		if t.Failed() {
			return
		}
	}
}

// aloneLife runs requests of a history on a server.
func aloneLife(t *testing.T, f *gguf.File, h *history, dir string, seen *reached) {
	r := h.random
	o := decoder.OpenOptions{MaxTokens: 16 << r.IntN(5)}
	m, closed := open(t, f, o)
	defer closed()
	if r.IntN(3) > 0 {
		m.SetSequenceBudget(littleMemory(r, m))
	}
	g := &gated{m, m.(model.Portable), make(chan struct{}), seen}
	l := newLife(t, h, g, dir, seen)
	l.what += fmt.Sprintf(", budget %d", m.SequenceBudget())
	l.step = func() {
		synctest.Wait()
		select {
		case g.gate <- struct{}{}:
		default: // nothing runs
		}
		synctest.Wait()
	}
	l.suffer = func() {}
	l.run(60)
	close(g.gate)
	l.end()
}
