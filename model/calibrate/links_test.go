package calibrate_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/kernels"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// wire is a link of known cost: an exchange takes a latency and a time for each byte of its
// result, both as often as its kind says.
type wire struct {
	latency, perByte time.Duration
	times            map[distributed.Kind]int
}

// cost is the time of an exchange of so many bytes.
func (w wire) cost(k distributed.Kind, bytes int) time.Duration {
	return time.Duration(w.times[k]) * (w.latency + time.Duration(bytes)*w.perByte)
}

// timed is a driver over such a link, on which a clock passes. It notes how often each kind
// of exchange of each size ran.
type timed struct {
	distributed.Driver
	wire  wire
	clock *clock
	count map[distributed.Kind]map[int]int
}

// bytesOf is the result of an exchange: all of it, also where a rank gets a part.
func bytesOf(op *distributed.Op) int {
	switch op.Kind {
	case distributed.ReduceScatter:
		return len(op.Src)
	case distributed.Gather:
		n := 0
		for _, x := range op.Sizes {
			n += x
		}
		return n
	}
	return len(op.Dst)
}

// Wait implements distributed.Driver.
func (d *timed) Wait(op *distributed.Op) (distributed.Timing, error) {
	n := bytesOf(op)
	if d.count[op.Kind] == nil {
		d.count[op.Kind] = map[int]int{}
	}
	d.count[op.Kind][n]++
	d.clock.pass(d.wire.cost(op.Kind, n))
	return d.Driver.Wait(op)
}

// join makes a group of two ranks over such a link.
func (w wire) join(t *testing.T, clocks []clock) ([]*distributed.Group, []*timed) {
	network, groups, drivers := memory.NewNetwork(), make([]*distributed.Group, 2), make([]*timed, 2)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for r := range groups {
		wg.Go(func() {
			l := distributed.Link{Rank: r, Size: 2, GroupID: "test", Token: bytes.Repeat([]byte{1}, 32), Addrs: make([]string, 2), OpTimeout: time.Minute}
			groups[r], errs[r] = distributed.Form(t.Context(), l, func(ctx context.Context, l distributed.Link) (distributed.Driver, error) {
				d, err := network.Open(ctx, l)
				drivers[r] = &timed{d, w, &clocks[r], map[distributed.Kind]map[int]int{}}
				return drivers[r], err
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return groups, drivers
}

// TestLinks: of links of known cost the calibration expects those: the latency and the
// bytes of every kind of exchange, from as many repetitions of as many sizes as the
// budget allows, which is kept on links of any speed that can serve.
func TestLinks(t *testing.T) {
	times := map[distributed.Kind]int{distributed.AllSum: 2, distributed.ReduceScatter: 3, distributed.AllGatherV: 4, distributed.Gather: 5, distributed.Broadcast: 1, distributed.AllGather: 1, distributed.AllMax: 1}
	sizes := []int{2 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20}
	ran := func(n int) map[int]int { // repetitions, after one that is not counted
		out := map[int]int{}
		for i, r := range []int{9, 9, 5, 3, 3}[:n] {
			out[sizes[i]] = r + 1
		}
		return out
	}
	for name, c := range map[string]struct {
		wire wire
		ran  map[int]int // of each size
	}{
		"loopback":             {wire{50 * time.Microsecond, 0, times}, ran(5)},
		"200 us":               {wire{200 * time.Microsecond, 0, times}, ran(5)},
		"as slow as 1 Gbit/s":  {wire{50 * time.Microsecond, 8 * time.Nanosecond, times}, ran(3)},
		"as slow as 50 Mbit/s": {wire{time.Millisecond, 160 * time.Nanosecond, times}, ran(2)}, // the two least sizes take more than their part of the budget
	} {
		t.Run(name, func(t *testing.T) {
			clocks := make([]clock, 2)
			groups, drivers := c.wire.join(t, clocks)
			costs := measured(t, groups, options(parallel.Sum), clocks, func(r int) kernels.Backend {
				// Ops of many rows take so long that what the exchanges took is all that varies.
				return slow{processor(t), &clocks[r], 300 * time.Microsecond}
			})
			for _, k := range []distributed.Kind{distributed.AllSum, distributed.ReduceScatter, distributed.AllGatherV, distributed.Gather} {
				got := map[int]int{}
				for _, n := range sizes {
					if ran := drivers[0].count[k][n]; ran > 0 {
						got[n] = ran
					}
				}
				require.Equal(t, c.ran, got, k.String())
				for _, n := range []int{0, 3000, 1 << 19} {
					want := c.wire.cost(k, n).Seconds()
					if k == distributed.Gather { // of it an exchange is taken off
						want -= c.wire.cost(distributed.AllSum, sizes[0]).Seconds()
					}
					require.InEpsilon(t, want, costs.Links[k.String()].Seconds(float64(n), 0), 0.15, "%v of %d bytes", k, n)
				}
			}
			message := c.wire.cost(distributed.AllSum, sizes[0]).Seconds()
			require.InEpsilon(t, message, costs.Links[cost.Message].Seconds(0, 0), 0.15)
			require.InEpsilon(t, message, costs.Links[distributed.AllMax.String()].Seconds(0, 0), 0.15)
		})
	}
}
