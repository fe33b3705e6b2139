package tcp

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
)

// splitAll splits on all ranks at once; colors and keys are indexed by rank.
func splitAll(t *testing.T, groups []*distributed.Group, colors, keys []int) []*distributed.Group {
	t.Helper()
	children := make([]*distributed.Group, len(groups))
	for r, err := range grouptest.OnAll(groups, func(r int, g *distributed.Group) (err error) {
		children[r], err = g.Split(t.Context(), colors[r], keys[r])
		return err
	}) {
		require.NoError(t, err, "rank %d", r)
	}
	return children
}

// TestSuspicionOfAChild: a suspicion in a grandchild is reported to the owner
// of the outermost link once, with the world rank; the owner's verdict ends all
// groups.
func TestSuspicionOfAChild(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		told := make(chan suspicion, 8)
		m := newMesh(t, 4, Options{Encrypt: encrypt, Threshold: 1 << 20}, func(l *distributed.Link) {
			l.VerdictTimeout = time.Hour
			if l.Rank == 1 {
				l.Suspect = func(peer int, cause error) { told <- suspicion{peer, cause} }
			}
		})
		same := []int{0, 0, 0, 0}
		children := splitAll(t, m.groups, []int{0, 1, 0, 1}, []int{3, 2, 1, 0}) // 3 and 1 are 0 and 1
		grand := splitAll(t, children, same, []int{9, 0, 9, 1})                 // 1 and 3 are 0 and 1 again
		done := make(chan error, 1)
		go func() { done <- grand[1].Barrier(t.Context()) }()
		require.NoError(t, m.groups[3].Close())
		s := <-told
		require.Equal(t, 3, s.peer)
		require.ErrorIs(t, s.cause, distributed.ErrPeerGone)
		verdict := &distributed.PeerError{Rank: 2, Addr: "there", Cause: "no heartbeat"}
		m.groups[1].Fail(verdict)
		err := <-done
		require.ErrorIs(t, err, verdict)
		require.Equal(t, -1, grouptest.OpError(t, err).Peer, "the culprit is no member")
		require.ErrorIs(t, children[1].Barrier(t.Context()), verdict)
		require.Empty(t, told, "told once")
	})
}

// TestSplitFailsOnAll: an unreachable rank makes the split fail on all ranks,
// whichever child they were to join, and leaves no rank with a child; the group
// still works.
func TestSplitFailsOnAll(t *testing.T) {
	m := newMesh(t, 4, Options{Threshold: 1 << 20}, func(l *distributed.Link) { l.OpTimeout = 4 * time.Second })
	require.NoError(t, m.transports[0].Close())
	colors := []int{5, 5, 6, distributed.Undefined}
	for r, err := range m.each(func(g *distributed.Group) error {
		c, err := g.Split(t.Context(), colors[g.Rank()], 0)
		if c != nil {
			return errors.New("the split made a child")
		}
		return err
	}) {
		require.ErrorIs(t, err, distributed.ErrBootstrap, "rank %d", r)
		op := grouptest.OpError(t, err)
		require.Equal(t, []any{"split", r}, []any{op.Op, op.Rank})
		if r > 0 {
			require.ErrorContains(t, err, "rank 0")
		}
		require.ErrorContains(t, err, "does not listen")
	}
	works(t, m)
	alone := splitAll(t, m.groups, []int{0, 1, 2, distributed.Undefined}, []int{0, 0, 0, 0})
	for r, g := range alone[:3] {
		require.Equal(t, "local", g.Kind(), "rank %d", r)
		require.NoError(t, g.Barrier(t.Context()))
	}
	require.Nil(t, alone[3])
	works(t, m)
}

// TestGroupsSideBySide: one transport connects several groups at once.
func TestGroupsSideBySide(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m := listen(t, 3, Options{Encrypt: encrypt, Threshold: 1 << 20})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var sides []*mesh
		for i := range 4 {
			side := &mesh{transports: m.transports, links: slices.Clone(m.links), groups: make([]*distributed.Group, 3)}
			for r := range side.links {
				side.links[r].GroupID = string(rune('a' + i))
			}
			sides = append(sides, side)
		}
		for i, err := range grouptest.OnAll(sides, func(_ int, side *mesh) error { return errors.Join(side.connect(ctx)...) }) {
			require.NoError(t, err, "group %d", i)
		}
		for _, side := range sides {
			works(t, side)
			for _, g := range side.groups {
				require.NoError(t, g.Close())
			}
		}
	})
}

// TestChildIsProved: the parent's token does not authenticate a connection of a
// child.
func TestChildIsProved(t *testing.T) {
	m := listen(t, 2, Options{Threshold: 1 << 20})
	tr := m.transports[0].(*Transport)
	l := m.links[0]
	l.GroupID, l.Token, l.World, l.Child = "child", bytes.Repeat([]byte{8}, 32), []int{0, 1}, true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := tr.connect(ctx, l, &Calibration{})
		done <- err
	}()
	knock := func(token []byte) error {
		h := hello{version: helloVersion, size: 2, epoch: 7, from: 1, to: 0, group: groupHash("child")}
		return greet(dialTo(t, l.Addrs[0]), h, token)
	}
	awaitRejection(t, statusToken, func() error { return knock(m.links[0].Token) })
	cancel()
	err := <-done
	require.ErrorIs(t, err, distributed.ErrBootstrap)
	require.ErrorContains(t, err, "on rank 0 (world rank 0): rank 1 (world rank 1)")
}

// TestChildTakesTheFigures: a child does not measure; all of its ranks use the
// parent's figures.
func TestChildTakesTheFigures(t *testing.T) {
	m := newMesh(t, 3, Options{}, nil)
	parent := m.groups[0].Driver().(*driver).measured
	children := splitAll(t, m.groups, []int{0, distributed.Undefined, 0}, []int{0, 0, 0})
	want := parent
	want.Threshold = threshold(2, parent)
	for _, r := range []int{0, 2} {
		got := children[r].Driver().(*driver).measured
		require.GreaterOrEqual(t, got.Credit, leastCredit)
		got.Credit = want.Credit
		require.Equal(t, want, got)
		require.Contains(t, children[r].Describe().Topology, "tcp mesh of 2 ranks")
	}
}

// TestManySplits: closed children leave nothing behind in the transport.
func TestManySplits(t *testing.T) {
	eitherWay(t, func(t *testing.T, encrypt bool) {
		m := newMesh(t, 3, Options{Encrypt: encrypt, Threshold: 1 << 20}, nil)
		for range 30 {
			for _, c := range splitAll(t, m.groups, []int{0, 0, 1}, []int{0, 0, 0}) {
				require.NoError(t, c.Close())
			}
		}
		require.Empty(t, m.transports[0].(*Transport).sessions)
		works(t, m)
	})
}
