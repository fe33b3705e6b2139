//go:build cgo && (linux || darwin)

package rdma

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// opTimeout is the deadline of operations under faults: some faults show only
// as a timeout.
const opTimeout = 400 * time.Millisecond

// fault is one fault of the fabric.
type fault struct {
	name  string
	words string // of a fault statement, without device and nth
	// harmless: the operations must still succeed.
	harmless bool
	// unreliable: only possible on queue pairs without acknowledgements.
	unreliable bool
}

var faults = []fault{
	{name: "send status 1", words: "on=send do=status:1"},
	{name: "send status 12", words: "on=send do=status:12"},
	{name: "send status 13 behind its flushes", words: "on=send do=status:13 flush_first=1"},
	{name: "send status 5", words: "on=send do=status:5"},
	{name: "recv status 1", words: "on=recv do=status:1"},
	{name: "recv status 4", words: "on=recv do=status:4"},
	{name: "recv status 19", words: "on=recv do=status:19"},
	{name: "recv status 99", words: "on=recv do=status:99"},
	{name: "message lost", words: "on=send do=drop", unreliable: true},
	{name: "completion of a send lost", words: "on=send do=swallow"},
	{name: "completion of a receive lost", words: "on=recv do=swallow"},
	{name: "completion of a send twice", words: "on=send do=dup"},
	{name: "completion of a receive twice", words: "on=recv do=dup"},
	{name: "send late", words: "on=send do=delay:3000", harmless: true},
	{name: "receive late", words: "on=recv do=delay:3000", harmless: true},
	{name: "poll negative", words: "on=poll do=negative:-1"},
	{name: "poll -12", words: "on=poll_any do=negative:-12"},
	{name: "poll more than asked", words: "on=poll do=more:3"},
	{name: "completion queue overrun", words: "on=poll do=overrun"},
	{name: "post_send 12", words: "on=post_send do=errno:12"},
	{name: "post_send -12", words: "on=post_send do=errno:-12"},
	{name: "post_recv 22", words: "on=post_recv do=errno:22"},
	{name: "direction dies", words: "on=send do=kill_direction"},
	{name: "rail dies", words: "on=send do=kill_rail"},
	{name: "host dies at a send", words: "on=send do=kill_host"},
	{name: "host dies at a poll", words: "on=poll do=kill_host"},
	{name: "port goes down", words: "on=send do=port_down"},
}

// operations are the collectives under test; each checks its result.
var operations = []struct {
	name string
	do   func(ctx context.Context, g *distributed.Group) error
}{
	{"short sum", func(ctx context.Context, g *distributed.Group) error { return checkedSum(ctx, g, 900) }},
	{"sum", func(ctx context.Context, g *distributed.Group) error { return checkedSum(ctx, g, 70_000) }},
	{"started sum", func(ctx context.Context, g *distributed.Group) error {
		b := pattern(200_000, g.Rank())
		return g.StartAllSum(ctx, b, b, distributed.Uint8).Wait()
	}},
	{"gather", func(ctx context.Context, g *distributed.Group) error {
		const n = 30_000
		dst := make([]byte, n*g.Size())
		if err := g.AllGather(ctx, dst, pattern(n, g.Rank())); err != nil {
			return err
		}
		for r := range g.Size() {
			if err := sentBy(r, dst[r*n:(r+1)*n]); err != nil {
				return err
			}
		}
		return nil
	}},
	{"reduce-scatter", func(ctx context.Context, g *distributed.Group) error {
		sizes := make([]int, g.Size())
		total, at := 0, 0
		for r := range sizes {
			if sizes[r] = 20_000 + 3*r; r == g.Rank() {
				at = total
			}
			total += sizes[r]
		}
		dst := make([]byte, sizes[g.Rank()])
		if err := g.StartReduceScatter(ctx, dst, pattern(total, g.Rank()), sizes, distributed.Uint8).Wait(); err != nil {
			return err
		}
		want := make([]byte, len(dst))
		for r := range g.Size() {
			for i, v := range pattern(total, r)[at : at+len(want)] {
				want[i] += v
			}
		}
		if string(dst) != string(want) {
			return errors.New("wrong result")
		}
		return nil
	}},
	{"broadcast", func(ctx context.Context, g *distributed.Group) error {
		b := pattern(50_000, g.Rank())
		if err := g.Broadcast(ctx, b, 1); err != nil {
			return err
		}
		return sentBy(1, b)
	}},
	{"barrier", func(ctx context.Context, g *distributed.Group) error { return g.Barrier(ctx) }},
	{"exchange", func(ctx context.Context, g *distributed.Group) error {
		n, r := g.Size(), g.Rank()
		dst := make([]byte, 40_000)
		if err := g.SendRecv(ctx, dst, (r+n-1)%n, pattern(40_000, r), (r+1)%n); err != nil {
			return err
		}
		return sentBy((r+n-1)%n, dst)
	}},
}

