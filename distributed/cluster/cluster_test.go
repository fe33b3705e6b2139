package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
)

func TestGroupWorks(t *testing.T) {
	r := newRig(t, 3, []byte("a key of the cluster"))
	one, two := r.follow(1, nil), r.follow(2, nil)
	ctx := soon(t)
	require.NoError(t, r.leader.Wait(ctx))
	e := r.running(0)
	for i := range 20 {
		require.NoError(t, r.do(e, fmt.Sprint("work ", i)))
	}
	reports, err := r.leader.Reports(ctx)
	require.NoError(t, err)
	require.Equal(t, [][]byte{nil, []byte("report"), []byte("report")}, reports)
	require.NoError(t, r.leader.Close(ctx, "enough"))
	require.NoError(t, r.ended(one))
	require.NoError(t, r.ended(two))
	require.Equal(t, one.did, two.did)
	require.Len(t, one.did, 20)
	require.Equal(t, "3 ranks", two.settings)
	_, err = r.leader.Begin(e.Number, nil)
	require.ErrorContains(t, err, "enough")
}

func TestGroupOfOne(t *testing.T) {
	r := newRig(t, 1, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "alone"))
}

// TestRankComesBack: a rank leaves, work in progress ends with the verdict on
// both sides, the rank comes back, and the next epoch works.
func TestRankComesBack(t *testing.T) {
	r := newRig(t, 3, nil)
	one := r.follow(1, nil)
	r.follow(2, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "first"))
	one.workErr = func(string) error {
		one.stop(errors.New("was told to stop"))
		return errors.New("no more")
	}
	require.ErrorContains(t, r.do(e, "second"), "rank 1 at 127.0.0.1:")
	require.NoError(t, r.ended(one))
	require.Eventually(t, func() bool {
		_, err := r.leader.Epoch()
		return err != nil && strings.Contains(err.Error(), "waiting for rank 1")
	}, limit, 2*time.Millisecond)
	require.Error(t, r.do(e, "third"))
	require.Error(t, context.Cause(e.Done))

	r.follow(1, nil)
	next := r.running(e.Number)
	require.ErrorContains(t, r.do(e, "of the old epoch"), "has ended")
	require.NoError(t, r.do(next, "fourth"))
}

// TestLostConnection: a follower whose connection breaks reconnects.
func TestLostConnection(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, nil)
	e := r.running(0)
	r.cut()
	next := r.running(e.Number)
	require.NoError(t, r.do(next, "after all"))
	require.Equal(t, []string{"after all"}, one.did)
}

func TestWorkFails(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, nil)
	e := r.running(0)
	one.workErr = func(string) error { return errors.New("out of order") }
	require.ErrorContains(t, r.do(e, "work"), "out of order")
	one.workErr = nil
	require.NoError(t, r.do(r.running(e.Number), "again"))
	// An operation that waited for another rank blames that one.
	e = r.running(e.Number)
	one.workErr = func(string) error {
		return &distributed.OpError{Op: "all_sum", Seq: 7, Rank: 1, Peer: 0, Err: distributed.ErrTimeout}
	}
	require.ErrorContains(t, r.do(e, "work"), "rank 0: all_sum #7 on rank 1: rank 0: deadline passed (reported by rank 1)")
	one.workErr = nil
	e = r.running(e.Number)
	require.ErrorContains(t, r.leader.Fail(e.Number, &distributed.OpError{Op: "all_sum", Rank: 0, Peer: 1, Err: distributed.ErrTimeout}), "rank 1 at 127.0.0.1")
	// The same for the leader's own work.
	e = r.running(e.Number)
	require.ErrorContains(t, r.leader.Fail(e.Number, errors.New("a broken kernel")), "rank 0: a broken kernel")
	r.running(e.Number)
}

