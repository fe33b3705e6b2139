//go:build cgo && (linux || darwin)

package rdma

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// resident returns the process's memory in bytes, 0 if the system does not report
// it.
func resident(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmRSS:") {
			var kb int
			_, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb)
			require.NoError(t, err)
			return kb << 10
		}
	}
	return 0
}

// listed returns the number of entries in a folder, 0 if it does not exist.
func listed(t testing.TB, folder string) int {
	entries, err := os.ReadDir(folder)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return len(entries)
}

// TestManyOperations: thousands of small operations need no more memory, queue
// entries, files or goroutines than the first ones.
func TestManyOperations(t *testing.T) {
	for _, words := range []string{"", drops} {
		t.Run(words, func(t *testing.T) { manyOperations(t, words) })
	}
}

func manyOperations(t *testing.T, words string) {
	// Where ranks outnumber free processors each operation waits for the scheduler.
	ops := 2_000
	if testenv.Rest(t, testenv.Full, "20,000 operations") {
		ops = 20_000
		if testenv.Rest(t, testenv.Exhaustive, "a million operations") {
			ops = 1_000_000
		}
	}
	x := group(t, meshOf(2, 1, words), 2, func(_ int, o *rdma.Options, l *distributed.Link) {
		o.Tuning.Type, l.OpTimeout = verbs.UC, time.Minute
	})
	run := func(ops int) {
		x.all(t, func(g *distributed.Group) error {
			src, dst := make([]byte, 4096), make([]byte, 4096)
			for i := range ops {
				n := 64 + 2*(i%7)
				clear(src[:n])
				src[i%n] = byte(1 + g.Rank())
				var err error
				switch i % 4 {
				case 0, 1:
					err = g.AllSum(t.Context(), dst[:n], src[:n], distributed.Uint8)
					if err == nil && dst[i%n] != 3 {
						err = errors.New("wrong sum")
					}
				case 2:
					err = g.StartAllGatherV(t.Context(), dst[:n], []int{n / 2, n - n/2}).Wait()
				default:
					err = g.Barrier(t.Context())
				}
				if err != nil {
					return fmt.Errorf("operation %d: %w", i, err)
				}
			}
			return nil
		})
	}
	run(ops / 10) // everything that is kept has been allocated after this
	runtime.GC()
	before, goroutines, files := resident(t), runtime.NumGoroutine(), listed(t, "/proc/self/fd")
	begun := time.Now()
	run(ops)
	took := time.Since(begun)
	runtime.GC()
	after := resident(t)
	t.Logf("%d operations in %v: memory %d KiB before, %d after; goroutines %d, %d; files %d, %d; queue pairs %d, regions %d, completion queues %d",
		ops, took, before>>10, after>>10, goroutines, runtime.NumGoroutine(), files, listed(t, "/proc/self/fd"),
		x.fabric.Count("qps"), x.fabric.Count("mrs"), x.fabric.Count("cqs"))
	require.InDelta(t, goroutines, runtime.NumGoroutine(), 4)
	require.Less(t, after, before+8<<20)
	require.InDelta(t, files, listed(t, "/proc/self/fd"), 2)
	require.Zero(t, x.fabric.Count("lost"))
	require.EqualValues(t, ops+ops/10, x.groups[0].Stats().Ops)
	require.Equal(t, 2, x.fabric.Count("qps"))
	require.Equal(t, 2, x.fabric.Count("mrs"))
}

// TestManyPlans: operations of always different lengths do not accumulate plans.
func TestManyPlans(t *testing.T) {
	x := group(t, ringOf(3, 2, ""), 3, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Cap = 1 })
	x.all(t, func(g *distributed.Group) error {
		for i := range 600 {
			if err := checkedSum(t.Context(), g, 1+i*37); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestEpochs: one transport forms one group after another, even after a failure,
// and leaves nothing behind.
func TestEpochs(t *testing.T) {
	x := setup(t, ringOf(3, 2, ""), 3, nil)
	for epoch := range 5 {
		for r := range x.links {
			x.links[r].Epoch = uint32(epoch)
		}
		succeed(t, x.connect(t.Context()))
		sums(t, x)
		if epoch%2 == 1 {
			x.groups[epoch%3].Fail(errors.New("enough"))
		}
		for _, g := range x.groups {
			require.NoError(t, g.Close())
		}
		require.Equal(t, 0, x.fabric.Count("qps"))
		require.Equal(t, 0, x.fabric.Count("mrs"))
		require.Equal(t, 0, x.fabric.Count("cqs"))
		require.Equal(t, 12, x.fabric.Count("contexts"), "devices stay open")
	}
}

// TestStopped: a rank that is stopped for a while, as by a debugger, and then
// continues breaks nothing.
func TestStopped(t *testing.T) {
	x := group(t, meshOf(3, 1, ""), 3, nil)
	require.NoError(t, x.fabric.Script("host 1 stopped"))
	before := x.fabric.Count("messages")
	done := make(chan []error, 1)
	go func() {
		done <- x.each(func(g *distributed.Group) error { return checkedSum(t.Context(), g, 100_000) })
	}()
	// The other two have sent each other everything that they can without it.
	require.NoError(t, grown(t.Context(), func() bool { return x.fabric.Count("messages") >= before+2 }))
	select {
	case errs := <-done:
		t.Fatalf("ended while a rank stood still: %v", errs)
	default:
	}
	require.NoError(t, x.fabric.Script("host 1 alive"))
	succeed(t, <-done)
}
