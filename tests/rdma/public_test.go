//go:build cgo && (linux || darwin)

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// Failures known from other implementations.

// pattern is data that depends on the sender.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed*101)
	}
	return b
}

// sentBy requires that received data is the pattern of its sender.
func sentBy(from int, got []byte) error {
	if !bytes.Equal(got, pattern(len(got), from)) {
		return fmt.Errorf("wrong result: %d bytes are not what rank %d has sent", len(got), from)
	}
	return nil
}

// TestSeveralRailReceive: with several rails a receive must not wait for
// messages that no rank sends (mlx #3654). The sizes are those that hung, and
// their neighbours; a barrier after each detects a leftover receive.
func TestSeveralRailReceive(t *testing.T) {
	sizes := map[int][]int{
		2: {1, 2, 4096, 4097, 5000, 8191, 8192, 8193, 16384, 16385, 65536, 65537},
		3: {1, 2, 4, 4096, 8192, 12288, 12289, 65536},
		4: {1, 2, 3, 4096, 8192, 16384, 16385},
	}
	for rails := 2; rails <= 4; rails++ {
		for _, words := range []string{"", "link=eth"} {
			t.Run(fmt.Sprintf("rails=%d %s", rails, words), func(t *testing.T) {
				x := group(t, ringOf(2, rails, words), 2, func(_ int, o *rdma.Options, l *distributed.Link) {
					o.Tuning.OneRail = -1 // also the smallest over all rails
					l.OpTimeout = 20 * time.Second
				})
				for _, n := range sizes[rails] {
					for _, from := range []int{0, 1} {
						x.all(t, func(g *distributed.Group) error {
							if g.Rank() == from {
								if err := g.Send(t.Context(), pattern(n, from), 1-from); err != nil {
									return err
								}
								return g.Barrier(t.Context())
							}
							got := make([]byte, n)
							if err := g.Recv(t.Context(), got, from); err != nil {
								return fmt.Errorf("%d bytes: %w", n, err)
							}
							return errors.Join(sentBy(from, got), g.Barrier(t.Context()))
						})
					}
				}
			})
		}
	}
}

// crossed makes two ranks with cables that the matrix lists in another order:
// shift 1 joins device k to device k+1.
func crossed(rails, shift int, words string) net {
	w := net{matrix: matrix.Matrix{{nil, nil}, {nil, nil}}}
	var s strings.Builder
	for k := range rails {
		w.matrix[0][1] = append(w.matrix[0][1], device(0, 1, k))
		w.matrix[1][0] = append(w.matrix[1][0], device(1, 0, k))
		fmt.Fprintf(&s, "device %s host=0 %s\ndevice %s host=1 %s\n", device(0, 1, k), words, device(1, 0, k), words)
	}
	for k := range rails {
		fmt.Fprintf(&s, "cable %s %s\n", device(0, 1, k), device(1, 0, (k+shift)%rails))
	}
	w.script = s.String()
	return w
}

// sums runs some sums that use all rails.
func sums(t testing.TB, x *ranks) {
	t.Helper()
	for _, size := range []int{64, 100_000, 1 << 20} {
		x.all(t, func(g *distributed.Group) error {
			b := pattern(size, g.Rank())
			if err := g.AllSum(t.Context(), b, b, distributed.Uint8); err != nil {
				return err
			}
			return summed(g, b)
		})
	}
}

// TestCrossedRails: cables that are crossed in the matrix are reordered and
// reported (exo #2160), whether the device reports it or the messages simply
// vanish.
func TestCrossedRails(t *testing.T) {
	for _, words := range []string{"", "unreachable=silent", "link=eth"} {
		for rails := 2; rails <= 3; rails++ {
			for shift := 1; shift < rails; shift++ {
				t.Run(fmt.Sprintf("rails=%d shift=%d %s", rails, shift, words), func(t *testing.T) {
					x := group(t, crossed(rails, shift, words), 2, func(_ int, o *rdma.Options, _ *distributed.Link) {
						o.Tuning.TokenTimeout = time.Second // of a cable that leads to another device
					})
					sums(t, x)
					for _, g := range x.groups {
						found := notes(g)
						// No other note: the pairing has found the cables, so
						// the token test of the rails found none dead.
						require.Len(t, found, 1)
						require.Contains(t, found[0], "crossed; rails reordered")
						require.Len(t, cables(g)[0][1], rails)
						require.Equal(t, device(0, 1, 0), cables(g)[0][1][0])
						require.Equal(t, device(1, 0, shift), cables(g)[1][0][0])
					}
					require.NotEmpty(t, x.lines)
				})
			}
		}
	}
	t.Run("strict", func(t *testing.T) {
		x := setup(t, crossed(2, 1, ""), 2, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Strict = true })
		for _, err := range x.connect(t.Context()) {
			require.ErrorIs(t, err, distributed.ErrBootstrap)
			require.ErrorIs(t, err, distributed.ErrConfig)
			require.ErrorContains(t, err, "crossed")
		}
	})
}