// TestDivergence: one wrong digest of one of two ranks ends the epoch, and the next one runs
// the work; ranks that differ each time get no epoch, until another process replaces one of
// them. The leader survives all of it.
func TestDivergence(t *testing.T) {
	r := newRig(t, 2, nil)
	var lies atomic.Int32
	one := r.follow(1, func(_ *Config, p *program) { p.lies = &lies })
	differ := func(e Epoch) Epoch {
		err := r.do(e, "work")
		require.ErrorContains(t, err, "rank 1")
		require.ErrorContains(t, err, "differs from rank 0")
		require.ErrorContains(t, err, "at byte 0")
		require.ErrorContains(t, err, "which of them is wrong is not known")
		return e
	}
	e := r.running(0)
	require.NoError(t, r.do(e, "work"))
	lies.Store(1)
	differ(e)
	e = r.running(e.Number)
	require.NoError(t, r.do(e, "work"))
	lies.Store(1 << 20)
	differ(e)
	e = r.running(e.Number)
	differ(e)
	_, recovering, err := r.leader.State()
	require.ErrorContains(t, err, "the next attempt is in 10m0s, or when a rank joins")
	require.False(t, recovering, "requests do not wait for it")
	r.crash(1, one)
	r.follow(1, nil)
	require.NoError(t, r.do(r.running(e.Number), "work"))
	require.NoError(t, r.leader.Err())
}

func TestTurnedAway(t *testing.T) {
	r := newRig(t, 3, []byte("a key of the cluster"))
	r.follow(1, nil)
	for _, c := range []struct {
		change func(*Config, *program)
		want   string
	}{
		{func(c *Config, _ *program) { c.Hello.Fingerprint = "other" }, "rank 2 has m.gguf with other"},
		{func(c *Config, _ *program) { c.Hello.Rank = 7 }, "change --rank"},
		{func(c *Config, _ *program) { c.Key = []byte("another key, also long") }, "key"},
		{func(c *Config, _ *program) { c.Key = nil }, "key"},
	} {
		require.ErrorContains(t, r.ended(r.follow(2, c.change)), c.want)
	}
	// Garbage does no harm.
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x01\x02"} {
		nc, err := net.Dial("tcp", r.addr)
		require.NoError(t, err)
		_, err = nc.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, nc.Close())
	}
	r.follow(2, nil)
	require.NoError(t, r.do(r.running(0), "all the same"))
}

// TestTwoFollowersOfOneRank: the second is rejected, the first continues.
func TestTwoFollowersOfOneRank(t *testing.T) {
	r := newRig(t, 2, nil)
	r.follow(1, nil)
	e := r.running(0)
	require.ErrorContains(t, r.ended(r.follow(1, nil)), "rank 1 is taken")
	require.NoError(t, r.do(e, "work"))
}

func TestInterruptAnywhereEndsAll(t *testing.T) {
	r := newRig(t, 3, nil)
	one, two := r.follow(1, nil), r.follow(2, nil)
	r.running(0)
	two.stop(ErrStopAll)
	require.NoError(t, r.ended(one))
	require.NoError(t, r.ended(two))
	<-r.leader.Done()
	require.NoError(t, r.leader.Err())
}

func TestFirstEpochFails(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, func(_ *Config, p *program) { p.formErr = errors.New("no memory for m.gguf") })
	ctx := soon(t)
	require.ErrorContains(t, r.leader.Wait(ctx), "no memory for m.gguf")
	require.NoError(t, r.ended(one))

	s := newRig(t, 2, nil)
	s.follow(1, func(c *Config, _ *program) {
		c.Transport = &transport{Network: s.net, refuse: errors.New("cannot reach rank 0")}
	})
	require.ErrorContains(t, s.leader.Wait(ctx), "cannot reach rank 0")
}

func TestNoLeader(t *testing.T) {
	r := &rig{t: t, net: memory.NewNetwork(), size: 2}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.addr = l.Addr().String()
	require.NoError(t, l.Close())
	f := r.follow(1, func(c *Config, _ *program) { c.ConnectTimeout = 200 * time.Millisecond })
	err = r.ended(f)
	require.ErrorContains(t, err, r.addr)
	require.ErrorContains(t, err, "check that rank 0 is running")
}

