package deepseek4_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/tcp"
	"ringmaster/model/deepseek4"
	"ringmaster/parallel"
)

// overTCP connects n ranks over the loopback interface. Operations of at least
// threshold bytes are scattered.
func overTCP(t *testing.T, n, threshold int) []*distributed.Group {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	transports, addrs := make([]distributed.Transport, n), make([]string, n)
	for r := range transports {
		transports[r] = tcp.New(tcp.Options{Threshold: threshold})
		t.Cleanup(func() { require.NoError(t, transports[r].Close()) })
		var err error
		addrs[r], err = transports[r].Listen("127.0.0.1")
		require.NoError(t, err)
	}
	groups, errs := make([]*distributed.Group, n), make([]error, n)
	var done sync.WaitGroup
	for r := range groups {
		done.Go(func() {
			groups[r], errs[r] = transports[r].Connect(ctx, distributed.Link{Rank: r, Size: n, GroupID: "test", Epoch: 1,
				Token: make([]byte, 32), Addrs: addrs, OpTimeout: 30 * time.Second})
		})
	}
	done.Wait()
	for r, g := range groups {
		require.NoError(t, errs[r])
		t.Cleanup(func() { require.NoError(t, g.Close()) })
	}
	return groups
}

// TestOverTCP: results over real sockets have the bits of those over shared
// memory, and with exact those of one rank, for small and for scattered
// operations.
func TestOverTCP(t *testing.T) {
	c := small(t)
	f := inMemory(t, c)
	steps := history(rand.New(rand.NewPCG(51, 52)), c.Vocab)
	for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
		o := deepseek4.Options{MaxTokens: 48, Reduce: reduce}
		for i, shares := range [][]float64{{1, 1}, {3, 1, 2}, {2, 1}, {1, 1, 1}} {
			all, how := openAll(t, f, len(shares), false, o), bothShares[i/2]
			all.join(t, how, shares)
			want := all.play(t, steps)
			placement := all.place(t, how, shares)
			for _, threshold := range []int{-1, 1 << 10} {
				for r, g := range overTCP(t, len(shares), threshold) {
					all[r].Forget()
					require.NoError(t, all[r].Join(g, placement))
				}
				requireSame(t, want, all.play(t, steps), fmt.Sprint(reduce, how, shares, threshold))
			}
			if reduce == parallel.Exact {
				one, _, err := play(openOn(t, f, false, o), steps)
				require.NoError(t, err)
				requireSame(t, one, want, fmt.Sprint(how, shares))
			}
		}
	}
}
