package decodertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/testenv"
	"ringmaster/model/decoder"
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

// OverTCP checks that results over real sockets have the bits of those over shared
// memory, and with exact those of one rank, for small and for scattered
// operations.
func (a Architecture) OverTCP(t *testing.T) {
	_, f, steps := a.small(t, 51)
	reduces := []parallel.Reduce{parallel.Exact}
	if testenv.Rest(t, testenv.Full, "--reduce sum over TCP") {
		reduces = append(reduces, parallel.Sum)
	}
	for _, reduce := range reduces {
		o := decoder.OpenOptions{MaxTokens: 48, Reduce: reduce}
		for i, shares := range [][]float64{{1, 1}, {3, 1, 2}, {2, 1}, {1, 1, 1}} {
			all, how := a.OpenAll(t, f, len(shares), false, o), BothShares[i/2]
			all.Join(t, how, shares)
			want := all.Play(t, steps)
			placement := all.Place(t, how, shares)
			for _, threshold := range []int{-1, 1 << 10} {
				for _, from := range []int{0, 4} { // rows of a step that is divided
					all.join(t, overTCP(t, len(shares), threshold), placement.DivideRows(from))
					RequireSame(t, want, all.Play(t, steps), fmt.Sprint(reduce, how, shares, threshold, from))
				}
			}
			if reduce == parallel.Exact {
				RequireSame(t, a.PlayAlone(t, f, o, steps), want, fmt.Sprint(how, shares))
			}
		}
	}
}