// TestFaults injects each fault at each phase of the operations, on 2 to 4
// ranks: every rank gets the right error within the deadline and one second,
// and no result is wrong.
func TestFaults(t *testing.T) {
	var cases, fired atomic.Int64
	turn := 0
	every := 83 // one case in this many is run
	if testenv.Rest(t, testenv.Full, "an eighth of the combinations of fault, phase and operation") {
		every = 8
		if testenv.Rest(t, testenv.Exhaustive, "every fault in every phase of every operation") {
			every = 1
		}
	}
	t.Run("all", func(t *testing.T) {
		for _, words := range []string{"", "link=eth rc_timeout_us=2000", drops} {
			for n := 2; n <= 4; n++ {
				for _, f := range faults {
					if f.unreliable && strings.HasPrefix(words, "link=eth rc") {
						continue
					}
					for phase, nth := range []int{1, 2, 7} {
						for i, op := range operations {
							turn++
							if (turn+phase+i)%every != 0 {
								continue
							}
							t.Run(fmt.Sprintf("%s, event %d, %s, %d ranks %s", f.name, nth, op.name, n, words), func(t *testing.T) {
								t.Parallel()
								cases.Add(1)
								if oneFault(t, n, words, f, nth, op.do) {
									fired.Add(1)
								}
							})
						}
					}
				}
			}
		}
	})
	t.Logf("%d cases of faults, %d of them happened", cases.Load(), fired.Load())
	require.Greater(t, fired.Load(), cases.Load()*3/4, "faults that do not happen prove nothing")
}

func oneFault(t *testing.T, n int, words string, f fault, nth int, do func(ctx context.Context, g *distributed.Group) error) bool {
	rails := 1 + n%2
	w := meshOf(n, rails, words+" poison=1")
	if n == 4 {
		w = ringOf(n, 1, words+" poison=1")
	}
	var mu sync.Mutex
	told := map[int][]int{}
	x := group(t, w, n, func(r int, o *rdma.Options, l *distributed.Link) {
		o.Tuning.Cap = -1
		o.Tuning.OneRail = -1
		if words == drops {
			o.Tuning.Type = verbs.UC
		}
		l.OpTimeout = opTimeout
		if f.harmless {
			l.OpTimeout = time.Minute // must never expire
		}
		l.VerdictTimeout = 50 * time.Millisecond
		l.Suspect = func(peer int, _ error) {
			mu.Lock()
			told[r] = append(told[r], peer)
			mu.Unlock()
		}
		if n == 3 {
			o.Tuning.Force = plan.TwoShot
		}
	})
	dev := device(0, 1, 0)
	require.NoError(t, x.fabric.Script(fmt.Sprintf("fault device=%s %s nth=%d", dev, f.words, nth)))
	errs := make([]error, n)
	waited := starved()
	most := 24 // number of operations, unless one fails earlier
	if f.harmless {
		most = 6
	}
	var all sync.WaitGroup
	for r, g := range x.groups {
		all.Go(func() {
			// A fault at the end of an operation is reported by the next
			// operation.
			for range most {
				if errs[r] = do(context.Background(), g); errs[r] != nil {
					break
				}
			}
		})
	}
	all.Wait()
	waited = max(0, starved()-waited)
	happened := x.fabric.Count("fault:0") > 0
	for r, err := range errs {
		if err == nil {
			require.True(t, f.harmless || !happened || lastOf(f) || healed(f, words), "rank %d ends well", r)
			continue
		}
		op := f.failed(t, r, err)
		require.GreaterOrEqual(t, op.Peer, 0, "%v", err)
		mu.Lock()
		require.LessOrEqual(t, len(told[r]), 1, "told once")
		mu.Unlock()
		// The deadline of the operation that failed, and one second; the
		// operations before it are short. On a busy host, also the time for
		// which this process was waiting for a processor.
		require.Less(t, op.Elapsed, opTimeout+time.Second+waited, "%v", err)
	}
	return happened
}

