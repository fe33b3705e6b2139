//go:build cgo && (linux || darwin)

package rdma

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/internal/testenv"
)

const none = distributed.Undefined

// splits splits a group on all ranks at once; nil for a rank without a group.
func splits(t testing.TB, groups []*distributed.Group, colors, keys []int) []*distributed.Group {
	t.Helper()
	children := make([]*distributed.Group, len(groups))
	succeed(t, onAll(groups, func(i int, g *distributed.Group) (err error) {
		children[i], err = g.Split(t.Context(), colors[i], keys[i])
		return err
	}))
	return children
}

// works makes each group of a list run sums over all rails and exchange
// messages; all groups at the same time.
func works(t testing.TB, groups []*distributed.Group) {
	t.Helper()
	succeed(t, onAll(groups, func(_ int, g *distributed.Group) error {
		for _, n := range []int{60, 70_000} {
			if err := checkedSum(t.Context(), g, n); err != nil {
				return err
			}
		}
		return exchanged(t.Context(), g, 20_000)
	}))
}

// exchanged sends to the next rank and receives from the previous one: by
// SendRecv, and by Send and Recv.
func exchanged(ctx context.Context, g *distributed.Group, n int) error {
	size, r := g.Size(), g.Rank()
	if size == 1 {
		return nil
	}
	next, before := (r+1)%size, (r+size-1)%size
	for way := range 2 {
		dst := make([]byte, n)
		send := func() error { return g.Send(ctx, pattern(n, r), next) }
		recv := func() error { return g.Recv(ctx, dst, before) }
		steps := []func() error{send, recv}
		if r == 0 {
			steps = []func() error{recv, send}
		}
		if way == 0 {
			steps = []func() error{func() error { return g.SendRecv(ctx, dst, before, pattern(n, r), next) }}
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		if err := sentBy(before, dst); err != nil {
			return err
		}
	}
	return nil
}

// sentOver is the number of bytes that have arrived so far from each device of
// a network.
func (x *ranks) sentOver(w net) map[string]int {
	sent := map[string]int{}
	for r := range w.matrix {
		for _, d := range w.matrix.Devices(r) {
			sent[d] = x.fabric.Count("bytes:" + d)
		}
	}
	return sent
}

// kinds returns the kinds of the groups in a list.
func kinds(groups []*distributed.Group) []string {
	out := make([]string, len(groups))
	for i, g := range groups {
		if out[i] = "-"; g != nil {
			out[i] = g.Kind()
		}
	}
	return out
}

// TestSplitContract tests children of RDMA groups, over rails or not, against
// the contract of Split.
func TestSplitContract(t *testing.T) {
	for _, c := range []struct {
		name  string
		ring  bool
		rails int
		words string
		level testenv.Level
	}{
		{"mesh, 1 rail, UC", false, 1, "", testenv.Fast},
		{"ring, 2 rails, UC, late, poison", true, 2, "late=1 poison=1", testenv.Exhaustive},
		{"mesh, 1 rail, RC", false, 1, "link=eth", testenv.Exhaustive},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.Need(t, c.level, "the contract of Split on this shape of cables")
			connect := contractGroup(c.ring, c.rails, c.words)
			grouptest.Splits(t, func(t *testing.T, s grouptest.Setup) []grouptest.Group {
				if s.Size > 4 {
					testenv.Need(t, testenv.Full, "splits of more than four ranks")
				}
				return connect(t, s)
			})
		})
	}
}

// contractGroup makes groups for the suites.
func contractGroup(ring bool, rails int, words string) grouptest.Connect {
	return grouptest.Here(func(t *testing.T, s grouptest.Setup) []*distributed.Group {
		if s.Size == 1 {
			return []*distributed.Group{distributed.Local()}
		}
		w := meshOf(s.Size, rails, words)
		if ring {
			w = ringOf(s.Size, rails, words)
		}
		return group(t, w, s.Size, func(_ int, o *rdma.Options, l *distributed.Link) {
			o.Tuning.Cap, o.Tuning.OneRail, o.Tuning.Mesh = -1, -1, !ring
			if s.Scatter {
				o.Tuning.Force = plan.TwoShot
			}
			if s.Whole {
				o.Tuning.Force = plan.OneShot
			}
			l.OpTimeout = max(s.OpTimeout, 2*time.Second) // a child is formed in half of it
		}).groups
	})
}

