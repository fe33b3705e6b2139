// Package grouptest tests every transport against the contract of
// distributed.Group: results equal to a plain reference, the same bits on every
// rank and in every run, and an end to every wait.
package grouptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// Setup describes the groups that a test needs.
type Setup struct {
	Size      int
	OpTimeout time.Duration
	// Scatter makes the transport always use its algorithm for large
	// reductions, Whole never; otherwise the transport chooses.
	Scatter, Whole bool
}

// Connect makes a group and returns it as each rank sees it. The groups are
// closed when the test ends. A transport under test should split large messages
// into chunks of Chunk bytes, so that the sizes of the suite reach all cases.
type Connect func(t *testing.T, s Setup) []Group

// Chunk is the length in bytes around which the suite chooses sizes.
const Chunk = 4096

// Run tests a transport against the contract, in groups of 1 to 8 ranks.
func Run(t *testing.T, connect Connect) {
	for n := 1; n <= 8; n++ {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) { results(t, connect, n) })
	}
	for n := 2; n <= 3; n++ {
		t.Run(fmt.Sprintf("large, ranks=%d", n), func(t *testing.T) { large(t, connect, n) })
	}
	failures(t, connect)
}

// results compares the results of groups of n ranks with the reference.
func results(t *testing.T, connect Connect, n int) {
	s := Setup{Size: n, OpTimeout: time.Minute}
	whole, scattered := s, s
	whole.Whole, scattered.Scatter = true, true
	t.Run("reduce whole", func(t *testing.T) { reductions(t, connect(t, whole)) })
	t.Run("reduce scattered", func(t *testing.T) { reductions(t, connect(t, scattered)) })
	t.Run("move", func(t *testing.T) { moves(t, connect(t, s)) })
	t.Run("history", func(t *testing.T) { history(t, connect, s) })
	t.Run("arguments", func(t *testing.T) { arguments(t, connect(t, s)) })
	t.Run("order", func(t *testing.T) { order(t, connect(t, s)) })
}

// Local tests a group of one rank against the contract.
func Local(t *testing.T, local func(t *testing.T) *distributed.Group) {
	results(t, func(t *testing.T, _ Setup) []Group { return []Group{here{local(t)}} }, 1)
}

// each runs f on all ranks at once and requires that none fails.
func each(t *testing.T, groups []Group, f func(g Group) error) {
	t.Helper()
	for r, err := range OnAll(groups, func(_ int, g Group) error { return f(g) }) {
		require.NoError(t, err, "rank %d", r)
	}
}

// random returns n pseudo-random bytes, determined by the seeds.
func random(n int, seed ...int) []byte {
	h := uint64(14695981039346656037)
	for _, s := range seed {
		h = (h ^ uint64(s)) * 1099511628211
	}
	r := rand.NewChaCha8([32]byte{byte(h), byte(h >> 8), byte(h >> 16), byte(h >> 24), byte(h >> 32), byte(h >> 40), byte(h >> 48), byte(h >> 56)})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// blocks returns the inputs of all ranks.
func blocks(ranks, n int, seed ...int) [][]byte {
	b := make([][]byte, ranks)
	for r := range b {
		b[r] = random(n, append(seed, r)...)
	}
	return b
}

// elements returns the element counts worth testing with chunks of Chunk bytes.
func elements(dt distributed.DType) []int {
	c := Chunk / dt.Size()
	return []int{0, 1, 3, 8, 129, c - 1, c, c + 1, 3*c + 5}
}

type reducer func(g Group) func(ctx context.Context, dst, src []byte, dt distributed.DType) error

var reducers = map[kind]reducer{
	sum: func(g Group) func(context.Context, []byte, []byte, distributed.DType) error {
		return g.AllSum
	},
	maximum: func(g Group) func(context.Context, []byte, []byte, distributed.DType) error {
		return g.AllMax
	},
	minimum: func(g Group) func(context.Context, []byte, []byte, distributed.DType) error {
		return g.AllMin
	},
}

func reductions(t *testing.T, groups []Group) {
	n := len(groups)
	for dt := distributed.Bool; dt <= distributed.Complex64; dt++ {
		for _, count := range elements(dt) {
			for _, k := range []kind{sum, maximum, minimum} {
				if k != sum && count > 129 && dt != distributed.Float16 {
					continue // every kind need not repeat the sizes
				}
				in := blocks(n, count*dt.Size(), int(dt), count)
				want := reduced(k, dt, in)
				for _, inPlace := range []bool{false, true} {
					each(t, groups, func(g Group) error {
						src := append([]byte(nil), in[g.Rank()]...)
						dst := make([]byte, len(src))
						if inPlace {
							dst = src
						}
						err := reducers[k](g)(t.Context(), dst, src, dt)
						return compared(err, want, dst, "%v of %d %v, in place %v", k, count, dt, inPlace)
					})
				}
			}
			in := blocks(n, n*count*dt.Size(), int(dt), count)
			want := reduced(sum, dt, in)
			each(t, groups, func(g Group) error {
				own := count * dt.Size()
				dst := make([]byte, own)
				err := g.ReduceScatter(t.Context(), dst, in[g.Rank()], nil, dt)
				return compared(err, want[g.Rank()*own:(g.Rank()+1)*own], dst, "reduce_scatter of %d %v", count, dt)
			})
		}
	}
}

// same returns an error that describes the first difference, without printing
// megabytes.
func same(want, got []byte, format string, args ...any) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d bytes, want %d", fmt.Sprintf(format, args...), len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: byte %d is %02x, want %02x", fmt.Sprintf(format, args...), i, got[i], want[i])
		}
	}
	return nil
}