// TestRailsByIdentity: if the ranks' tools report which ports are the two ends of
// one cable, only that pairs the rails (exo #2160): each device is connected once,
// and no wrong pair is ever tried. The token test of the rails finds nothing to
// correct.
func TestRailsByIdentity(t *testing.T) {
	const rails = 3
	for shift := range rails {
		t.Run(fmt.Sprintf("shift=%d", shift), func(t *testing.T) {
			w := crossed(rails, shift, "profile=26.3 unreachable=silent") // shorter messages need another connection
			hosts := make([]matrix.Host, 2)
			for k := range rails {
				far := (k + shift) % rails
				near, other := fmt.Sprintf("domain-a%d", k), fmt.Sprintf("domain-b%d", far)
				hosts[0].Devices = append(hosts[0].Devices, matrix.Device{Name: device(0, 1, k), State: "ACTIVE", Domain: near, FarDomain: other})
				hosts[1].Devices = append(hosts[1].Devices, matrix.Device{Name: device(1, 0, far), State: "ACTIVE", Domain: other, FarDomain: near})
				// Fires if a device is connected a second time.
				w.script += fmt.Sprintf("fault device=%s on=rtr nth=2 do=errno:22\nfault device=%s on=rtr nth=2 do=errno:22\n", device(0, 1, k), device(1, 0, k))
			}
			var asked atomic.Int32
			x := group(t, w, 2, func(r int, o *rdma.Options, _ *distributed.Link) {
				o.Ask = func(context.Context) matrix.Host {
					asked.Add(1)
					return hosts[r]
				}
			})
			require.EqualValues(t, 2, asked.Load(), "each rank is asked once for a group")
			for f := range 2 * rails {
				require.Zero(t, x.fabric.Count(fmt.Sprintf("fault:%d", f)), "a device was connected twice")
			}
			sums(t, x)
			for _, g := range x.groups {
				m := g.Describe()
				for k := range rails {
					require.Equal(t, device(0, 1, k), cables(g)[0][1][k])
					require.Equal(t, device(1, 0, (k+shift)%rails), cables(g)[1][0][k])
				}
				if shift > 0 {
					require.Contains(t, strings.Join(m.Notes, "\n"), "crossed; rails reordered")
				}
			}
		})
	}
}

// TestDeadRail: a cable that delivers nothing is left out and reported; if it was
// the only one, the error says so on both ranks.
func TestDeadRail(t *testing.T) {
	for _, c := range []struct{ name, extra, note string }{
		{"dead cable", "cable r0to1_1 r1to0_1 dead\n", "no data arrived through its cable"},
		{"port down", "port r1to0_1 down\n", "its port is DOWN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ringOf(2, 2, "")
			w.script += c.extra
			x := group(t, w, 2, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.TokenTimeout = 200 * time.Millisecond })
			sums(t, x)
			for _, g := range x.groups {
				m := g.Describe()
				require.Contains(t, strings.Join(m.Notes, "\n"), c.note)
				require.Equal(t, []string{"r0to1_0"}, cables(g)[0][1])
			}
		})
		t.Run(c.name+", the only one", func(t *testing.T) {
			w := ringOf(2, 1, "")
			w.script += strings.ReplaceAll(strings.ReplaceAll(c.extra, "_1 ", "_0 "), "_1\n", "_0\n")
			x := setup(t, w, 2, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.TokenTimeout = 100 * time.Millisecond })
			x.refused(t, distributed.ErrBootstrap, "neither a ring nor a mesh", "r1to0_0")
		})
	}
}