// TestContractOnChildren runs the suite for all transports on children over
// rails.
func TestContractOnChildren(t *testing.T) {
	for _, words := range []string{"", "link=eth"} {
		t.Run(words, func(t *testing.T) {
			testenv.Need(t, testenv.Full, "the contract on children over rails")
			if words != "" {
				testenv.Need(t, testenv.Exhaustive, "the contract on children with RC queue pairs")
			}
			make := grouptest.OnChildren(contractGroup(false, 1, words))
			grouptest.Run(t, func(t *testing.T, s grouptest.Setup) []grouptest.Group {
				if s.Size > 4 {
					t.Skip("NOT APPLICABLE: as many ranks as four")
				}
				children := make(t, s)
				if s.Size > 1 && s.OpTimeout > 2*time.Second { // with shorter deadlines a slow token test may leave a rail out
					require.Equal(t, "rdma", children[0].Kind())
				}
				return children
			})
		})
	}
}

// TestChildrenOnRails: sub-groups made by a split (mlx #3245) move their data
// over the rails, as the devices' own counters show, down to the third
// generation, and only over the cables of their members.
func TestChildrenOnRails(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		for _, words := range []string{"max_qp=10", "link=eth"} { // the parent and three generations
			t.Run(fmt.Sprintf("rails=%d %s", rails, words), func(t *testing.T) {
				w := meshOf(4, rails, words)
				x := group(t, w, 4, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.OneRail = -1 })
				first := splits(t, x.groups, []int{5, 5, 5, 5}, []int{3, 2, 1, 0}) // all, reversed
				second := splits(t, first, []int{0, 0, 0, none}, []int{0, 0, 0, 0})
				third := splits(t, second, []int{1, 0, 1, 0}, []int{0, 0, 0, 0}) // 2 and 0 of the parent
				require.Equal(t, []string{"rdma", "rdma", "rdma", "rdma"}, kinds(first))
				require.Equal(t, []string{"rdma", "rdma", "rdma", "-"}, kinds(second))
				require.Equal(t, []string{"rdma", "local", "rdma", "-"}, kinds(third))
				require.Equal(t, []int{3, 2, 1, 0}, []int{first[0].Rank(), first[1].Rank(), first[2].Rank(), first[3].Rank()})
				require.Equal(t, []int{1, 0}, []int{third[0].Rank(), third[2].Rank()})
				for _, gen := range []struct {
					groups  []*distributed.Group
					members []int // those that have rails
				}{{first, []int{0, 1, 2, 3}}, {second, []int{0, 1, 2}}, {third, []int{0, 2}}, {x.groups, []int{0, 1, 2, 3}}} {
					in := map[int]bool{}
					for _, r := range gen.members {
						in[r] = true
					}
					before := x.sentOver(w)
					works(t, gen.groups)
					total := 0
					for r := range 4 {
						for p := range 4 {
							for _, d := range w.matrix[r][p] {
								n := x.fabric.Count("bytes:"+d) - before[d]
								total += n
								if !in[r] || !in[p] {
									require.Zero(t, n, "%s is no rail of %v", d, gen.members)
								}
							}
						}
					}
					// Every member gets the sum, and every message goes once.
					n := len(gen.members)
					require.Greater(t, total, (n-1)*(60+70_000)+2*n*20_000)
					if n == 2 {
						for _, d := range append(w.matrix[0][2], w.matrix[2][0]...) {
							require.Greater(t, x.fabric.Count("bytes:"+d)-before[d], 10_000, "%s carries its part", d)
						}
					}
				}
			})
		}
	}
}

