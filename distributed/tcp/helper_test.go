package tcp

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := m.connect(ctx)
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
	return m
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
	errs := make([]error, len(m.links))
	var all sync.WaitGroup
	for r := range m.links {
		all.Go(func() {
			g, err := m.transports[r].Connect(ctx, m.links[r])
			if err == nil {
				m.groups[r] = g
			}
			errs[r] = err
		})
	}
	all.Wait()
	return errs
}

// each runs f on all ranks at once.
func (m *mesh) each(f func(g *distributed.Group) error) []error {
	errs := make([]error, len(m.groups))
	var all sync.WaitGroup
	for r, g := range m.groups {
		all.Go(func() { errs[r] = f(g) })
	}
	all.Wait()
	return errs
}

// eitherWay runs a test in clear and over TLS.
func eitherWay(t *testing.T, f func(t *testing.T, encrypt bool)) {
	t.Run("clear", func(t *testing.T) { f(t, false) })
	t.Run("encrypted", func(t *testing.T) { f(t, true) })
}