// TestStatusesAreChecked: a completion with an error status is never taken for
// data (mlx #3152): for any status, on either side, the rank that gets it names
// it, and no rank gets a wrong sum.
func TestStatusesAreChecked(t *testing.T) {
	rest := testenv.Rest(t, testenv.Full, "four of five statuses")
	for s := verbs.Status(1); int(s) < verbs.Statuses; s++ {
		for _, on := range []string{"send", "recv"} {
			for _, nth := range []int{1, 3} {
				if int(s)%5 != 0 && !rest {
					continue
				}
				t.Run(fmt.Sprintf("%v on %s %d", s, on, nth), func(t *testing.T) {
					x := group(t, meshOf(2, 1, "poison=1"), 2, func(_ int, o *rdma.Options, l *distributed.Link) {
						o.Tuning.Cap = -1
						l.OpTimeout = 5 * time.Second
					})
					require.NoError(t, x.fabric.Script(fmt.Sprintf("fault device=r0to1_0 on=%s nth=%d do=status:%d vendor=0x77", on, nth, s)))
					errs := make([]error, 2)
					for range 4 { // a failed last send is reported by the next operation
						for r, err := range x.each(func(g *distributed.Group) error { return checkedSum(t.Context(), g, 40_000) }) {
							if errs[r] == nil {
								errs[r] = err
							}
						}
					}
					for r, err := range errs {
						require.Error(t, err, "rank %d", r)
						var op *distributed.OpError
						require.ErrorAs(t, err, &op)
						require.Equal(t, 1-r, op.Peer)
						require.NotContains(t, err.Error(), "wrong sum")
					}
					var ce *verbs.CompletionError
					require.ErrorAs(t, errs[0], &ce)
					require.Equal(t, s, ce.Status)
					require.Equal(t, []any{"all_sum", 0, 1, 0, "r0to1_0", uint32(0x77)}, []any{ce.Op, ce.Rank, ce.Peer, ce.Rail, ce.Device, ce.VendorErr})
					require.NotZero(t, ce.QPN)
					require.NotZero(t, ce.Seq)
				})
			}
		}
	}
}

// checkedSum runs a sum and verifies its result.
func checkedSum(ctx context.Context, g *distributed.Group, n int) error {
	dst := make([]byte, n)
	if err := g.AllSum(ctx, dst, pattern(n, g.Rank()), distributed.Uint8); err != nil {
		return err
	}
	return summed(g, dst)
}

// summed requires that data is the sum of the patterns of all ranks.
func summed(g *distributed.Group, sum []byte) error {
	for i, v := range sum {
		want := byte(0)
		for r := range g.Size() {
			want += byte(i*7 + i>>8*13 + r*101)
		}
		if v != want {
			return fmt.Errorf("wrong sum: byte %d of %d is %d, want %d", i, len(sum), v, want)
		}
	}
	return nil
}

// TestNoCable: messages between ranks of a ring that no cable joins go over the
// side channel, even while another message goes over a cable.
func TestNoCable(t *testing.T) {
	x := group(t, ringOf(5, 1, ""), 5, nil)
	for _, n := range []int{0, 10, 100_000} {
		x.all(t, func(g *distributed.Group) error {
			for _, step := range []struct{ to, from int }{{2, 3}, {1, 3}, {2, 4}} {
				to, from := (g.Rank()+step.to)%5, (g.Rank()+step.from)%5
				if (to+5-g.Rank())%5 != (g.Rank()+5-from)%5 {
					// Not a shift: each pair must agree on who sends to whom.
					from = (g.Rank() + 5 - step.to) % 5
				}
				dst := make([]byte, n)
				if err := g.SendRecv(t.Context(), dst, from, pattern(n, g.Rank()), to); err != nil {
					return err
				}
				if err := sentBy(from, dst); err != nil {
					return err
				}
			}
			return nil
		})
	}
	// One direction over a cable (0 to 1), the other over the side channel (3
	// to 0).
	x.all(t, func(g *distributed.Group) error {
		dst := make([]byte, 9000)
		switch g.Rank() {
		case 0:
			if err := g.SendRecv(t.Context(), dst, 3, pattern(9000, 0), 1); err != nil {
				return err
			}
			return sentBy(3, dst)
		case 1:
			return g.Recv(t.Context(), dst, 0)
		case 3:
			return g.Send(t.Context(), pattern(9000, 3), 0)
		}
		return nil
	})
}

// TestGIDByFamily: an IPv4 address is found wherever it is in the GID table, at
// a different index on each side; without one at both ends link-local addresses
// are taken. The UUID that macOS 27 puts first is never taken for an address: RTR
// of the library without hardware refuses it.
func TestGIDByFamily(t *testing.T) {
	for _, tables := range [][2]string{
		{"ll,zero,ll2,v4", "v4,ll"},
		{"ll,zero,ll2,v4", "ll"}, // only one end has an IPv4 address
		{"ll,ll2", "zero,ll"},
		{"uuid,ll", "uuid,ll"},
		{"uuid,ll", "ll,v4,ll2"},
		{"uuid,v4", "uuid,zero,ll,v4"},
	} {
		t.Run(tables[0]+" and "+tables[1], func(t *testing.T) {
			w := meshOf(2, 1, "")
			w.script = fmt.Sprintf("device r0to1_0 host=0 gids=%s\ndevice r1to0_0 host=1 gids=%s\ncable r0to1_0 r1to0_0\n", tables[0], tables[1])
			sums(t, group(t, w, 2, nil))
		})
	}
}

