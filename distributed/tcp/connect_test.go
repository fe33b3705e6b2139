package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
)

// works requires that the groups of a mesh complete an operation.
func works(t *testing.T, m *mesh) {
	t.Helper()
	for r, err := range m.each(func(g *distributed.Group) error { return g.Barrier(t.Context()) }) {
		require.NoError(t, err, "rank %d", r)
	}
}

func dialTo(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

// TestStrangers: connections from other programs, before and while the group connects, do not
// disturb it.
func TestStrangers(t *testing.T) {
	token := bytes.Repeat([]byte{9}, 32)
	good := hello{version: helloVersion, size: 3, epoch: 7, from: 2, to: 0}
	good.group = groupHash("test")
	edit := func(change func(h *hello)) []byte {
		h := good
		change(&h)
		return h.encode(token)
	}
	for name, say := range map[string][]byte{
		"nothing":            nil,
		"another protocol":   []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"half a hello":       good.encode(token)[:60],
		"zeros":              make([]byte, 4096),
		"a wrong token":      good.encode(bytes.Repeat([]byte{8}, 32)),
		"a wrong epoch":      edit(func(h *hello) { h.epoch = 6 }),
		"a wrong group":      edit(func(h *hello) { h.group[0]++ }),
		"a wrong version":    edit(func(h *hello) { h.version++ }),
		"a wrong size":       edit(func(h *hello) { h.size = 4 }),
		"a wrong target":     edit(func(h *hello) { h.to = 1 }),
		"a rank below":       edit(func(h *hello) { h.from = 0 }),
		"a rank beyond":      edit(func(h *hello) { h.from = 3 }),
		"a hello, no more":   good.encode(token), // the confirmation is never sent
		"a wrong confirming": append(good.encode(token), make([]byte, confirmSize)...),
	} {
		t.Run(name, func(t *testing.T) {
			m := listen(t, 3, Options{Threshold: 1 << 20})
			var strangers sync.WaitGroup
			for range 3 {
				c := dialTo(t, m.links[0].Addrs[0])
				strangers.Go(func() {
					_, _ = c.Write(say)
					_, _ = io.Copy(io.Discard, c)
				})
			}
			m.join(t)
			works(t, m)
			require.NoError(t, m.transports[0].Close()) // ends the handshakes that are stuck
			strangers.Wait()
			works(t, m) // the groups still work
		})
	}
}

// TestManyStrangers: hundreds of connections with random bytes, most of them almost a hello,
// disturb neither a working group nor one that forms beside it.
func TestManyStrangers(t *testing.T) {
	token := bytes.Repeat([]byte{9}, 32)
	good := hello{version: helloVersion, size: 3, epoch: 7, from: 2, to: 0}
	good.group = groupHash("test")
	m := listen(t, 3, Options{Threshold: 1 << 20})
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() []byte {
		say := good.encode(token)
		switch r.IntN(5) {
		case 0:
			say = say[:r.IntN(len(say))]
		case 1:
			say[r.IntN(len(say))] ^= 1 << r.IntN(8)
		case 2:
			for range 1 + r.IntN(300) {
				say = append(say, byte(r.Uint32()))
			}
		case 3:
			say = append(say, say...)
		case 4:
			for i := range say {
				say[i] = byte(r.Uint32())
			}
		}
		return say
	}
	attack := func(n int) {
		for range n {
			for _, link := range m.links {
				c, err := net.Dial("tcp", link.Addrs[0])
				require.NoError(t, err)
				require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
				_, _ = c.Write(draw())
				if r.IntN(2) == 0 {
					_ = c.Close()
				} else {
					t.Cleanup(func() { _ = c.Close() })
				}
			}
		}
	}
	attack(5)
	m.join(t)
	for range 20 {
		attack(5)
		works(t, m)
	}
}

// TestSlowLoris: as many silent connections as there are handshake slots do not
// keep the ranks out.
func TestSlowLoris(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m := listen(t, 2, Options{Encrypt: encrypt, Threshold: 1 << 20, MaxHandshakes: 4, HandshakeTimeout: time.Hour})
		for range 40 {
			dialTo(t, m.links[0].Addrs[0])
		}
		m.join(t)
		works(t, m)
	})
}

