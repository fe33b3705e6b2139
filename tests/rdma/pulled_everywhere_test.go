//go:build cgo && linux

package rdma

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// lifeOfAGroup does everything that ranks do with a group after it was formed: sums of one
// message and of many, messages, a child, closing the child. It ends with the first error.
func lifeOfAGroup(ctx context.Context, g *distributed.Group) (err error) {
	sum := func(g *distributed.Group, n int) {
		if err == nil {
			err = g.AllSum(ctx, make([]byte, n), make([]byte, n), distributed.Float16)
		}
	}
	sum(g, 64)
	sum(g, 300<<10)
	if err == nil && g.Rank() == 0 {
		err = g.Send(ctx, make([]byte, 20<<10), 1)
	} else if err == nil {
		err = g.Recv(ctx, make([]byte, 20<<10), 0)
	}
	if err != nil {
		return err
	}
	child, err := g.Split(ctx, 0, g.Rank())
	if err != nil {
		return err
	}
	sum(child, 100<<10)
	if e := child.Close(); err == nil {
		err = e
	}
	sum(g, 4096)
	return err
}

// judged is each with a verdict, which the cluster gives in a server. A rank that had
// completed its part of an operation before the crash starts the next one, which the other
// rank never joins, or has no next one and only notices that its device is lost. The other
// gets the verdict if it has not noticed anything after a while.
func (s *scene) judged(f func(g *distributed.Group) error) []error {
	ended := []chan struct{}{make(chan struct{}), make(chan struct{})}
	return s.each(func(g *distributed.Group) error {
		err := f(g)
		close(ended[g.Rank()])
		other := 1 - g.Rank()
		verdict := err
		if err == nil && g.Rank() == 0 { // its device crashes
			select {
			case <-ended[other]:
			case verdict = <-s.suspects:
			}
		}
		if verdict == nil {
			return nil
		}
		select {
		case <-ended[other]:
		case <-time.After(3 * time.Second):
			s.groups[other].Fail(fmt.Errorf("rank %d: %w", g.Rank(), verdict))
		}
		if err == nil {
			err = g.Barrier(s.t.Context()) // it suspects: the next operation fails
		}
		return err
	})
}

// TestPulledAnywhere: the provider crashes in the n-th post of either kind on a cable, for
// every n from the first post of the bring-up to the last of the group's life, and in each
// call that prepares a rail. The ranks form over the other cable and say why, or an
// operation fails on both and names the cable. The next epoch uses both cables again, and
// the helpers leave nothing behind.
func TestPulledAnywhere(t *testing.T) {
	step := 29
	if testenv.Rest(t, testenv.Full, "a crash in every n-th post") {
		step = 1
	}
	for _, event := range []string{"post_send", "post_recv"} {
		n := 1
		for s := newCrash(t, event, n); s.fired; s = newCrash(t, event, n) {
			n += step
		}
		require.Greater(t, n, 9, "posts")
		t.Logf("%s: fewer than %d", event, n)
	}
	for _, event := range []string{"port", "alloc_pd", "reg_mr", "create_cq", "create_qp", "init", "rtr", "rts"} {
		require.True(t, newCrash(t, event, 1).fired, event)
	}
}

// crash is the result of a group with a crashing provider.
type crash struct{ fired bool }

// newCrash runs the life of a group of two ranks on two cables; at the n-th event of
// a kind the provider of rank 0's first device crashes.
func newCrash(t *testing.T, event string, n int) (c crash) {
	t.Run(fmt.Sprintf("%s/%d", event, n), func(t *testing.T) {
		s := newScene(t, fmt.Sprintf("fault device=%s on=%s nth=%d do=crash\n", device(0, 1, 0), event, n))
		g := s.form(1)
		early := s.fabric.Count("fault:0") > 0
		notes := strings.Join(g.Describe().Notes, "; ")
		rails := 2
		if early && event != "port" && event != "alloc_pd" { // these are tried again with a new helper
			rails = 1
			require.Contains(t, notes, device(0, 1, 0))
		}
		require.Len(t, cables(g)[0][1], rails, notes)
		ctx := testenv.Within(t, time.Minute)
		began := time.Now()
		errs := s.judged(func(g *distributed.Group) error { return lifeOfAGroup(ctx, g) })
		require.Less(t, time.Since(began), 15*time.Second, "before any deadline: %v", errs)
		c.fired = s.fabric.Count("fault:0") > 0
		if c.fired && !early {
			if errs[0] == nil || errs[1] == nil { // it was the last post, for an operation that did not follow, or one rank had ended before
				before := errs
				errs = s.judged(func(g *distributed.Group) error {
					err := before[g.Rank()]
					for err == nil {
						err = g.Barrier(ctx)
					}
					return err
				})
			}
			for r, err := range errs {
				require.ErrorContains(t, err, device(0, 1, 0), "rank %d", r)
			}
			named(t, errs[0], 0)
		} else {
			require.NoError(t, errors.Join(errs...))
		}
		s.end()
		if c.fired {
			s.works(s.form(2), 2)
			s.end()
		}
	})
	return c
}

// TestPulledWhileWaiting: a rank that has posted what it can and only waits makes no call
// that could crash; it finds the cable by querying its ports, long before the operation's
// deadline. The next epoch uses the other cable.
func TestPulledWhileWaiting(t *testing.T) {
	// Helpers post by themselves, so here no post crashes, whenever it happens.
	s := sceneOf(t, "", "")
	s.works(s.form(1), 2)
	began := time.Now()
	op := s.groups[0].StartAllSum(t.Context(), make([]byte, 4096), make([]byte, 4096), distributed.Float16)
	s.pull(1)
	err := op.Wait()
	require.Less(t, time.Since(began), 15*time.Second, "before any deadline")
	require.ErrorContains(t, err, "("+device(0, 1, 1)+")")
	require.ErrorContains(t, err, "its port is DOWN")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, <-s.suspects, device(0, 1, 1))
	s.end()
	s.works(s.form(2), 1)
	s.end()
}