// compared is the error of an operation, or that of same.
func compared(err error, want, got []byte, format string, args ...any) error {
	if err != nil {
		return err
	}
	return same(want, got, format, args...)
}

// moves tests the operations that only move bytes.
func moves(t *testing.T, groups []Group) {
	n := len(groups)
	ctx := t.Context()
	for _, size := range []int{0, 1, 7, Chunk - 1, Chunk, Chunk + 1, 5*Chunk + 3} {
		parts := blocks(n, size, size)
		whole := slices.Concat(parts...)
		each(t, groups, func(g Group) error {
			r := g.Rank()
			dst := make([]byte, n*size)
			if err := compared(g.AllGather(ctx, dst, parts[r]), whole, dst, "all_gather of %d bytes", size); err != nil {
				return err
			}
			dst = make([]byte, n*size)
			own := dst[r*size : (r+1)*size]
			copy(own, parts[r])
			return compared(g.AllGather(ctx, dst, own), whole, dst, "all_gather in place of %d bytes", size)
		})
		for root := range n {
			each(t, groups, func(g Group) error {
				buf := append([]byte(nil), parts[g.Rank()]...)
				return compared(g.Broadcast(ctx, buf, root), parts[root], buf, "broadcast of %d bytes from %d", size, root)
			})
		}
		each(t, groups, func(g Group) error { return g.Barrier(ctx) })
		each(t, groups, func(g Group) error { return gatherV(ctx, g, size) })
		for root := range n {
			each(t, groups, func(g Group) error { return gatherTo(ctx, g, size, root) })
		}
		each(t, groups, func(g Group) error { return scatterV(ctx, g, size) })
		if n == 1 {
			continue
		}
		each(t, groups, func(g Group) error { return pass(ctx, g, parts) })
	}
}

// shapes returns sizes for n parts of up to size bytes, each a multiple of
// unit: all equal, some empty, increasing, all empty.
func shapes(n, size, unit int) [][]int {
	all := make([][]int, 4)
	for shape := range all {
		all[shape] = make([]int, n)
		for r := range n {
			switch shape {
			case 0:
				all[shape][r] = size
			case 1:
				all[shape][r] = (r % 2) * size
			case 2:
				all[shape][r] = size * r / n
			}
			all[shape][r] -= all[shape][r] % unit
		}
	}
	return all
}

// partsOf returns the parts of all ranks by sizes, concatenated, and the range
// of the rank's own part.
func partsOf(sizes []int, rank, seed int) (all []byte, from, to int) {
	for r, n := range sizes {
		if r == rank {
			from, to = len(all), len(all)+n
		}
		all = append(all, random(n, seed, r)...)
	}
	return all, from, to
}

// gatherV tests AllGatherV and its asynchronous form with parts of unequal
// length, some or all of them empty.
func gatherV(ctx context.Context, g Group, size int) error {
	for shape, sizes := range shapes(g.Size(), size, 1) {
		want, from, to := partsOf(sizes, g.Rank(), shape)
		dst := make([]byte, len(want))
		copy(dst[from:to], want[from:])
		err := g.StartAllGatherV(ctx, dst, sizes).Wait()
		if err = compared(err, want, dst, "all_gather_v of %v bytes", sizes); err != nil {
			return err
		}
		clear(dst)
		copy(dst[from:to], want[from:])
		if err := compared(g.AllGatherV(ctx, dst, sizes), want, dst, "all_gather_v of %v bytes", sizes); err != nil {
			return err
		}
	}
	return nil
}