// TestChildOverUnusedCables: a child uses the cables that its parent's ring leaves
// out; one without a cable between its members runs over TCP and reports that; both
// work.
func TestChildOverUnusedCables(t *testing.T) {
	w := joined(4, 1, func(a, b int) bool { return (a+b)%4 != 2 || a == b || a+b == 2 && a*b == 0 }, "", "")
	require.NotEmpty(t, w.matrix[0][2])
	w.matrix[1][3], w.matrix[3][1] = nil, nil
	x := group(t, w, 4, nil)
	require.Contains(t, x.groups[0].Describe().Topology, "ring")
	children := splits(t, x.groups, []int{0, 1, 0, 1}, []int{0, 0, 0, 0})
	require.Equal(t, []string{"rdma", "tcp", "rdma", "tcp"}, kinds(children))
	require.Contains(t, strings.Join(children[1].Describe().Notes, "\n"), "neither a ring nor a mesh")
	before := x.fabric.Count("bytes")
	works(t, []*distributed.Group{nil, children[1], nil, children[3]})
	require.Equal(t, before, x.fabric.Count("bytes"), "nothing went over rails")
	works(t, children)
	works(t, splits(t, children, []int{0, 0, 0, 0}, []int{1, 1, 0, 0}))
	works(t, x.groups)
}

// TestChildWithoutResources: if a device of one member lacks the resources for a
// child, whether it reports so or refuses a call, the child runs over TCP on all
// members, says why, and leaves nothing behind on the devices; other children are
// not affected.
func TestChildWithoutResources(t *testing.T) {
	testenv.Need(t, testenv.Full, "children of devices without resources")
	for _, c := range []struct{ link, words, text string }{
		{"", "max_qp=1", "the device's queue pairs are used up"},                           // refused; the device reports 2
		{"", "max_qp=1 told_qp=0", "the device's queue pairs are used up"},                 // refused; the device reports nothing
		{"", "max_qp=1 told_qp=1", "1 of 1 queue pairs are in use, and 1 more are needed"}, // reported
		{"", "max_mr=1", "1 of 1 memory regions are in use, and 1 more are needed"},        // reported
		{"", "max_cq=1", "1 of 1 completion queues are in use, and 1 more are needed"},     // reported
		{"", "max_mr_size=1000000", "a memory region has at most 1000000 bytes"},           // reported
		{"", "max_mem=3000000", "reg_mr on"},                                               // refused
		{"link=eth", "max_mem=4000000", "raise the limit of locked memory"},                // refused
		{"link=eth", "max_qp=1", "1 of 1 queue pairs are in use, and 1 more are needed"},   // reported
	} {
		for rails := 1; rails <= 2; rails++ {
			t.Run(fmt.Sprintf("%s %s, %d rails", c.link, c.words, rails), func(t *testing.T) {
				words := cmp.Or(c.link, "profile=26.3") // of long messages, for the sizes of memory
				w := meshOf(4, rails, words)
				short := device(1, 0, rails-1)
				line := "device " + short + " host=1 "
				require.Contains(t, w.script, line)
				w.script = strings.Replace(w.script, line, line+c.words+" ", 1)
				x := group(t, w, 4, nil)
				before := [3]int{x.fabric.Count("qps"), x.fabric.Count("mrs"), x.fabric.Count("cqs")}
				children := splits(t, x.groups, []int{0, 0, 1, 1}, []int{1, 0, 0, 0})
				require.Equal(t, []string{"tcp", "tcp", "rdma", "rdma"}, kinds(children))
				for _, r := range []int{0, 1} {
					why := strings.Join(children[r].Describe().Notes, "\n")
					for _, text := range []string{c.text, "rank 0 (world rank 1)", short, "all its members use tcp"} {
						require.Contains(t, why, text)
					}
				}
				x.mu.Lock()
				require.Contains(t, strings.Join(x.lines, "\n"), "all its members use tcp", "it is reported")
				x.mu.Unlock()
				require.Equal(t, before[0]+2*rails, x.fabric.Count("qps"), "of the other child")
				require.Equal(t, before[1]+2*rails, x.fabric.Count("mrs"))
				require.Equal(t, before[2]+2*rails, x.fabric.Count("cqs"))
				sent := x.sentOver(w)
				works(t, children)
				works(t, x.groups)
				for k := range rails {
					require.Greater(t, x.fabric.Count("bytes:"+device(2, 3, k)), sent[device(2, 3, k)])
				}
			})
		}
	}
	// A device has ten queue pairs (it reports eleven) on macOS 26 and three on 27.
	// The parent uses one of them.
	for _, c := range []struct {
		most  int
		words string
		text  string
	}{
		{10, "max_qp=10 told_qp=11", "the device's queue pairs are used up (10 on macOS 26, 3 on 27"},
		{3, "max_qp=3 told_qp=3", "3 of 3 queue pairs are in use, and 1 more are needed"},
	} {
		t.Run(fmt.Sprintf("%d queue pairs", c.most), func(t *testing.T) {
			x := group(t, meshOf(2, 1, c.words), 2, nil)
			var all [][]*distributed.Group
			for n := range c.most + 2 {
				children := splits(t, x.groups, []int{0, 0}, []int{0, 0})
				all = append(all, children)
				want := "rdma"
				if n >= c.most-1 {
					want = "tcp"
					require.Contains(t, strings.Join(children[0].Describe().Notes, "\n"), c.text)
				}
				require.Equal(t, want, children[0].Kind(), "child %d", n)
				works(t, children)
			}
			require.Equal(t, 2*c.most, x.fabric.Count("qps"))
			works(t, x.groups)
			// A closed child frees its queue pair for the next one.
			for _, g := range all[0] {
				require.NoError(t, g.Close())
			}
			children := splits(t, x.groups, []int{0, 0}, []int{0, 0})
			require.Equal(t, "rdma", children[0].Kind())
			works(t, children)
		})
	}
}

