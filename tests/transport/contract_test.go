package transport

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/internal/testenv"
)

var number atomic.Int64

// connect makes the groups of a test, each rank on a goroutine of its own.
func connect(t *testing.T, s grouptest.Setup) []*distributed.Group {
	n := &pipes{ends: map[string]chan net.Conn{}}
	id, addrs := fmt.Sprint(number.Add(1)), make([]string, s.Size)
	for r := range addrs {
		addrs[r] = fmt.Sprintf("goroutine %d", r)
	}
	groups, errs := make([]*distributed.Group, s.Size), make([]error, s.Size)
	var all sync.WaitGroup
	for r := range s.Size {
		all.Go(func() {
			groups[r], errs[r] = n.Connect(t.Context(), distributed.Link{
				Rank: r, Size: s.Size, GroupID: id, Token: bytes.Repeat([]byte{1}, 32), Addrs: addrs, OpTimeout: s.OpTimeout,
			})
		})
	}
	all.Wait()
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
		t.Cleanup(func() { require.NoError(t, groups[r].Close()) })
	}
	return groups
}

// TestSum is what every run checks; the contract follows in the full one.
func TestSum(t *testing.T) {
	groups := connect(t, grouptest.Setup{Size: 3, OpTimeout: time.Minute})
	var all sync.WaitGroup
	for r, g := range groups {
		all.Go(func() {
			b := []byte{byte(r + 1), 10}
			assert.NoError(t, g.AllSum(t.Context(), b, b, distributed.Uint8))
			assert.Equal(t, []byte{6, 30}, b)
		})
	}
	all.Wait()
}

func TestContract(t *testing.T) {
	testenv.Need(t, testenv.Full, "the whole contract over pipes")
	grouptest.Run(t, grouptest.Here(connect))
}

func TestSplit(t *testing.T) {
	testenv.Need(t, testenv.Full, "splits over pipes")
	grouptest.Splits(t, grouptest.Here(connect))
}
