package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
)

// suspicion is one call of Link.Suspect.
type suspicion struct {
	peer  int
	cause error
}

// TestVerdict: a rank that loses a connection reports it once and waits for the
// verdict of the group; the verdict is then the cause, whichever rank was
// suspected.
func TestVerdict(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		for name, size := range map[string]int{"direct": 64, "bulk": 4 << 20} {
			t.Run(name, func(t *testing.T) {
				told := make(chan suspicion, 8)
				m := newMesh(t, 3, Options{Encrypt: encrypt, Threshold: 1 << 20}, func(l *distributed.Link) {
					l.VerdictTimeout = time.Hour
					if l.Rank == 0 {
						l.Suspect = func(peer int, cause error) { told <- suspicion{peer, cause} }
					}
				})
				g := m.groups[0]
				done := make(chan error, 1)
				go func() {
					b := make([]byte, size)
					done <- g.AllSum(t.Context(), b, b, distributed.Float16)
				}()
				require.NoError(t, m.groups[1].Close())
				s := <-told
				require.Equal(t, 1, s.peer)
				require.ErrorIs(t, s.cause, distributed.ErrPeerGone)
				verdict := &distributed.PeerError{Rank: 2, Addr: "there", Cause: "no heartbeat"}
				g.Fail(verdict)
				err := <-done
				require.ErrorIs(t, err, verdict)
				op := grouptest.OpError(t, err)
				require.Equal(t, 2, op.Peer)
				require.Equal(t, "all_sum", op.Op)
				require.EqualValues(t, 1, op.Seq)
				require.Empty(t, told, "told once")
			})
		}
	})
}

// TestNoVerdict: if no verdict arrives in time, the suspicion is the cause.
func TestNoVerdict(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		var told atomic.Int32
		m := newMesh(t, 2, Options{Encrypt: encrypt, Threshold: 1 << 20}, func(l *distributed.Link) {
			l.VerdictTimeout = time.Millisecond
			if l.Rank == 0 {
				l.Suspect = func(int, error) { told.Add(1) }
			}
		})
		require.NoError(t, m.groups[1].Close())
		err := m.groups[0].Barrier(t.Context())
		require.ErrorIs(t, err, distributed.ErrPeerGone)
		require.ErrorContains(t, err, "rank 1 at "+m.links[0].Addrs[1])
		require.ErrorContains(t, err, "barrier #1 on rank 0")
		require.ErrorContains(t, err, "connection closed")
		require.ErrorIs(t, m.groups[0].Send(t.Context(), nil, 1), distributed.ErrPeerGone)
		require.EqualValues(t, 1, told.Load())
	})
}

// TestTimeoutNamesTheLate: at the deadline the error names the ranks that have
// not delivered, and not those that have.
func TestTimeoutNamesTheLate(t *testing.T) {
	for name, size := range map[string]int{"direct": 64, "bulk": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			told := make(chan suspicion, 1)
			m := newMesh(t, 4, Options{Threshold: -1}, func(l *distributed.Link) {
				if l.Rank == 0 {
					// Longer than the other ranks take to deliver.
					l.OpTimeout = 3 * time.Second
					l.Suspect = func(peer int, cause error) { told <- suspicion{peer, cause} }
				}
			})
			others := &mesh{groups: slices.Clone(m.groups)}
			others.groups[2] = nil
			done := make(chan []error, 1)
			go func() {
				done <- others.each(func(g *distributed.Group) error {
					b := make([]byte, size)
					return g.AllSum(t.Context(), b, b, distributed.Float16)
				})
			}()
			s := <-told
			require.Equal(t, 2, s.peer)
			verdict := &distributed.PeerError{Rank: 2, Cause: "stalled"}
			m.groups[1].Fail(verdict) // as the control channel would
			m.groups[3].Fail(verdict)
			errs := <-done
			require.ErrorIs(t, errs[0], distributed.ErrTimeout)
			require.ErrorContains(t, errs[0], "rank 2")
			require.NotContains(t, errs[0].Error(), "rank 1")
			require.NotContains(t, errs[0].Error(), "rank 3")
			require.ErrorIs(t, errs[1], verdict)
		})
	}
}

