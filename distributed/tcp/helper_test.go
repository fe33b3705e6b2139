package tcp

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
)

// mesh is the ranks of a test: a transport, a link and a group for each.
type mesh struct {
	transports []distributed.Transport
	links      []distributed.Link
	groups     []*distributed.Group
}

// newMesh connects n ranks over loopback; change, if set, edits each rank's
// link first.
func newMesh(t testing.TB, n int, o Options, change func(l *distributed.Link)) *mesh {
	t.Helper()
	m := listen(t, n, o)
	for i := range m.links {
		if change != nil {
			change(&m.links[i])
		}
	}
	m.join(t)
	return m
}

// join connects all ranks and requires that none fails.
func (m *mesh) join(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for r, err := range m.connect(ctx) {
		require.NoError(t, err, "rank %d", r)
	}
}

// listen makes n transports and their links.
func listen(t testing.TB, n int, o Options) *mesh {
	t.Helper()
	m := &mesh{groups: make([]*distributed.Group, n)}
	addrs := make([]string, n)
	for r := range n {
		tr := New(o)
		addr, err := tr.Listen("127.0.0.1")
		require.NoError(t, err)
		addrs[r] = addr
		m.transports = append(m.transports, tr)
		m.links = append(m.links, distributed.Link{
			Rank: r, Size: n, GroupID: "test", Epoch: 7, Token: bytes.Repeat([]byte{9}, 32), Addrs: addrs,
			OpTimeout: time.Minute,
		})
	}
	t.Cleanup(func() {
		for r := range n {
			if m.groups[r] != nil {
				require.NoError(t, m.groups[r].Close())
			}
			require.NoError(t, m.transports[r].Close())
		}
	})
	return m
}

// connect connects all ranks at once.
func (m *mesh) connect(ctx context.Context) []error {
	return grouptest.OnAll(m.transports, func(r int, tr distributed.Transport) (err error) {
		m.groups[r], err = tr.Connect(ctx, m.links[r])
		return err
	})
}

// connecting begins to connect rank 0 alone; its error follows in the channel.
func (m *mesh) connecting(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := m.transports[0].Connect(ctx, m.links[0])
		done <- err
	}()
	return done
}

// awaitRejection repeats a greeting until it is rejected with a status.
func awaitRejection(t *testing.T, want status, greet func() error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := greet()
		return err != nil && err.Error() == "rejected: "+want.String()
	}, time.Minute, time.Millisecond)
}

// neverConnects requires that rank 0 waits in vain for rank 1, whose error says why. The time
// that this takes is not known, so the limit grows until rank 1 has the answer.
func (m *mesh) neverConnects(t *testing.T, why string) {
	t.Helper()
	for limit := 200 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		errs := m.connect(ctx)
		cancel()
		require.ErrorContains(t, errs[0], "has not connected")
		require.Error(t, errs[1])
		if limit > 30*time.Second || strings.Contains(errs[1].Error(), why) {
			require.ErrorContains(t, errs[1], why)
			return
		}
	}
}

// each runs f on all ranks at once.
func (m *mesh) each(f func(g *distributed.Group) error) []error {
	return grouptest.OnAll(m.groups, func(_ int, g *distributed.Group) error { return f(g) })
}

// eitherWay runs a test in clear and over TLS.
func eitherWay(t *testing.T, f func(t *testing.T, encrypt bool)) {
	t.Run("clear", func(t *testing.T) { f(t, false) })
	t.Run("encrypted", func(t *testing.T) { f(t, true) })
}
