//go:build linux && cgo

package inguest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/testenv"
	"ringmaster/tests/rdmavm/job"
)

// network is how the ranks of a group are connected: rank r has port r of each
// rail.
type network struct {
	ranks, rails int
	ring         bool
	kind         verbs.QPType // 0: as the transport chooses, RC
}

func (n network) String() string {
	shape := "mesh"
	if n.ring {
		shape = "ring"
	}
	if n.kind != 0 {
		shape += " of " + n.kind.String()
	}
	return fmt.Sprintf("%s, rails=%d", shape, n.rails)
}

// matrix is the device matrix of the network.
func (n network) matrix() matrix.Matrix {
	m := make(matrix.Matrix, n.ranks)
	for r := range m {
		m[r] = make([][]string, n.ranks)
		for p := range m {
			near := !n.ring || (r+1)%n.ranks == p || (p+1)%n.ranks == r
			if p == r || !near {
				continue
			}
			for k := range n.rails {
				m[r][p] = append(m[r][p], job.Device(k, r))
			}
		}
	}
	return m
}

// options returns the options of a rank's transport.
func (n network) options() rdma.Options {
	return rdma.Options{
		Side: tcp.New(tcp.Options{}), Matrix: n.matrix(), Rules: matrix.Rules{Switched: true}, Ring: n.ring,
		Tuning: rdma.Tuning{Mesh: !n.ring, Type: n.kind, Model: plan.DefaultModel(), Spin: time.Microsecond, TokenTimeout: limit},
	}
}

// link returns the link over which rank r connects.
func (n network) link(r int, addrs []string) distributed.Link {
	return distributed.Link{Rank: r, Size: n.ranks, GroupID: "guest", Epoch: 3, Token: bytes.Repeat([]byte{5}, 32), Addrs: addrs, OpTimeout: 2 * limit}
}

// connect makes the groups of all ranks in this process.
func (n network) connect(t *testing.T, change func(r int, o *rdma.Options, l *distributed.Link)) []*distributed.Group {
	t.Helper()
	transports := make([]*rdma.Transport, n.ranks)
	links := make([]distributed.Link, n.ranks)
	addrs := make([]string, n.ranks)
	for r := range transports {
		o := n.options()
		links[r] = n.link(r, addrs)
		if change != nil {
			change(r, &o, &links[r])
		}
		transports[r] = rdma.New(o)
		t.Cleanup(func() { require.NoError(t, transports[r].Close()) })
		var err error
		addrs[r], err = transports[r].Listen("127.0.0.1")
		require.NoError(t, err)
	}
	ctx := testenv.Within(t, 3*limit)
	groups := make([]*distributed.Group, n.ranks)
	errs := make([]error, n.ranks)
	var all sync.WaitGroup
	for r := range groups {
		all.Go(func() { groups[r], errs[r] = transports[r].Connect(ctx, links[r]) })
	}
	all.Wait()
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
		t.Cleanup(func() { require.NoError(t, groups[r].Close()) })
	}
	return groups
}

// networks are tried with 2 to 4 ranks each: RC, which the transport chooses on
// Ethernet, and UC, where soft-RoCE loses a message without a posted receive.
var networks = []network{
	{rails: 1}, {rails: 2}, {rails: 1, ring: true}, {rails: 2, ring: true},
	{rails: 1, kind: verbs.UC}, {rails: 2, ring: true, kind: verbs.UC},
}

// TestContract tests groups over the kernel's stack against the contract of all
// transports. The job selects with -test.run as much as there is time for.
func TestContract(t *testing.T) {
	for _, n := range networks {
		t.Run(n.String(), func(t *testing.T) {
			grouptest.Run(t, grouptest.Here(func(t *testing.T, s grouptest.Setup) []*distributed.Group {
				n := n
				n.ranks = s.Size
				_, ports := fabric(t)
				if s.Size > ports {
					t.Skip("NOT APPLICABLE: the guest has not as many devices")
				}
				return n.connect(t, func(_ int, o *rdma.Options, l *distributed.Link) {
					o.Tuning.OneRail = -1 // also small messages over all rails
					if s.Scatter {
						o.Tuning.Force = plan.TwoShot
					}
					if s.Whole {
						o.Tuning.Force = plan.OneShot
					}
					l.OpTimeout = s.OpTimeout
				})
			}))
		})
	}
}

// TestMeasured: a group whose wires are calibrated, as in service, reports how
// it is connected.
func TestMeasured(t *testing.T) {
	for _, n := range networks {
		n.ranks = 3
		t.Run(n.String(), func(t *testing.T) {
			var mu sync.Mutex
			groups := n.connect(t, func(r int, o *rdma.Options, _ *distributed.Link) {
				o.Tuning.Model = plan.Model{}
				if r == 0 {
					o.Report = func(line string) {
						mu.Lock()
						defer mu.Unlock()
						t.Log(line)
					}
				}
			})
			for _, g := range groups {
				require.Equal(t, "rdma", g.Kind())
			}
			t.Log(groups[0].Describe().Topology)
		})
	}
}
