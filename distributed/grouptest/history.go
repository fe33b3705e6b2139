package grouptest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// history runs one random sequence of operations of all kinds and sizes three
// times: reducing as the transport chooses, always as Scatter and always as
// Whole. Every run must give the same bytes, on all ranks.
func history(t *testing.T, connect Connect, s Setup) {
	var first []byte
	for run := range 3 {
		s.Scatter, s.Whole = run == 1, run == 2
		groups := connect(t, s)
		out := make([][]byte, s.Size)
		each(t, groups, func(g Group) error {
			var log bytes.Buffer
			err := live(t.Context(), g, &log)
			out[g.Rank()] = log.Bytes()
			return err
		})
		for r, o := range out {
			require.True(t, bytes.Equal(out[0], o), "rank %d differs from rank 0", r)
		}
		if run == 0 {
			first = out[0]
		}
		require.True(t, bytes.Equal(first, out[0]), "run %d differs from the first", run)
	}
}

// live runs the sequence on one rank and writes to log what all ranks must
// agree on.
func live(ctx context.Context, g Group, log *bytes.Buffer) error {
	r := rand.New(rand.NewPCG(11, uint64(g.Size()))) // the same on all ranks
	n, rank := g.Size(), g.Rank()
	for step := range 60 {
		size := 2 * r.IntN(40)
		if r.IntN(3) == 0 {
			size = 2 * r.IntN(10*Chunk)
		}
		own := random(size, step, rank)
		dst := make([]byte, size)
		root := r.IntN(n)
		var err error
		switch op := r.IntN(7); op {
		case 0, 1:
			p := g.StartAllSum(ctx, dst, own, distributed.Float16)
			err = p.Wait()
		case 2:
			err = g.AllMax(ctx, dst, own, distributed.BFloat16)
		case 3:
			dst = make([]byte, n*size)
			err = g.AllGather(ctx, dst, own)
		case 4:
			copy(dst, random(size, step, root)) // the other ranks' bytes must be overwritten
			if rank != root {
				clear(dst)
			}
			err = g.Broadcast(ctx, dst, root)
		case 5:
			err = g.Barrier(ctx)
		case 6:
			sizes := make([]int, n)
			total := 0
			for i := range sizes {
				if r.IntN(2) == 0 {
					sizes[i] = r.IntN(size + 1)
				}
				total += sizes[i]
			}
			dst = make([]byte, total)
			at := 0
			for i, m := range sizes {
				if i == rank {
					copy(dst[at:at+m], own)
				}
				at += m
			}
			err = g.StartAllGatherV(ctx, dst, sizes).Wait()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		log.Write(dst)
	}
	return nil
}