// proxy sits between a rank and those that dial it.
type proxy struct {
	addr string
	cut  func()        // closes the connections
	hold chan struct{} // once closed, nothing more is forwarded
}

// newProxy forwards data to addr in pieces of random length.
func newProxy(t *testing.T, addr string) *proxy {
	p := &proxy{hold: make(chan struct{})}
	p.addr, p.cut = relay(t, addr, func(a, b net.Conn) {
		var both sync.WaitGroup
		both.Go(func() { p.pass(a, b, 1) })
		both.Go(func() { p.pass(b, a, 2) })
		both.Wait()
	})
	return p
}

func (p *proxy) pass(to, from net.Conn, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	b := make([]byte, 1<<15)
	for {
		n, err := from.Read(b[:1+r.IntN(1<<(r.IntN(15)+1))])
		if err != nil {
			select {
			case <-p.hold:
			default:
				_ = to.Close()
			}
			return
		}
		select {
		case <-p.hold:
			continue
		default:
		}
		if _, err := to.Write(b[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

// through makes a mesh of two ranks whose connection passes through a proxy.
func through(t *testing.T, o Options, change func(l *distributed.Link)) (*mesh, *proxy) {
	m := listen(t, 2, o)
	p := newProxy(t, m.links[0].Addrs[0])
	m.links[1].Addrs = []string{p.addr, m.links[1].Addrs[1]}
	for i := range m.links {
		if change != nil {
			change(&m.links[i])
		}
	}
	m.join(t)
	return m, p
}

// TestPieces: frames may arrive in pieces of any length.
func TestPieces(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m, _ := through(t, Options{Encrypt: encrypt, Threshold: 64 << 10, Chunk: 8 << 10}, nil)
		for i := range 60 {
			size := 2 * (i * i * 13 % 40000)
			for r, err := range m.each(func(g *distributed.Group) error {
				src := bytes.Repeat([]byte{0, 0x3c}, size/2) // ones
				if err := g.AllSum(t.Context(), src, src, distributed.Float16); err != nil {
					return err
				}
				if !bytes.Equal(src, bytes.Repeat([]byte{0, 0x40}, size/2)) {
					return errors.New("not two")
				}
				return nil
			}) {
				require.NoError(t, err, "rank %d, %d bytes", r, size)
			}
		}
	})
}

// TestHalfOpen: an operation on a connection that is silent but not closed ends
// at the deadline.
func TestHalfOpen(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m, p := through(t, Options{Encrypt: encrypt, Threshold: 64 << 10}, func(l *distributed.Link) { l.OpTimeout = 300 * time.Millisecond })
		close(p.hold)
		for r, err := range m.each(func(g *distributed.Group) error { return g.Barrier(t.Context()) }) {
			require.ErrorIs(t, err, distributed.ErrTimeout, "rank %d", r)
			require.Equal(t, 1-r, grouptest.OpError(t, err).Peer)
		}
	})
}

// TestCut: a connection cut in the middle of a large operation ends the
// operation.
func TestCut(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m, p := through(t, Options{Encrypt: encrypt, Threshold: 64 << 10}, nil)
		done := make(chan []error, 1)
		go func() {
			done <- m.each(func(g *distributed.Group) error {
				b := make([]byte, 64<<20)
				return g.AllSum(t.Context(), b, b, distributed.Float16)
			})
		}()
		require.Eventually(t, func() bool { return m.groups[0].Stats().Received > 1<<20 }, time.Minute, time.Millisecond)
		p.cut()
		for r, err := range <-done {
			require.ErrorIs(t, err, distributed.ErrPeerGone, "rank %d", r)
		}
	})
}