// TestTurnedAway: the status of the answer tells a rejected dialler why.
func TestTurnedAway(t *testing.T) {
	m := listen(t, 2, Options{Threshold: 1 << 20})
	token := m.links[0].Token
	greetWith := func(token []byte, change func(h *hello)) error {
		h := hello{version: helloVersion, size: 2, epoch: 7, from: 1, to: 0, group: groupHash("test")}
		change(&h)
		return greet(dialTo(t, m.links[0].Addrs[0]), h, token)
	}
	same := func(*hello) {}
	require.ErrorContains(t, greetWith(token, same), statusNotReady.String())
	ctx, cancel := context.WithCancel(t.Context())
	done := m.connecting(ctx)
	awaitRejection(t, statusEpoch, func() error { return greetWith(token, func(h *hello) { h.epoch = 6 }) })
	require.ErrorContains(t, greetWith(token, func(h *hello) { h.group[1]++ }), statusGroup.String())
	require.ErrorContains(t, greetWith(token, func(h *hello) { h.version++ }), statusVersion.String())
	require.ErrorContains(t, greetWith(token, func(h *hello) { h.size = 9 }), statusRank.String())
	require.ErrorContains(t, greetWith(token, func(h *hello) { h.from = 4e9 }), statusRank.String())
	require.ErrorContains(t, greetWith(make([]byte, 32), same), statusToken.String())
	_, err := m.transports[0].Connect(ctx, m.links[0])
	require.ErrorIs(t, err, distributed.ErrBootstrap, "one group at a time")
	require.NoError(t, greetWith(token, same))
	cancel()
	require.ErrorIs(t, <-done, distributed.ErrBootstrap)
}

// TestDuplicate: the second connection of a rank is rejected.
func TestDuplicate(t *testing.T) {
	m := listen(t, 3, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := m.connecting(ctx)
	h := hello{version: helloVersion, size: 3, epoch: 7, from: 1, to: 0, group: groupHash("test")}
	knock := func() error { return greet(dialTo(t, m.links[0].Addrs[0]), h, m.links[0].Token) }
	require.Eventually(t, func() bool { return knock() == nil }, time.Minute, time.Millisecond)
	awaitRejection(t, statusTaken, knock) // the first connection is committed a moment after its greeting
	cancel()
	err := <-done
	require.ErrorContains(t, err, "rank 2")
	require.NotContains(t, err.Error(), "rank 1 at")
}

// deserted is an address at which nothing listens.
func deserted(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return ln.Addr().String()
}

// TestMissingRank: the error of Connect names the missing rank, its address and what is known
// about it.
func TestMissingRank(t *testing.T) {
	m := listen(t, 3, Options{})
	gone := deserted(t)
	m.links[2].Addrs[0] = gone
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("time is up"))
	defer cancel()
	for r, err := range m.connect(ctx) {
		require.ErrorIs(t, err, distributed.ErrBootstrap, "rank %d", r)
		require.ErrorContains(t, err, "time is up")
		op := grouptest.OpError(t, err)
		require.Equal(t, "connect", op.Op)
		if r != 0 {
			require.Equal(t, 0, op.Peer)
			require.Equal(t, gone, op.Addr)
			require.ErrorContains(t, err, "refused")
		}
	}
	// The transports can connect again.
	m.links[2].Addrs[0] = m.transports[0].(*Transport).listener.Addr().String()
	m.join(t)
	works(t, m)
}

// TestUnreachable: a rank that the network keeps from connecting gives up long before its time
// limit, and names the unreachable ranks by their world numbers.
func TestUnreachable(t *testing.T) {
	m := listen(t, 4, Options{ReachTimeout: 50 * time.Millisecond})
	gone := deserted(t)
	l := m.links[3]
	l.Addrs = append([]string(nil), l.Addrs...)
	l.Addrs[0], l.Addrs[2] = gone, gone
	l.World = []int{0, 2, 4, 5}
	_, err := m.transports[3].Connect(t.Context(), l) // the others are not connecting yet: rank 1 is reached
	require.ErrorIs(t, err, distributed.ErrBootstrap)
	var u *distributed.UnconnectedError
	require.ErrorAs(t, err, &u)
	require.Len(t, u.Missing, 3)
	for i, world := range l.World[:3] {
		x := u.Missing[i]
		require.Equal(t, world, x.Rank)
		require.True(t, x.Dialled)
		require.Equal(t, l.Addrs[i], x.Addr)
		require.Equal(t, i != 1, x.Unreachable, x.Cause)
		if i != 1 {
			require.Contains(t, x.Cause, "connection refused (nothing is listening there: the process of rank")
		}
	}
}