// TestChildrenTakeTurns: two children and the parent, used one after the other
// in changing order, do not interfere with each other.
func TestChildrenTakeTurns(t *testing.T) {
	x := group(t, meshOf(4, 2, "late=1 poison=1"), 4, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Cap, o.Tuning.OneRail = 0, -1 })
	pairs := splits(t, x.groups, []int{0, 0, 1, 1}, []int{0, 0, 0, 0})
	across := splits(t, x.groups, []int{0, 1, 1, 0}, []int{0, 1, 0, 1})
	succeed(t, onAll(x.groups, func(i int, g *distributed.Group) error {
		for step := range 60 {
			of := []*distributed.Group{g, pairs[i], across[i]}[(step*step+step/3)%3]
			if err := checkedSum(t.Context(), of, 1+step*531); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if err := exchanged(t.Context(), of, 1+step*97); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		return nil
	}))
}

// TestChildrenAreGivenBack: in whatever order groups and children are closed,
// nothing stays on the devices, and no goroutine or connection remains; a child
// of a closed parent says so. Some of the children have rails, or all.
func TestChildrenAreGivenBack(t *testing.T) {
	for _, words := range []string{"", "max_qp=2"} {
		t.Run(words, func(t *testing.T) { givenBack(t, words) })
	}
}

