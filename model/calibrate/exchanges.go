package calibrate

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/parallel/cost"
)

// sizes are the bytes of the exchanges that are timed, and repeats how often at most:
// one token of a narrow model up to a chunk of a wide one.
var (
	sizes   = []int{2 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20}
	repeats = []int{9, 9, 5, 3, 3}
)

// work is how long a rank computes before each exchange: with less, the ranks would
// poll for each other's data all the time, which ranks that compute do not.
const work = 300 * time.Microsecond

// exchange is one kind of exchange that models use.
type exchange struct {
	kind distributed.Kind
	root bool // only rank 0 waits
	run  func(ctx context.Context, g *distributed.Group, buf []byte) error
}

var kinds = []exchange{
	{distributed.AllSum, false, func(ctx context.Context, g *distributed.Group, buf []byte) error {
		return g.AllSum(ctx, buf, buf, distributed.Float16)
	}},
	{distributed.AllGatherV, false, func(ctx context.Context, g *distributed.Group, buf []byte) error {
		return g.AllGatherV(ctx, buf, parts(g, len(buf)))
	}},
	{distributed.Gather, true, func(ctx context.Context, g *distributed.Group, buf []byte) error {
		all := parts(g, len(buf))
		at := 0
		for _, n := range all[:g.Rank()] {
			at += n
		}
		return g.Gather(ctx, buf, buf[at:at+all[g.Rank()]], all, 0)
	}},
}

// parts divides n bytes evenly; the last rank has what is left.
func parts(g *distributed.Group, n int) []int {
	out := slices.Repeat([]int{n / g.Size()}, g.Size())
	out[g.Size()-1] += n % g.Size()
	return out
}

// exchanges times exchanges of every kind, from small ones to those that the budget
// still allows, which rank 0 decides. The lines are rank 0's.
func exchanges(ctx context.Context, g *distributed.Group, b Budget) (cost.Links, error) {
	samples := map[distributed.Kind][]cost.Sample{}
	began, rate := b.Now(), 0.0 // seconds of a byte, with all kinds
	for i, n := range sizes {
		// What is left must be enough for all kinds at this size.
		next := 0
		left := b.Exchanges - b.Now().Sub(began)
		if expected := time.Duration(rate * float64(n*(repeats[i]+1)) * float64(time.Second)); i < 2 || expected < left {
			next = 1
		}
		next, err := Agree(ctx, g, next)
		if err != nil {
			return nil, fmt.Errorf("calibrate: exchanges: %w", err)
		}
		if next == 0 {
			break
		}
		rate = 0
		for _, k := range kinds {
			took, err := timeExchange(ctx, g, k, n, repeats[i], b.Now)
			if err != nil {
				return nil, fmt.Errorf("calibrate: %v of %d bytes: %w", k.kind, n, err)
			}
			samples[k.kind] = append(samples[k.kind], cost.Sample{Bytes: float64(n), Seconds: took})
			rate += took / float64(n)
		}
	}
	return fitLinks(samples)
}

func fitLinks(samples map[distributed.Kind][]cost.Sample) (cost.Links, error) {
	links := cost.Links{}
	for kind, s := range samples {
		l, err := cost.Fit(s)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %v: %w", kind, err)
		}
		links[kind.String()] = l
	}
	// A message is half of the shortest exchange, in which each rank hears of
	// the other.
	first := samples[distributed.AllSum][0].Seconds / 2
	links[cost.Message] = cost.Line{Fixed: first, Points: 1, Sizes: 1}
	return links, nil
}

// timeExchange is the median seconds of n exchanges of so many bytes, after one that
// is not counted. An exchange lasts from when the last rank has begun, so what counts is
// the least of the times that the ranks have measured; of one with a root the root's,
// which begins last.
func timeExchange(ctx context.Context, g *distributed.Group, k exchange, bytes, n int, now func() time.Time) (float64, error) {
	buf, times := make([]byte, bytes), make([]byte, 0, 8*n)
	for i := range n + 1 {
		if k.root {
			if err := g.Barrier(ctx); err != nil { // else a sender would run ahead
				return 0, err
			}
		}
		start := now()
		for now().Sub(start) < work {
		}
		start = now()
		if err := k.run(ctx, g, buf); err != nil {
			return 0, err
		}
		if i > 0 {
			times = binary.LittleEndian.AppendUint64(times, uint64(max(now().Sub(start), 1)))
		}
	}
	all := make([]byte, g.Size()*len(times))
	if err := g.AllGather(ctx, all, times); err != nil {
		return 0, err
	}
	least := make([]uint64, n)
	for i := range least {
		least[i] = binary.LittleEndian.Uint64(all[8*i:])
		for r := 1; r < g.Size() && !k.root; r++ {
			least[i] = min(least[i], binary.LittleEndian.Uint64(all[len(times)*r+8*i:]))
		}
	}
	slices.Sort(least)
	return time.Duration(least[n/2]).Seconds(), nil
}