// TestSilent: a rank that accepts connections but never answers, as behind a firewall that drops
// later packets, counts as unreachable long before the time limit.
func TestSilent(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m := listen(t, 2, Options{Encrypt: encrypt, ReachTimeout: 100 * time.Millisecond, HandshakeTimeout: 20 * time.Millisecond})
		mute, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts
		require.NoError(t, err)
		defer mute.Close()
		l := m.links[1]
		l.Addrs = append([]string(nil), l.Addrs...)
		l.Addrs[0] = mute.Addr().String()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the time is over"))
		defer cancel()
		_, err = m.transports[1].Connect(ctx, l)
		require.ErrorIs(t, err, distributed.ErrBootstrap)
		require.NotContains(t, err.Error(), "the time is over")
		var u *distributed.UnconnectedError
		require.ErrorAs(t, err, &u)
		require.Len(t, u.Missing, 1)
		require.True(t, u.Missing[0].Unreachable)
		require.Contains(t, u.Missing[0].Cause, "nothing comes back on it: a firewall")
		require.Contains(t, u.Missing[0].Cause, "allow TCP to port")
	})
}

// TestWrongEpoch: a rank of another epoch is rejected and gets the reason.
func TestWrongEpoch(t *testing.T) {
	m := listen(t, 2, Options{})
	m.links[1].Epoch = 8
	m.neverConnects(t, "another epoch")
}

// TestEpochs: the transports serve one group after another; frames and
// connections of the old group do not reach the new one.
func TestEpochs(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m := newMesh(t, 2, Options{Encrypt: encrypt, Threshold: 1 << 20}, nil)
		works(t, m)
		for epoch := uint32(8); epoch < 11; epoch++ {
			old := append([]*distributed.Group(nil), m.groups...)
			old[0].Fail(&distributed.PeerError{Rank: 1, Cause: "test"})
			for r := range m.links {
				m.links[r].Epoch = epoch
			}
			m.join(t)
			works(t, m)
			for _, g := range old {
				require.NoError(t, g.Close())
				require.Error(t, g.Barrier(t.Context()))
			}
			works(t, m)
		}
	})
}

func TestListen(t *testing.T) {
	tr := New(Options{})
	for _, host := range []string{"", "0.0.0.0", "::"} {
		_, err := tr.Listen(host)
		require.ErrorIs(t, err, distributed.ErrConfig, "%q", host)
	}
	_, err := tr.Listen("192.0.2.1") // reserved for documentation, never a local address
	require.ErrorIs(t, err, distributed.ErrConfig)
	first, err := tr.Listen("127.0.0.1")
	require.NoError(t, err)
	second, err := tr.Listen("127.0.0.1")
	require.NoError(t, err)
	require.Equal(t, first, second, "a fixed port cannot be opened twice")
	second, err = tr.Listen("127.0.0.2")
	if err != nil {
		t.Skipf("NOT CHECKED: no second address of the loopback here: %v", err)
	}
	require.NoError(t, tr.Probe(t.Context(), second))
	require.Error(t, tr.Probe(t.Context(), first))
	_, err = net.Dial("tcp", first)
	require.Error(t, err, "listening before has ended")
	require.NoError(t, tr.Close())
	require.NoError(t, tr.Close())
	_, err = net.Dial("tcp", second)
	require.Error(t, err)
	_, err = tr.Connect(t.Context(), distributed.Link{Size: 2, Token: make([]byte, 32), Addrs: make([]string, 2), OpTimeout: time.Second})
	require.ErrorIs(t, err, distributed.ErrBootstrap)
}

func TestIPv6(t *testing.T) {
	m := &mesh{groups: make([]*distributed.Group, 2)}
	addrs := make([]string, 2)
	for r := range addrs {
		tr := New(Options{})
		addr, err := tr.Listen("::1")
		if err != nil {
			t.Skipf("NOT CHECKED: no IPv6 here: %v", err)
		}
		defer tr.Close()
		addrs[r] = addr
		m.transports = append(m.transports, tr)
		m.links = append(m.links, distributed.Link{Rank: r, Size: 2, Token: make([]byte, 32), Addrs: addrs, OpTimeout: time.Minute})
	}
	m.join(t)
	works(t, m)
	for _, g := range m.groups {
		require.NoError(t, g.Close())
	}
}

func TestLinkIsChecked(t *testing.T) {
	tr := New(Options{})
	good := distributed.Link{Size: 2, Token: make([]byte, 32), Addrs: make([]string, 2), OpTimeout: time.Second}
	for name, change := range map[string]func(l *distributed.Link){
		"rank": func(l *distributed.Link) { l.Rank = 2 }, "size": func(l *distributed.Link) { l.Size = 0 },
		"many": func(l *distributed.Link) { l.Size = 256 }, "addresses": func(l *distributed.Link) { l.Addrs = l.Addrs[:1] },
		"token": func(l *distributed.Link) { l.Token = nil }, "time": func(l *distributed.Link) { l.OpTimeout = 0 },
	} {
		l := good
		change(&l)
		_, err := tr.Connect(t.Context(), l)
		require.ErrorIs(t, err, distributed.ErrConfig, name)
	}
}