// gatherTo tests Gather with parts of unequal length, out of place and in
// place.
func gatherTo(ctx context.Context, g Group, size, root int) error {
	for shape, sizes := range shapes(g.Size(), size, 1) {
		want, from, to := partsOf(sizes, g.Rank(), shape)
		own := append([]byte(nil), want[from:to]...)
		var dst []byte
		if g.Rank() == root {
			dst = make([]byte, len(want))
		}
		if err := g.Gather(ctx, dst, own, sizes, root); err != nil {
			return err
		}
		if g.Rank() == root {
			if err := same(want, dst, "gather of %v bytes to %d", sizes, root); err != nil {
				return err
			}
			clear(dst)
			copy(dst[from:to], own)
			own = dst[from:to]
		}
		if err := g.StartGather(ctx, dst, own, sizes, root).Wait(); err != nil {
			return err
		}
		if g.Rank() == root {
			if err := same(want, dst, "gather in place of %v bytes to %d", sizes, root); err != nil {
				return err
			}
		}
	}
	return nil
}

// scatterV tests ReduceScatter with parts of unequal length, some or all of
// them empty.
func scatterV(ctx context.Context, g Group, size int) error {
	const dt = distributed.Float16
	for shape, sizes := range shapes(g.Size(), size, dt.Size()) {
		total := 0
		for _, n := range sizes {
			total += n
		}
		in := blocks(g.Size(), total, shape, size)
		want := reduced(sum, dt, in)
		_, from, to := partsOf(sizes, g.Rank(), shape)
		dst := make([]byte, to-from)
		err := g.StartReduceScatter(ctx, dst, in[g.Rank()], sizes, dt).Wait()
		if err = compared(err, want[from:to], dst, "reduce_scatter of %v bytes", sizes); err != nil {
			return err
		}
	}
	return nil
}

