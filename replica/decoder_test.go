package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

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

// realRank is a decoder as a rank's model.
type realRank struct {
	decoder.Decoder
	backend *cpu.Backend
	hook    *hook
	step    model.Step
}

// realModels opens the models of one file.
type realModels struct {
	t     *testing.T
	file  *gguf.File
	sizes parallel.Sizes
	// help makes rank 1 of two the helper with half of the layers; nil: ranks divide everything.
	help   *parallel.Help
	layers int
}

func (m *realModels) open(longest int) *realRank {
	b, err := cpu.New(1)
	require.NoError(m.t, err)
	d, err := arch.Open(m.file, b, decoder.OpenOptions{Context: 4096, MaxTokens: longest, Reduce: parallel.Exact})
	require.NoError(m.t, err)
	m.sizes = d.Sizes()
	return &realRank{Decoder: d, backend: b}
}

// place divides a model among n ranks.
func (m *realModels) place(n int) parallel.Placement {
	if m.help != nil && n == 2 {
		sizes := m.sizes
		sizes.Layers = m.layers
		p, err := parallel.WithHelper(sizes, m.layers/2, *m.help)
		require.NoError(m.t, err)
		return p
	}
	p, err := parallel.Place(parallel.ShareAll, m.sizes, slices.Repeat([]float64{1}, n))
	require.NoError(m.t, err)
	return p
}

func (r *realRank) Prepare(s model.Step) error {
	r.step = s
	return r.Decoder.Prepare(s)
}

func (r *realRank) Run(ctx context.Context) ([][]float32, error) {
	if err := r.hook.run(ctx, r.step); err != nil {
		return nil, err
	}
	return r.Decoder.Run(ctx)
}

func (r *realRank) Close() error { return errors.Join(r.Decoder.Close(), r.backend.Close()) }

// TestForksOfDecoders: forks and checkpoints of real models on several ranks, while epochs
// end, ranks are replaced and join, give the bits of one rank that runs every sequence as a
// whole.
func TestForksOfDecoders(t *testing.T) {
	small := func(c *synthetic.Config) {
		c.Layers, c.Embd, c.Heads, c.QRank, c.FF, c.Types = 4, 64, 4, 32, 32, decodertest.SmallTypes
	}
	for _, shape := range []struct {
		preset string
		change func(c *synthetic.Config)
		level  testenv.Level
		size   int
	}{
		{"tiny", func(c *synthetic.Config) {
			small(c)
			c.HeadDim, c.RotDim, c.ORank, c.OGroups, c.Window, c.IndexHeads, c.IndexDim, c.TopK = 64, 32, 32, 2, 24, 4, 32, 8
		}, testenv.Fast, 2},
		{"ds2-tiny", small, testenv.Full, 3},
		{"tiny", func(*synthetic.Config) {}, testenv.Full, 3}, // its copy exceeds aheadLeft
	} {
		if !testenv.Rest(t, shape.level, "deepseek2 and a model with longer copies on 3 ranks") {
			return
		}
		c := decodertest.Preset(t, shape.preset)
		shape.change(&c)
		size := shape.size
		t.Run(fmt.Sprint(shape.preset, " of width ", c.Embd, " on ", size, " ranks"), func(t *testing.T) {
			file := decodertest.InMemory(t, c)
			synctest.Test(t, func(t *testing.T) {
				models := &realModels{t: t, file: file}
				plain := models.open(1024)
				c, l := newClusterOf(t, size, models)
				f := newLife(t, l, uint64(size))
				f.plain, f.rarely, f.mortal, f.checks = plain, 3, 8, 6
				f.between = c.reforms
				c.disturbTimes(uint64(size), 8)
				for range 50 {
					f.step(4, 15)
				}
				synctest.Wait()
				require.Greater(t, c.epoch.Number, uint32(7))
				for rank := range size {
					c.hooks[rank].Store(nil)
				}
				// The last rank leaves, and a new process gets the sequences and joins.
				all := append([]int{0}, c.others()...)
				f.between = nil
				c.enters(all[:size-1]...)
				f.step(4, 15)
				j := c.joins(size - 1)
				for !j.passes(8) {
					f.step(4, 5)
				}
				c.enters(all...)
				for range 10 {
					f.step(4, 15)
				}
				synctest.Wait()
				for id, q := range f.live {
					require.Equal(t, len(q.tokens), l.Len(id))
					require.Equal(t, q.at, c.real[0].Checkpoints(id))
				}
				if l.Info().Rewind < l.Info().ContextLength {
					require.Greater(t, f.old, 2)
				}
				if shape.level == testenv.Full && shape.preset == "tiny" {
					require.Greater(t, j.sent, aheadLeft)
				}
				c.recovering = false
				c.stop(l)
				require.NoError(t, plain.Close())
			})
		})
	}
}
