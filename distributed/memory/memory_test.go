package memory

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

var number atomic.Int64

// connect makes the groups of a test.
func connect(t *testing.T, s grouptest.Setup) []*distributed.Group {
	if s.Size > 4 { // as over TCP, with the same code above the driver
		testenv.Need(t, testenv.Exhaustive, "the contract on more than four ranks")
	}
	network := NewNetwork()
	addrs := make([]string, s.Size)
	for r := range addrs {
		addrs[r] = fmt.Sprintf("goroutine %d", r)
	}
	id := fmt.Sprint(number.Add(1))
	groups := make([]*distributed.Group, s.Size)
	for r, err := range grouptest.OnAll(addrs, func(r int, _ string) (err error) {
		groups[r], err = network.Connect(t.Context(), distributed.Link{
			Rank: r, Size: s.Size, GroupID: id, Token: bytes.Repeat([]byte{2}, 32), Addrs: addrs, OpTimeout: s.OpTimeout,
		})
		return err
	}) {
		require.NoError(t, err, "rank %d", r)
		t.Cleanup(func() { require.NoError(t, groups[r].Close()) })
	}
	return groups
}

func TestContract(t *testing.T) { grouptest.Run(t, grouptest.Here(connect)) }

func TestSplit(t *testing.T) { grouptest.Splits(t, grouptest.Here(connect)) }

func TestContractOnChildren(t *testing.T) {
	testenv.Need(t, testenv.Full, "the contract on children of a split")
	grouptest.Run(t, grouptest.OnChildren(grouptest.Here(connect)))
}

// TestLazy: until all ranks wait, no data has moved and destinations have
// poison.
func TestLazy(t *testing.T) {
	groups := Groups(2)
	src, dst := []byte{1, 0, 0, 0}, make([]byte, 4)
	p := groups[0].StartAllSum(t.Context(), dst, src, distributed.Int32)
	require.Equal(t, []byte{255, 255, 255, 255}, dst)
	q := groups[1].StartAllSum(t.Context(), make([]byte, 4), []byte{2, 0, 0, 0}, distributed.Int32)
	require.Equal(t, []byte{255, 255, 255, 255}, dst)
	done := make(chan error)
	go func() { done <- q.Wait() }()
	require.NoError(t, p.Wait())
	require.NoError(t, <-done)
	require.Equal(t, []byte{3, 0, 0, 0}, dst)
}

// TestJoinEnds: when the context ends, the error names the rank that has not
// joined.
func TestJoinEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := NewNetwork().Connect(ctx, distributed.Link{Rank: 0, Size: 2, Token: make([]byte, 32), Addrs: make([]string, 2), OpTimeout: time.Second})
	require.ErrorIs(t, err, distributed.ErrBootstrap)
	require.ErrorContains(t, err, "rank 1 has not joined")
}
