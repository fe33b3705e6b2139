package calibrate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/parallel/cost"
)

// sizes are the bytes of the exchanges that are timed: one token of a narrow model up to
// a chunk of a wide one. repeats bounds how often each is timed.
var (
	sizes   = []int{2 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20}
	repeats = []int{9, 9, 5, 3, 3}
)

// work is how long a rank computes before each exchange. With less, the ranks would poll
// for each other's data all the time, which ranks that compute do not.
const work = 300 * time.Microsecond

// exchange is one kind of exchange that models use.
type exchange struct {
	kind distributed.Kind
	root bool // only rank 0 waits
	// run has two buffers of the bytes of the exchange.
	run func(ctx context.Context, g *distributed.Group, buf, other []byte) error
}

var kinds = []exchange{
	{distributed.AllSum, false, func(ctx context.Context, g *distributed.Group, buf, other []byte) error {
		return g.AllSum(ctx, buf, buf, distributed.Float16)
	}},
	{distributed.ReduceScatter, false, func(ctx context.Context, g *distributed.Group, buf, other []byte) error {
		all := parts(g, len(buf)/2)
		for r := range all {
			all[r] *= 2 // bytes of a number
		}
		return g.ReduceScatter(ctx, other[:all[g.Rank()]], buf, all, distributed.Float16)
	}},
	{distributed.AllGatherV, false, func(ctx context.Context, g *distributed.Group, buf, other []byte) error {
		return g.AllGatherV(ctx, buf, parts(g, len(buf)))
	}},
	{distributed.Gather, true, func(ctx context.Context, g *distributed.Group, buf, other []byte) error {
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
// still allows, which rank 0 decides. All ranks get the same samples.
func exchanges(ctx context.Context, g *distributed.Group, b Budget) (map[distributed.Kind][]cost.Sample, error) {
	samples := map[distributed.Kind][]cost.Sample{}
	began, rate := b.Now(), 0.0 // seconds of a byte, with all kinds
	message := 0.0              // the shortest exchange, of the first kind
	for i, n := range sizes {
		// The remaining time must be enough for all kinds at this size.
		next := 0
		left := b.Exchanges - b.Now().Sub(began)
		if expected := time.Duration(rate * float64(n*(repeats[i]+1)) * float64(time.Second)); i < 2 || expected < left {
			next = 1
		}
		agreed, err := Agree(ctx, g, next)
		if err != nil {
			return nil, fmt.Errorf("calibrating exchanges: %w", err)
		}
		if agreed[0] == 0 {
			break
		}
		rate = 0
		for _, k := range kinds {
			times, err := timeExchange(ctx, g, k, n, repeats[i], message, b.Now)
			if err != nil {
				return nil, fmt.Errorf("calibrating %v of %d bytes: %w", k.kind, n, err)
			}
			for _, t := range times {
				samples[k.kind] = append(samples[k.kind], cost.Sample{Bytes: float64(n), Seconds: t})
			}
			rate += times[len(times)/2] / float64(n)
			if message == 0 {
				message = times[len(times)/2]
			}
		}
	}
	return samples, nil
}

// fitLinks fits a line to each kind, on a group of so many ranks.
func fitLinks(samples map[distributed.Kind][]cost.Sample, ranks int) (cost.Links, error) {
	links := cost.Links{}
	for kind, s := range samples {
		l, err := cost.Fit(s)
		if err != nil {
			return nil, fmt.Errorf("calibrating %v: %w", kind, err)
		}
		links[kind.String()] = l
	}
	// The shortest exchange is a message each way at the same time, because the vote on a
	// value beyond float16 is such an exchange.
	shortest := samples[distributed.AllSum][repeats[0]/2].Seconds
	links[cost.Message] = cost.Line{Fixed: shortest, Points: 1, Sizes: 1}
	// In an all-gather a rank receives the parts of all others, by the port by which a message
	// between two ranks comes. A broadcast is taken to be as a message.
	if ranks > 1 {
		gather := links[distributed.AllGatherV.String()]
		gather.Fixed, gather.PerByte = shortest, gather.PerByte*float64(ranks)/float64(ranks-1)
		links[cost.Message], links[distributed.Broadcast.String()] = gather, gather
	}
	links[distributed.AllMax.String()] = cost.Line{Fixed: shortest, Points: 1, Sizes: 1}
	return links, nil
}

// timeExchange is the seconds of n exchanges of so many bytes, the least first, after one
// that is not counted. It uses the mean of the times that the ranks have measured,
// because on a slow link a rank that begins late finds data of the others on its way and
// waits less, by as much as those wait more. For an exchange with a root it uses the
// root's time. A barrier has made the messages of the others wait, so that the root
// begins one exchange before them if messages take long. One such exchange is taken off,
// but no more than half.
func timeExchange(ctx context.Context, g *distributed.Group, k exchange, bytes, n int, message float64, now func() time.Time) ([]float64, error) {
	buf, other, times := make([]byte, bytes), make([]byte, bytes), make([]byte, 0, 8*n)
	for i := range n + 1 {
		if k.root {
			if err := g.Barrier(ctx); err != nil { // otherwise a sender would run ahead
				return nil, err
			}
		}
		start := now()
		for now().Sub(start) < work {
		}
		start = now()
		if err := k.run(ctx, g, buf, other); err != nil {
			return nil, err
		}
		if i > 0 {
			times = binary.LittleEndian.AppendUint64(times, uint64(max(now().Sub(start), 1)))
		}
	}
	all := make([]byte, g.Size()*len(times))
	if err := g.AllGather(ctx, all, times); err != nil {
		return nil, err
	}
	out := make([]float64, n)
	for i := range out {
		of := func(r int) float64 {
			return time.Duration(binary.LittleEndian.Uint64(all[len(times)*r+8*i:])).Seconds()
		}
		if k.root {
			out[i] = math.Max(of(0)-message, of(0)/2)
			continue
		}
		for r := range g.Size() {
			out[i] += of(r) / float64(g.Size())
		}
	}
	slices.Sort(out)
	return out, nil
}
