//go:build cgo && (linux || darwin)

package metal_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/kernels/gpu/counting"
	"ringmaster/metal"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
	"ringmaster/tests/whole"
)

// TestHeldWeights: what HoldWeights names is what the ops of a rank read, byte by byte, in every
// architecture and with every kind of placement, one after the other in the same models. Pages
// of one byte let no weight hide in the page of another.
func TestHeldWeights(t *testing.T) {
	for name, shrink := range map[string]func(*synthetic.Config){
		"tiny": whole.Shrink, "v41-tiny": nil, "ds2-tiny": whole.ShrinkLatent, "glm5-tiny": whole.ShrinkSparse,
	} {
		t.Run(name, func(t *testing.T) {
			f := whole.Preset(t, name, shrink)
			o := decoder.OpenOptions{MaxTokens: 64, Context: 512}
			plan, err := arch.Plan(f, o, 1)
			require.NoError(t, err)
			half := 1
			for layer := 1; layer < plan.Layers; layer++ {
				if plan.Splits[layer] && layer <= (plan.Layers+1)/2 {
					half = layer
				}
			}
			place := func(how parallel.Share, shares ...float64) parallel.Placement {
				p, err := plan.Place(how, shares)
				require.NoError(t, err)
				return p
			}
			sizes := plan.Sizes
			sizes.Layers = plan.Layers
			helper, err := parallel.WithHelper(sizes, half, parallel.Help{Rows: 8, Missing: 1 << 40})
			require.NoError(t, err)
			alone, all := place(parallel.ShareExperts, 1), place(parallel.ShareAll, 1, 1)
			stages := parallel.InStages([]parallel.Range{{End: half}, {Start: half, End: plan.Layers}}, []parallel.Placement{alone, alone})
			for _, list := range [][]parallel.Placement{
				{nil},
				{place(parallel.ShareExperts, 1, 2), all, all.DivideRows(8), stages, helper, all},
				{place(parallel.ShareAll, 3, 2, 1), parallel.InStages([]parallel.Range{{End: half}, {Start: half, End: plan.Layers}}, []parallel.Placement{alone, all})},
			} {
				readsHeld(t, f, o, list)
			}
		})
	}
}

// readsHeld runs steps on models that join with one placement after the other.
func readsHeld(t *testing.T, f *gguf.File, o decoder.OpenOptions, list []parallel.Placement) {
	ranks := max(1, len(list[0]))
	backends, models := make([]*counting.Backend, ranks), make([]decoder.Decoder, ranks)
	for r := range ranks {
		numbers := metal.Numbers()
		numbers.Page = 1
		b, err := counting.Open(numbers)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		backends[r], models[r] = b, whole.Open(t, f, b, o)
	}
	for i, p := range list {
		groups := make([]*distributed.Group, ranks)
		if ranks > 1 {
			groups = memory.Groups(ranks)
		}
		errs := make([]error, ranks)
		var done sync.WaitGroup
		for r, m := range models {
			done.Go(func() {
				if errs[r] = joinAndRun(t, m, groups[r], p); errs[r] != nil && ranks > 1 {
					groups[r].Fail(errs[r]) // the others do not wait
				}
			})
		}
		done.Wait()
		for r, b := range backends {
			what := fmt.Sprintf("placement %d of %d ranks, rank %d", i, ranks, r)
			require.NoError(t, errs[r], what)
			held, own := b.WeightBuffers()
			require.Positive(t, held, what)
			require.Zero(t, own, what)
		}
	}
}

// joinAndRun joins a rank and runs steps of a sequence. Rank 0 decides what a helper does.
func joinAndRun(t *testing.T, m decoder.Decoder, g *distributed.Group, p parallel.Placement) error {
	m.Forget()
	if p.Staged() && !p.Helped() {
		inside, err := p.SplitStages(t.Context(), g)
		if err != nil {
			return err
		}
		if err := m.JoinStage(g, inside, p); err != nil {
			return err
		}
	} else if err := m.Join(g, p); err != nil {
		return err
	}
	if err := m.HoldWeights(); err != nil {
		return err
	}
	at, has := 0, 0 // tokens of the sequence, and those that a helper has
	for _, n := range []int{1, 60, 64, 64, 64, 4, 1} {
		var help []int
		if p.Helped() && n >= p[1].Help.Rows {
			help, has = []int{has}, at+n
		}
		if err := helpedStep(m, at, n, help); err != nil {
			return fmt.Errorf("%d tokens after %d: %w", n, at, err)
		}
		at += n
	}
	return m.Settle()
}