// TestPortWithoutAddress: a rail with a port that has no address yet is left out
// with a note, the others carry the group, and the next bring-up tries it again.
// If it was the only one, the error says so on both ranks.
func TestPortWithoutAddress(t *testing.T) {
	for _, c := range []struct{ none, later, words string }{{"uuid", "uuid,ll", ""}, {"zero", "ll,v4", ""}, {"zero", "v4", "link=eth"}} {
		t.Run(c.none+" "+c.words, func(t *testing.T) {
			w := ringOf(2, 2, c.words)
			w.script += "gids r1to0_1 " + c.none + "\n"
			x := group(t, w, 2, nil)
			sums(t, x)
			for _, g := range x.groups {
				require.Contains(t, strings.Join(g.Describe().Notes, "\n"), "rank 1 r1to0_1, listed for rank 0: no entry of the GID table is an IPv4 address")
				require.Equal(t, []string{"r0to1_0"}, cables(g)[0][1])
			}
			require.NoError(t, x.fabric.Script("gids r1to0_1 "+c.later))
			for r := range x.links {
				require.NoError(t, x.groups[r].Close())
				x.links[r].Epoch++
			}
			succeed(t, x.connect(t.Context()))
			sums(t, x)
			for _, g := range x.groups {
				require.Equal(t, []string{"r0to1_0", "r0to1_1"}, cables(g)[0][1])
				require.Empty(t, notes(g))
			}
		})
	}
	w := meshOf(2, 1, "")
	w.script += "gids r1to0_0 uuid\n"
	setup(t, w, 2, nil).refused(t, distributed.ErrBootstrap, "rank 1 r1to0_0, listed for rank 0: ", "not the bridge")
	// Two ports of different families have no address in common.
	w.script = "device r0to1_0 host=0 gids=ll\ndevice r1to0_0 host=1 gids=v4\ncable r0to1_0 r1to0_0\n"
	setup(t, w, 2, nil).refused(t, distributed.ErrBootstrap, "give both ports an IPv4 address, or neither")
}

// TestUnreachablePeer: errno 60 of RTR may only mean that a host does not know its
// neighbours yet. Each port gets one more attempt, on a new queue pair, before its
// cable counts as dead; the library without hardware refuses a second attempt on
// the same queue pair. While cables are searched for, that attempt decides.
func TestUnreachablePeer(t *testing.T) {
	for _, device := range []string{"r0to1_0", "r1to0_1"} {
		w := crossed(2, 0, "")
		w.script += "fault device=" + device + " on=rtr do=errno:60\n"
		x := group(t, w, 2, nil)
		sums(t, x)
		require.Equal(t, 1, x.fabric.Count("fault:0"))
		require.Empty(t, notes(x.groups[0]))
		require.Len(t, cables(x.groups[0])[0][1], 2, "%s", device)
	}
	w := meshOf(2, 1, "")
	w.script += "fault device=r0to1_0 on=rtr count=all do=errno:60\n"
	setup(t, w, 2, nil).refused(t, distributed.ErrBootstrap,
		"the hosts may not know each other as neighbours yet (ping6 -c 1 ff02::1%enN on both", "or two cables are crossed")
	// Other causes: no attempt can help, and the error says what does.
	for errno, cure := range map[int]string{14: "restart this host, because trying again uses more", 16: "only a new queue pair may help",
		22: "zero or wrong GID", 96: "unplug the cable and plug it in again"} {
		w := meshOf(2, 1, "")
		w.script += fmt.Sprintf("fault device=r0to1_0 on=rtr count=all do=errno:%d\n", errno)
		setup(t, w, 2, nil).refused(t, distributed.ErrBootstrap, fmt.Sprintf("errno %d", errno), cure)
	}
}

// TestDepth: queues shorter than requested lead to smaller messages on all
// ranks.
func TestDepth(t *testing.T) {
	w := meshOf(2, 1, "")
	w.script = "device r0to1_0 host=0 profile=26.3 grant_send=20\ndevice r1to0_0 host=1 profile=26.3 grant_recv=40\ncable r0to1_0 r1to0_0\n"
	x := group(t, w, 2, nil)
	sums(t, x)
	require.Contains(t, x.groups[1].Describe().Topology, "messages of up to 32 KiB")
}
