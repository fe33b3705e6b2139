package moe_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/kerneltest"
	"ringmaster/moe"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// flushes is a backend that counts its flushes.
type flushes struct {
	kernels.Backend
	n int
}

func (b *flushes) Flush() error {
	b.n++
	return b.Backend.Flush()
}

// TestCopiesThatDoNotServe: where copies serve only steps that are divided by rows, other
// steps wait for the device as often as without copies; divided ones use the copies. All
// have the bits of one rank.
func TestCopiesThatDoNotServe(t *testing.T) {
	want := kerneltest.Bits(alone(t, 3, parallel.Exact, false, 0, none))
	step := func(copies, waits, divided bool) (n int, how assign.How) {
		counts, rules := make([]int, 2), make([]assign.How, 2)
		cut := []parallel.Range{{Start: 0, End: 3}, {Start: 3, End: 7}}
		groups := memory.Groups(2)
		var done sync.WaitGroup
		for r := range groups {
			b := &flushes{Backend: deferred.Wrap(openCPU(t, 1))}
			v := newBench(t, b, 3, false)
			f, err := moe.NewForward(b, v.shape, parallel.Exact, parallel.NewMeter(nil))
			require.NoError(t, err)
			p := none.place(t, v, []float64{1, 1}).DivideRows(1)
			for i := range p {
				if copies {
					p[i].Copies = make([]assign.Set, 1)
					for e := range v.shape.Experts {
						p[i].Copies[0].Add(e)
					}
				}
				p[i].Waits = waits
			}
			require.NoError(t, f.Join(groups[r], p, parallel.F16))
			out := kerneltest.OnDevice(t, b, make([]float32, v.shape.MaxTokens*v.shape.Embd))
			f.Poison()
			own := parallel.Range{End: v.shape.MaxTokens}
			var c []parallel.Range
			if divided {
				c, own = cut, cut[r]
			}
			done.Go(func() {
				f.StartStep(1)
				b.n = 0
				assert.NoError(t, f.Begin(t.Context(), 0, &v.layer, v.x, v.tokens, v.shape.MaxTokens, c))
				assert.NoError(t, f.Finish(t.Context(), out))
				counts[r] = b.n
				assert.NoError(t, b.Flush())
				rule, _, _ := f.Rule()
				rules[r] = rule.How
				assert.Equal(t, want[own.Start*v.shape.Embd:own.End*v.shape.Embd], kerneltest.Bits(out[:own.Len()*v.shape.Embd]))
				f.Free()
			})
		}
		done.Wait()
		require.Equal(t, counts[0], counts[1])
		require.Equal(t, rules[0], rules[1])
		return counts[0], rules[0]
	}
	without, _ := step(false, true, false)
	served, how := step(true, false, false)
	require.Equal(t, assign.Together, how)
	require.Equal(t, without+1, served, "the host waits for the ids")
	idle, how := step(true, true, false)
	require.Equal(t, assign.Owners, how)
	require.Equal(t, without, idle)
	_, how = step(true, true, true)
	require.Equal(t, assign.Together, how)
}
