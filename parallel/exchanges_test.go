package parallel_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/kernels/reference"
	"ringmaster/parallel"
)

func TestOfAllLayers(t *testing.T) {
	a := parallel.Exchange{Purpose: "attention", Op: "all-reduce", Count: 1, Compute: 2, Waiting: 3, Wire: 4, Sent: 5}
	b := parallel.Exchange{Purpose: "attention", Op: "gather", Count: 7}
	twice := parallel.Exchange{Purpose: "attention", Op: "all-reduce", Count: 2, Compute: 4, Waiting: 6, Wire: 8, Sent: 10}
	layers := [][]parallel.Exchange{{a}, nil, {b, a}}
	require.Equal(t, []parallel.Exchange{twice, b}, parallel.OfAllLayers(layers))
	require.Equal(t, a, layers[0][0], "the lists of the layers are left as they were")
	require.Empty(t, parallel.OfAllLayers(nil))
}

// TestExchanges: exchanges are counted by layer, purpose and collective. The time between
// two is computing of the later one, and the part after the last layer has its own entry.
func TestExchanges(t *testing.T) {
	const ranks, n, steps = 2, 8, 3
	groups := memory.Groups(ranks)
	var meters [ranks]*parallel.Meter
	var all sync.WaitGroup
	errs := make([]error, ranks)
	for r, g := range groups {
		at := time.Unix(0, 0)
		m := parallel.NewMeter(func() time.Time {
			at = at.Add(time.Second)
			return at
		})
		meters[r] = m
		m.Join(g)
		b := reference.New()
		sum, err := parallel.NewCombiner(b, g, parallel.AllReduce, parallel.F32, n, m.For("attention"))
		require.NoError(t, err)
		gather, err := parallel.NewCombiner(b, g, parallel.Gather, parallel.F32, n, m.For("output head"))
		require.NoError(t, err)
		run := func(c *parallel.Combiner) error {
			ctx := context.Background()
			if err := c.Start(ctx, n, nil); err != nil {
				return err
			}
			return c.Finish(ctx, c.Parts(), n)
		}
		all.Go(func() {
			for range steps {
				m.StartStep()
				for layer := range 2 {
					for range layer + 1 {
						if errs[r] = run(sum); errs[r] != nil {
							return
						}
					}
					m.EndLayer(layer)
				}
				if errs[r] = run(gather); errs[r] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	for r, m := range meters {
		require.NoError(t, errs[r])
		layers := m.Exchanges()
		require.Len(t, layers, 3)
		for i, want := range []parallel.Exchange{
			{Purpose: "attention", Op: "all-reduce", Count: steps},
			{Purpose: "attention", Op: "all-reduce", Count: 2 * steps},
			{Purpose: "output head", Op: "gather", Count: steps},
		} {
			require.Len(t, layers[i], 1)
			x := layers[i][0]
			require.Equal(t, want.Purpose, x.Purpose)
			require.Equal(t, want.Op, x.Op)
			require.Equal(t, want.Count, x.Count)
			// Each reading of the clock takes a second: one for each exchange, and one for
			// the layer that ended before the first. The waits of the group are real time.
			readings := want.Count
			if i > 0 {
				readings += steps
			}
			require.InDelta(t, float64(readings), (x.Compute + x.Waiting + x.Wire).Seconds(), 1e-9)
			require.Same(t, &layers[i][0], parallel.Find(layers[i], x.Purpose, x.Op))
			require.Nil(t, parallel.Find(layers[i], x.Purpose, "all-gather"))
			before := x
			before.Sub(layers[i][0])
			require.Equal(t, parallel.Exchange{Purpose: x.Purpose, Op: x.Op}, before)
		}
		layers[0][0].Count = 100
		require.EqualValues(t, steps, m.Exchanges()[0][0].Count, "a copy")
		require.Positive(t, layers[1][0].Sent)
	}
}
