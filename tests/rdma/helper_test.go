//go:build cgo && (linux || darwin)

// Package rdma tests the RDMA transport, over the verbs library without
// hardware, against the contract of groups and against known failures of other
// implementations.
package rdma

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/testenv"
	"ringmaster/tests/fakeverbs"
)

// net is a network of ranks: the fabric's script and the matching device
// matrix.
type net struct {
	script string
	matrix matrix.Matrix
}

// device names rank r's device for rail k to rank p.
func device(r, p, k int) string { return fmt.Sprintf("r%dto%d_%d", r, p, k) }

// joined makes a network in which near says which ranks are joined by cables,
// `rails` of them per pair. words are added to every device, cableWords to every
// cable.
func joined(n, rails int, near func(a, b int) bool, words, cableWords string) net {
	return cabled(n, func(a, b int) int {
		if near(a, b) {
			return rails
		}
		return 0
	}, words, cableWords)
}

// cabled is joined with a number of cables for each pair.
func cabled(n int, rails func(a, b int) int, words, cableWords string) net {
	var s strings.Builder
	m := make(matrix.Matrix, n)
	for r := range n {
		m[r] = make([][]string, n)
		for p := range n {
			if p == r {
				continue
			}
			for k := range rails(min(r, p), max(r, p)) {
				m[r][p] = append(m[r][p], device(r, p, k))
				fmt.Fprintf(&s, "device %s host=%d %s\n", device(r, p, k), r, words)
			}
		}
	}
	for a := range n {
		for b := a + 1; b < n; b++ {
			for k := range m[a][b] {
				fmt.Fprintf(&s, "cable %s %s %s\n", device(a, b, k), device(b, a, k), cableWords)
			}
		}
	}
	return net{s.String(), m}
}

func meshOf(n, rails int, words string) net {
	return joined(n, rails, func(int, int) bool { return true }, words, "")
}

// unevenMesh is a mesh whose pairs have one to three cables.
func unevenMesh(n int, words string) net {
	return cabled(n, func(a, b int) int { return 1 + (a*a+b)%3 }, words, "")
}

func ringOf(n, rails int, words string) net {
	return joined(n, rails, func(a, b int) bool { return (a+1)%n == b || (b+1)%n == a }, words, "")
}

// ranks are the ranks of a test in one process.
type ranks struct {
	fabric     *fakeverbs.Fabric
	transports []*rdma.Transport
	links      []distributed.Link
	groups     []*distributed.Group
	mu         sync.Mutex
	lines      []string // what rank 0 reported
}

// model replaces the calibration in tests that do not measure.
var model = plan.DefaultModel()

// setup makes the transports of n ranks; change edits the options and the link
// of each.
func setup(t testing.TB, w net, n int, change func(r int, o *rdma.Options, l *distributed.Link)) *ranks {
	t.Helper()
	x := &ranks{fabric: fakeverbs.New(t, w.script), groups: make([]*distributed.Group, n)}
	addrs := make([]string, n)
	for r := range n {
		o := rdma.Options{Side: tcp.New(tcp.Options{Threshold: -1}), Matrix: w.matrix, Tuning: rdma.Tuning{
			Library: x.fabric.Path, Model: model, Spin: time.Microsecond, TokenTimeout: 20 * time.Second}}
		if r == 0 {
			o.Report = func(line string) {
				x.mu.Lock()
				x.lines = append(x.lines, line)
				x.mu.Unlock()
			}
		}
		l := distributed.Link{Rank: r, Size: n, GroupID: "test", Epoch: 7, Token: bytes.Repeat([]byte{9}, 32), Addrs: addrs, OpTimeout: time.Minute}
		if change != nil {
			change(r, &o, &l)
		}
		tr := rdma.New(o)
		addr, err := tr.Listen("127.0.0.1")
		require.NoError(t, err)
		addrs[r] = addr
		x.transports = append(x.transports, tr)
		x.links = append(x.links, l)
	}
	t.Cleanup(func() {
		for r := range n {
			if x.groups[r] != nil {
				require.NoError(t, x.groups[r].Close())
			}
			require.NoError(t, x.transports[r].Close())
		}
	})
	return x
}

// connect connects all ranks at once.
func (x *ranks) connect(ctx context.Context) []error {
	errs := make([]error, len(x.links))
	var all sync.WaitGroup
	for r := range x.links {
		all.Go(func() {
			g, err := x.transports[r].Connect(ctx, x.links[r])
			if err == nil {
				x.groups[r] = g
			}
			errs[r] = err
		})
	}
	all.Wait()
	return errs
}

// refused requires that no rank connects, for the cause and with the texts.
func (x *ranks) refused(t testing.TB, cause error, texts ...string) {
	t.Helper()
	for r, err := range x.connect(t.Context()) {
		require.ErrorIs(t, err, cause, "rank %d", r)
		for _, text := range texts {
			require.ErrorContains(t, err, text, "rank %d", r)
		}
	}
}

// group makes the connected group of a network.
func group(t testing.TB, w net, n int, change func(r int, o *rdma.Options, l *distributed.Link)) *ranks {
	t.Helper()
	x := setup(t, w, n, change)
	ctx := testenv.Within(t, time.Minute)
	succeed(t, x.connect(ctx))
	return x
}

// onAll runs f concurrently for every index that has a group.
func onAll(groups []*distributed.Group, f func(i int, g *distributed.Group) error) []error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, g := range groups {
		if g != nil {
			all.Go(func() { errs[i] = f(i, g) })
		}
	}
	all.Wait()
	return errs
}

// succeed requires that no index has an error.
func succeed(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		require.NoError(t, err, "rank %d", i)
	}
}

// each runs f on all ranks at once.
func (x *ranks) each(f func(g *distributed.Group) error) []error {
	errs := make([]error, len(x.groups))
	var all sync.WaitGroup
	for r, g := range x.groups {
		all.Go(func() { errs[r] = f(g) })
	}
	all.Wait()
	return errs
}

// cables returns the rails that a group uses.
func cables(g *distributed.Group) matrix.Matrix {
	return g.Driver().(interface{ Cables() matrix.Matrix }).Cables()
}

func (x *ranks) all(t testing.TB, f func(g *distributed.Group) error) {
	t.Helper()
	succeed(t, x.each(f))
}

// firstSums does sums of several sizes.
func firstSums(ctx context.Context, g *distributed.Group) error {
	for _, size := range []int{2, 4000, 16 << 10, 300 << 10} {
		if err := checkedSum(ctx, g, size); err != nil {
			return err
		}
	}
	return nil
}

func TestFirstSum(t *testing.T) {
	for n := 2; n <= 3; n++ {
		for rails := 1; rails <= 2; rails++ {
			for _, words := range []string{"", "link=eth"} {
				t.Run(fmt.Sprintf("n=%d rails=%d %s", n, rails, words), func(t *testing.T) {
					x := group(t, meshOf(n, rails, words), n, nil)
					x.all(t, func(g *distributed.Group) error { return firstSums(t.Context(), g) })
				})
			}
		}
	}
}