// pass sends to the next rank, by SendRecv and by Send and Recv in an order
// that cannot block.
func pass(ctx context.Context, g Group, parts [][]byte) error {
	n, r := g.Size(), g.Rank()
	next, before := (r+1)%n, (r+n-1)%n
	dst := make([]byte, len(parts[r]))
	err := g.SendRecv(ctx, dst, before, parts[r], next)
	if err = compared(err, parts[before], dst, "send_recv of %d bytes", len(dst)); err != nil {
		return err
	}
	clear(dst)
	first, second := func() error { return g.Send(ctx, parts[r], next) }, func() error { return g.Recv(ctx, dst, before) }
	if r == 0 {
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	if err := compared(second(), parts[before], dst, "recv of %d bytes", len(dst)); err != nil {
		return err
	}
	if g, ok := g.(messenger); ok {
		return passAlong(ctx, g, n, r, parts)
	}
	return nil
}

// passAlong sends pieces along a chain of all ranks, as stages do: while a rank computes piece
// k, the piece before it is sent on and the piece after it arrives.
func passAlong(ctx context.Context, g messenger, n, r int, parts [][]byte) error {
	const pieces = 3
	held := make([][]byte, pieces)
	for k := range held {
		held[k] = make([]byte, len(parts[0]))
		if r == 0 {
			copy(held[k], parts[k%n])
		}
	}
	for slot := -1; slot <= pieces; slot++ { // -1: the first arrives; pieces: the last is sent
		from, to := -1, -1
		var dst, src []byte
		if slot+1 < pieces && slot >= -1 && r > 0 {
			from, dst = r-1, held[slot+1]
		}
		if slot > 0 && r+1 < n {
			to, src = r+1, held[slot-1]
		}
		if from < 0 && to < 0 {
			continue
		}
		if err := g.StartMessages(ctx, dst, from, src, to).Wait(); err != nil {
			return fmt.Errorf("messages of %d bytes: %w", len(parts[0]), err)
		}
	}
	for k := range held {
		if err := compared(nil, parts[k%n], held[k], "piece %d of %d bytes", k, len(parts[0])); err != nil {
			return err
		}
	}
	return nil
}

// large moves more data than any kernel buffer holds.
func large(t *testing.T, connect Connect, n int) {
	const size = 5<<20 + 6
	in := blocks(n, size, 1)
	want := reduced(sum, distributed.Float16, in)
	for _, s := range []Setup{{Whole: true}, {Scatter: true}, {}} {
		s.Size, s.OpTimeout = n, time.Minute
		groups := connect(t, s)
		each(t, groups, func(g Group) error {
			buf := append([]byte(nil), in[g.Rank()]...)
			p := g.StartAllSum(t.Context(), buf, buf, distributed.Float16)
			if err := compared(p.Wait(), want, buf, "%+v", s); err != nil {
				return err
			}
			got := append([]byte(nil), in[g.Rank()]...)
			if err := compared(g.Broadcast(t.Context(), got, 1), in[1], got, "broadcast"); err != nil {
				return err
			}
			return pass(t.Context(), g, in)
		})
	}
}

// arguments checks that an operation with invalid arguments does not begin.
func arguments(t *testing.T, groups []Group) {
	n := len(groups)
	ctx := t.Context()
	b := make([]byte, 64*n)
	for _, g := range groups {
		r := g.Rank()
		for name, err := range map[string]error{
			"unknown dtype":            g.AllSum(ctx, b, b, 14),
			"partial elements":         g.AllSum(ctx, b[:3], b[:3], distributed.Float16),
			"lengths":                  g.AllMax(ctx, b[:4], b[:8], distributed.Float16),
			"overlap":                  g.AllMin(ctx, b[:8], b[4:12], distributed.Float16),
			"gather length":            g.AllGather(ctx, b[:n*4+1], make([]byte, 4)),
			"scatter length":           g.ReduceScatter(ctx, make([]byte, 4), b[:4*n+4], nil, distributed.Float32),
			"scatter overlap":          g.ReduceScatter(ctx, b[:4], b[:4*n], nil, distributed.Float32),
			"scatter sizes":            g.ReduceScatter(ctx, make([]byte, 4), b[:4*n], make([]int, n), distributed.Float32),
			"scatter own part":         g.StartReduceScatter(ctx, make([]byte, 8), b[:4*n], slices.Repeat([]int{4}, n), distributed.Float32).Wait(),
			"scatter elements":         g.ReduceScatter(ctx, make([]byte, 3), b[:3*n], slices.Repeat([]int{3}, n), distributed.Float16),
			"gather own part":          g.Gather(ctx, b[:4*n], make([]byte, 5), slices.Repeat([]int{4}, n), r),
			"gather to a missing rank": g.Gather(ctx, b[:4*n], make([]byte, 4), slices.Repeat([]int{4}, n), n),
			"gather at the root":       g.StartGather(ctx, b[:4*n+1], make([]byte, 4), slices.Repeat([]int{4}, n), r).Wait(),
			"gather overlap":           g.Gather(ctx, b[:4*n], b[4*r+1:4*r+5], slices.Repeat([]int{4}, n), r),
			"to itself":                g.Send(ctx, b, r),
			"to a missing rank":        g.Send(ctx, b, n),
			"from a missing rank":      g.Recv(ctx, b, -1),
			"send_recv to itself":      g.SendRecv(ctx, make([]byte, 4), r, b, r),
			"root":                     g.Broadcast(ctx, b, n),
			"start, unknown dtype":     g.StartAllSum(ctx, b, b, 200).Wait(),
			"sizes":                    g.StartAllGatherV(ctx, b, make([]int, n)).Wait(),
			"number of sizes":          g.StartAllGatherV(ctx, b, make([]int, n+1)).Wait(),
		} {
			require.ErrorIs(t, err, distributed.ErrArgument, name)
			require.Equal(t, r, OpError(t, err).Rank, name)
		}
		over, cancel := context.WithCancelCause(ctx)
		cancel(fmt.Errorf("too late"))
		require.ErrorContains(t, g.Barrier(over), "too late")
	}
	each(t, groups, func(g Group) error { return g.Barrier(ctx) })
}

// order checks that there is one operation at a time, and the counts in Stats.
func order(t *testing.T, groups []Group) {
	ctx := t.Context()
	n := len(groups)
	before := make([]distributed.Stats, n)
	for r, g := range groups {
		require.Equal(t, r, g.Rank())
		require.Equal(t, n, g.Size())
		require.NotEmpty(t, g.Kind())
		before[r] = g.Stats()
	}
	const size = 3*Chunk + 2
	in := blocks(n, size, 5)
	want := reduced(sum, distributed.Float16, in)
	started := make([]Pending, n)
	dst := make([][]byte, n)
	for r, g := range groups { // Start must not wait for other ranks
		dst[r] = make([]byte, size)
		started[r] = g.StartAllSum(ctx, dst[r], in[r], distributed.Float16)
		require.ErrorIs(t, g.Barrier(ctx), distributed.ErrBusy)
		require.ErrorIs(t, g.StartAllSum(ctx, nil, nil, distributed.Float16).Wait(), distributed.ErrBusy)
		require.ErrorIs(t, g.AllGather(ctx, nil, nil), distributed.ErrBusy)
	}
	each(t, groups, func(g Group) error { return started[g.Rank()].Wait() })
	for r, g := range groups {
		require.NoError(t, same(want, dst[r], "rank %d", r))
		s := g.Stats().Sub(before[r])
		require.EqualValues(t, 1, s.Ops)
		if n > 1 {
			require.GreaterOrEqual(t, s.Sent, uint64(size*2*(n-1)/n))
			require.GreaterOrEqual(t, s.Received, uint64(size*2*(n-1)/n))
		}
		require.GreaterOrEqual(t, s.Waiting, time.Duration(0))
		require.GreaterOrEqual(t, s.Wire, time.Duration(0))
	}
}