// failed requires that the fault may fail an operation, and that rank r's error is not a
// wrong result and names another rank.
func (f fault) failed(t *testing.T, r int, err error) *distributed.OpError {
	t.Helper()
	require.NotContains(t, err.Error(), "wrong sum", "rank %d", r)
	require.NotContains(t, err.Error(), "wrong result", "rank %d", r)
	require.False(t, f.harmless, "rank %d: %v", r, err)
	var op *distributed.OpError
	require.ErrorAs(t, err, &op, "rank %d", r)
	require.NotEqual(t, r, op.WorldPeer(), "%v", err)
	require.NotEmpty(t, op.Addr)
	return op
}

// starved is how long the threads of this process, all together, have been
// runnable without getting a processor (second field of the kernel's
// schedstat); 0 where the system does not report it.
func starved() time.Duration {
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		return 0
	}
	total := time.Duration(0)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited int64
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			total += time.Duration(waited)
		}
	}
	return total
}

// healed: if writes announce credits, the next write makes up for a lost one.
func healed(f fault, words string) bool { return f.unreliable && words == drops }

// lastOf: faults that may have no effect if they come last.
func lastOf(f fault) bool {
	return f.words == "on=send do=swallow" || f.words == "on=send do=dup" || f.words == "on=recv do=dup"
}

// TestFaultsWhileFormed: driver calls that fail while the group is formed fail
// the bring-up on every rank; the error names the call and the device and says
// what to do, and nothing stays open.
func TestFaultsWhileFormed(t *testing.T) {
	for _, c := range []struct{ words, text string }{
		{"on=open do=errno:13", "open_device"},
		{"on=query do=errno:5", "query_device"},
		{"on=port do=errno:5", "query_port"},
		{"on=alloc_pd do=errno:12", "alloc_pd"},
		{"on=reg_mr do=errno:12 count=all", "reg_mr"},
		{"on=create_cq do=errno:12", "create_cq"},
		{"on=create_qp do=errno:16", "create_qp"},
		{"on=init do=errno:22", "modify_qp to INIT"},
		{"on=rtr do=errno:22 count=all", "neither a ring nor a mesh"},
		{"on=rts do=errno:22 count=all", "neither a ring nor a mesh"},
		{"on=send do=drop count=all", "no data arrived through"},
		{"on=send do=corrupt:17 count=all", "no data arrived through"},
	} {
		for n := 2; n <= 3; n++ {
			t.Run(fmt.Sprintf("%s, %d ranks", c.words, n), func(t *testing.T) {
				w := meshOf(n, 1, "")
				if n == 3 {
					w = joined(3, 1, func(a, b int) bool { return a == 1 || b == 1 }, "", "")
					w.matrix[0][2], w.matrix[2][0] = []string{"x"}, []string{"y"}
					w.script += "device x host=0\ndevice y host=2\ncable x y\n"
				}
				w.script += fmt.Sprintf("fault device=%s %s\n", device(1, 0, 0), c.words)
				x := setup(t, w, n, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.TokenTimeout = 50 * time.Millisecond })
				ctx := testenv.Within(t, 20*time.Second)
				for r, err := range x.connect(ctx) {
					if n == 3 && err == nil {
						continue // the two cables left form a chain, which cannot be a group, or one dead cable was left out
					}
					require.ErrorIs(t, err, distributed.ErrBootstrap, "rank %d", r)
					require.ErrorContains(t, err, c.text)
				}
			})
		}
	}
	t.Run("a rail that fails once is made again", func(t *testing.T) {
		w := meshOf(2, 1, "")
		w.script += "fault device=r1to0_0 on=rtr do=errno:16\n"
		sums(t, group(t, w, 2, nil))
	})
	t.Run("queue pairs used up", func(t *testing.T) {
		w := meshOf(2, 1, "max_qp=0")
		setup(t, w, 2, nil).refused(t, distributed.ErrBootstrap, "used up (10 on macOS 26, 3 on 27", "rank 0")
	})
}