// TestTheOthersContinue: a rank dies in a piece of work; the others repeat it without that
// rank and without help, with the ranks of the world in its group. The rank returns between
// two pieces of work and leaves again without interrupting one.
func TestTheOthersContinue(t *testing.T) {
	r := newRigThat(t, Continue, 3, nil)
	one := r.follow(1, nil)
	two := r.follow(2, nil)
	e := r.running(0)
	require.Equal(t, []int{0, 1, 2}, e.Members)
	require.NoError(t, r.do(e, "first"))
	one.workErr = func(string) error {
		r.crash(1, one)
		return errors.New("no more")
	}
	require.ErrorContains(t, r.do(e, "second"), "rank 1 at 127.0.0.1:")
	ctx := soon(t)
	e, err := r.leader.Await(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{0, 2}, e.Members)
	require.Equal(t, 2, e.Group.Size())
	_, recovering, err := r.leader.State()
	require.NoError(t, err)
	require.False(t, recovering)
	require.NoError(t, r.do(e, "second again"))
	reports, err := r.leader.Reports(ctx)
	require.NoError(t, err)
	require.Equal(t, [][]byte{nil, nil, []byte("report")}, reports)

	one = r.follow(1, nil)
	e = r.running(e.Number)
	require.Equal(t, []int{0, 1, 2}, e.Members)
	require.NoError(t, r.do(e, "third"))
	two.stop(errors.New("was told to stop"))
	require.NoError(t, r.ended(two))
	e = r.running(e.Number)
	require.Equal(t, []int{0, 1}, e.Members)
	require.NoError(t, r.do(e, "fourth"))
	require.Equal(t, []string{"third", "fourth"}, one.did)
	require.Equal(t, []string{"second again", "third"}, two.did[len(two.did)-2:])

	r.mu.Lock()
	defer r.mu.Unlock()
	var lost, ranks []int
	for i, f := range r.formed {
		lost, ranks = append(lost, f.Lost), append(ranks, f.Ranks)
		require.Equal(t, uint32(i+2), f.Epoch, "the first epoch replaces none")
		require.False(t, f.Began.IsZero())
		require.Positive(t, f.Parts[Connecting])
	}
	require.Equal(t, []int{1, -1, -1}, lost)
	require.Equal(t, []int{2, 3, 2}, ranks)
}

// TestLossesAtOnce: ranks lost in one event cost one epoch each, but only the last epoch is
// planned and formed. A caller that asks meanwhile is never told that no epoch will follow.
func TestLossesAtOnce(t *testing.T) {
	r := newRigThat(t, Continue, 4, nil)
	var others []*following
	for rank := 1; rank < 4; rank++ {
		others = append(others, r.follow(rank, nil))
	}
	e := r.running(0)
	var plans atomic.Int32
	r.lead.planning.Store(&plans)
	var over atomic.Bool
	var hopeless atomic.Int32
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for !over.Load() {
				if _, recovering, err := r.leader.State(); err != nil && !recovering {
					hopeless.Add(1)
				}
			}
		})
	}
	require.NoError(t, r.leader.listener.Close()) // no rank returns
	r.leader.event(func() {
		for rank := 1; rank < 4; rank++ {
			r.leader.sm.closed(r.leader.sm.members[rank].conn, "gone")
		}
	})
	after := r.running(e.Number)
	over.Store(true)
	asking.Wait()
	require.Zero(t, hopeless.Load())
	require.Equal(t, e.Number+3, after.Number)
	require.Equal(t, []int{0}, after.Members)
	require.EqualValues(t, 1, plans.Load())
	require.Equal(t, "1 ranks", r.lead.settings)
	require.NoError(t, r.do(after, "alone"))
	for _, f := range others {
		f.stop(errors.New("the test is over"))
	}
}

// TestTheLeaderContinuesAlone: after the loss of its only follower.
func TestTheLeaderContinuesAlone(t *testing.T) {
	r := newRigThat(t, Continue, 2, nil)
	one := r.follow(1, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "first"))
	r.crash(1, one)
	e = r.running(e.Number)
	require.Equal(t, []int{0}, e.Members)
	require.NoError(t, r.do(e, "second"))
}

func TestFailEndsTheGroup(t *testing.T) {
	r := newRigThat(t, Fail, 3, nil)
	one, two := r.follow(1, nil), r.follow(2, nil)
	r.running(0)
	r.crash(1, one)
	require.NoError(t, r.ended(two), "the leader ended the group")
	<-r.leader.Done()
	require.ErrorContains(t, r.leader.Err(), "rank 1 at 127.0.0.1:")
}

// TestOrphan: a follower that has lost its leader looks for it for the configured time.
func TestOrphan(t *testing.T) {
	r := newRig(t, 2, nil)
	one := r.follow(1, func(c *Config, _ *program) { c.ConnectTimeout = 200 * time.Millisecond })
	r.running(0)
	require.NoError(t, r.leader.listener.Close())
	r.cut()
	require.ErrorContains(t, r.ended(one), "for 200ms")
}