// TestGarbageFrames: an authenticated peer that then sends anything but frames
// is out of step.
func TestGarbageFrames(t *testing.T) {
	m := listen(t, 2, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := m.connecting(ctx)
	h := hello{version: helloVersion, size: 2, epoch: 7, from: 1, to: 0, group: groupHash("test")}
	var c net.Conn
	require.Eventually(t, func() bool {
		c = dialTo(t, m.links[0].Addrs[0])
		return greet(c, h, m.links[0].Token) == nil
	}, time.Minute, time.Millisecond)
	_, err := c.Write(bytes.Repeat([]byte("garbage "), 100))
	require.NoError(t, err)
	err = <-done
	require.ErrorIs(t, err, distributed.ErrDesync)
	require.ErrorIs(t, err, distributed.ErrBootstrap)
	require.ErrorContains(t, err, "rank 1")
	_, _ = io.Copy(io.Discard, c) // the connection is closed
}

// TestCredit: a rank sends no more than the credit to a peer that has not
// reached the operation, in one message or in many, and no operation blocks
// because of it.
func TestCredit(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		const credit, small = 64 << 10, 4 << 10
		for name, c := range map[string]struct{ size, count, ahead int }{
			"one large":  {1 << 20, 1, 0},
			"many small": {small, 100, credit/small - 1}, // bringing up the group used some credit
		} {
			t.Run(name, func(t *testing.T) {
				m := newMesh(t, 2, Options{Encrypt: encrypt, Threshold: 1 << 20, Credit: credit}, nil)
				done := make(chan error, 1)
				go func() {
					for i := range c.count {
						if err := m.groups[0].Send(t.Context(), bytes.Repeat([]byte{byte(i)}, c.size), 1); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				var s distributed.Stats
				require.Eventually(t, func() bool {
					s = m.groups[0].Stats()
					return s.Sent > credit-small && int(s.Ops) == c.ahead
				}, time.Minute, time.Millisecond)
				require.LessOrEqual(t, s.Sent, uint64(credit+(c.ahead+1)*headerSize))
				for i := range c.count {
					b := make([]byte, c.size)
					require.NoError(t, m.groups[1].Recv(t.Context(), b, 0))
					require.Equal(t, bytes.Repeat([]byte{byte(i)}, c.size), b)
				}
				require.NoError(t, <-done)
			})
		}
	})
}

// TestSteadyStateAllocatesNothing: combines of the size of one decoded token do
// not allocate.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	m := newMesh(t, 2, Options{Threshold: 1 << 20}, nil)
	ctx := t.Context()
	const runs = 200
	combine := func(g *distributed.Group, b []byte) {
		if err := g.StartAllSum(ctx, b, b, distributed.Float16).Wait(); err != nil {
			t.Error(err)
		}
	}
	other := make(chan struct{})
	go func() {
		b := make([]byte, 16<<10)
		for range runs + 2 {
			combine(m.groups[1], b)
		}
		close(other)
	}()
	b := make([]byte, 16<<10)
	combine(m.groups[0], b)
	allocs := testing.AllocsPerRun(runs, func() { combine(m.groups[0], b) })
	<-other
	require.Less(t, allocs, 1.0)
}

// TestCalibration: all ranks have the same figures, and rank 0 decides.
func TestCalibration(t *testing.T) {
	m := newMesh(t, 3, Options{}, nil)
	c := m.groups[0].Driver().(*driver).measured
	require.Positive(t, c.Latency)
	require.Positive(t, c.Scattered)
	require.Positive(t, c.Bandwidth)
	require.Positive(t, c.Reduction)
	require.GreaterOrEqual(t, c.Threshold, leastScattered)
	require.LessOrEqual(t, c.Threshold, mostWhole)
	require.GreaterOrEqual(t, c.Credit, leastCredit)
	for _, g := range m.groups {
		require.Equal(t, c, g.Driver().(*driver).measured)
		require.Contains(t, g.Describe().Topology, "tcp mesh of 3 ranks")
		require.Zero(t, g.Stats())
	}
}

func TestThreshold(t *testing.T) {
	c := Calibration{Latency: 20 * time.Microsecond, Scattered: 50 * time.Microsecond, Bandwidth: 1e9, Reduction: 10e9}
	// 30 µs / ((3 × 1/2) ns + 0.3 ns) = 16.7 KB: below the minimum.
	require.Equal(t, leastScattered, threshold(4, c))
	c.Scattered = 200 * time.Microsecond
	require.Equal(t, int(180e-6/1.8e-9)&^4095, threshold(4, c))
	// Two ranks send the same bytes either way, so only the reduction is
	// shared.
	require.Equal(t, int(180e-6/0.1e-9)&^4095, threshold(2, c))
	c.Scattered = c.Latency
	require.Equal(t, leastScattered, threshold(2, c), "a disturbed measurement")
}