func givenBack(t *testing.T, words string) {
	x := setup(t, meshOf(3, 2, words), 3, nil)
	closed := func(_ int, g *distributed.Group) error { return g.Close() }
	objects := func() [4]int {
		return [4]int{x.fabric.Count("qps"), x.fabric.Count("mrs"), x.fabric.Count("cqs"), x.fabric.Count("pds")}
	}
	round := func(order []int) {
		succeed(t, x.connect(t.Context()))
		child := splits(t, x.groups, []int{0, 0, 0}, []int{2, 1, 0})
		other := splits(t, x.groups, []int{0, 0, none}, []int{0, 0, 0})
		grand := splits(t, child, []int{0, 0, none}, []int{0, 0, 0})
		families := [][]*distributed.Group{x.groups, child, other, grand}
		for _, f := range families {
			works(t, f)
		}
		over := func(families ...[]*distributed.Group) {
			for _, f := range families {
				for i, err := range onAll(f, func(_ int, g *distributed.Group) error { return g.Barrier(t.Context()) }) {
					if f[i] != nil {
						require.ErrorIs(t, err, distributed.ErrClosed)
					}
				}
			}
		}
		defer func() { // again, in order of creation
			for _, f := range families {
				succeed(t, onAll(f, closed))
			}
		}()
		for _, k := range order {
			succeed(t, onAll(families[k], closed))
			switch k {
			case 0:
				over(families...) // the parent; all are closed with it
			case 1:
				over(child, grand)
			default:
				over(families[k])
			}
			if k == 0 {
				return
			}
			works(t, x.groups)
		}
	}
	round([]int{3, 2, 1, 0})
	goroutines, files, left := runtime.NumGoroutine(), listed(t, "/proc/self/fd"), objects()
	require.Equal(t, [4]int{0, 0, 0, 12}, left, "domains stay with their devices")
	for _, order := range [][]int{{0, 1, 2, 3}, {1, 0, 2, 3}, {2, 3, 0, 1}, {3, 1, 0, 2}, {1, 2, 3, 0}, {2, 1, 3, 0}} {
		for r := range x.links {
			x.links[r].Epoch++
		}
		round(order)
		require.Equal(t, left, objects(), "%v", order)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 }, 10*time.Second, 10*time.Millisecond, "goroutines") // one is the poller of Eventually
	require.Eventually(t, func() bool { return listed(t, "/proc/self/fd") <= files }, 10*time.Second, 10*time.Millisecond, "connections")
}

// TestManyChildren: hundreds of children, made and closed, leave nothing
// behind.
func TestManyChildren(t *testing.T) {
	count := 20
	if testenv.Rest(t, testenv.Full, "100 children") {
		count = 100
	}
	x := group(t, meshOf(2, 1, ""), 2, nil)
	for range count {
		children := splits(t, x.groups, []int{3, 3}, []int{1, 0})
		require.Equal(t, "rdma", children[0].Kind())
		// Each rank closes its child as soon as its own part is done.
		succeed(t, onAll(children, func(_ int, g *distributed.Group) error {
			if err := checkedSum(t.Context(), g, 50_000); err != nil {
				return err
			}
			return g.Close()
		}))
	}
	require.Equal(t, 2, x.fabric.Count("qps"))
	require.Equal(t, 2, x.fabric.Count("mrs"))
	sums(t, x)
}

// TestEarlyGoodbye: a member that closes a child as soon as its own part of an
// operation is done does not break the operation for members that still wait
// for another's part.
func TestEarlyGoodbye(t *testing.T) {
	for _, words := range []string{"", "link=eth"} {
		x := group(t, meshOf(3, 1, words), 3, nil)
		children := splits(t, x.groups, []int{0, 0, 0}, []int{0, 0, 0})
		require.NoError(t, x.fabric.Script("fault device=r2to1_0 on=recv do=delay:300000"))
		left := make(chan time.Time, 1)
		var end time.Time
		succeed(t, onAll(children, func(r int, g *distributed.Group) error {
			if err := checkedSum(t.Context(), g, 1000); err != nil {
				return err
			}
			switch r {
			case 0:
				err := g.Close()
				left <- time.Now()
				return err
			case 2:
				end = time.Now()
			}
			return nil
		}))
		require.True(t, (<-left).Before(end), "rank 0 had left when rank 2 was done: else this shows nothing")
		err := children[2].Barrier(t.Context())
		require.ErrorIs(t, err, distributed.ErrPeerGone)
		require.ErrorContains(t, err, "rank 0 (world rank 0)")
	}
}
