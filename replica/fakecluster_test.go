package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/distributed/memory"
	"ringmaster/engine/enginetest"
	"ringmaster/parallel"
)

// fakeCluster does in memory what *cluster.Leader and its followers do, with a
// goroutine for each follower.
type fakeCluster struct {
	onBegin atomic.Pointer[func()] // called by Begin

	t        *testing.T
	size     int
	members  []int // of the next epoch, ranks in order
	each     int   // fakeRank.each of new ranks
	big      int   // fakeRank.big of new ranks
	settings Settings
	program  *Program
	workers  []*Worker // [size], none for rank 0
	ranks    []*fakeRank
	models   *realModels    // nil for fakes
	real     []*realRank    // instead of ranks
	loads    []int          // [size]
	hooks    []hook         // [size]
	sent     [][]byte       // the steps
	reports  map[int][]byte // in place of those of the workers, by rank
	wg       sync.WaitGroup

	mu         sync.Mutex
	epoch      cluster.Epoch
	cancel     context.CancelCauseFunc
	why        error                // no epoch runs
	recovering bool                 // the test will form the next epoch
	groups     []*distributed.Group // of the epoch
	queues     []chan []byte
	given      uint64
	settled    uint64
	digests    map[uint64]map[int]cluster.Digest
	changed    chan struct{}
	recruits   chan *cluster.Recruit
}

// newCluster makes a cluster of size ranks and forms its first epoch.
func newCluster(t *testing.T, size int) (*fakeCluster, *Leader) { return newClusterOf(t, size, nil) }

// newClusterOf is newCluster of real models, unless they are nil.
func newClusterOf(t *testing.T, size int, models *realModels) (*fakeCluster, *Leader) {
	c := &fakeCluster{
		t: t, size: size, models: models, real: make([]*realRank, size), ranks: make([]*fakeRank, size), loads: make([]int, size), hooks: make([]hook, size), workers: make([]*Worker, size),
		settings: Settings{Context: 4096, MaxTokens: 64, Reduce: parallel.Sum},
		why:      errors.New("the group is forming"), changed: make(chan struct{}),
		recruits: make(chan *cluster.Recruit),
	}
	for i := range size {
		c.of(append(c.members, i)...)
		if i > 0 {
			c.workers[i] = NewWorker(i, hostOf(c.load))
		}
	}
	c.program = NewProgram(hostOf(c.load), &fakePlanner{plan: func([]cluster.Hello) (Settings, error) { return c.settings, nil }})
	l := NewLeader(c.program, c)
	require.NoError(t, c.form())
	return c, l
}

func (c *fakeCluster) load(s Settings, rank int) (Rank, error) {
	c.loads[rank]++
	if c.models != nil {
		c.real[rank] = c.models.open(64)
		c.real[rank].hook = &c.hooks[rank]
		return c.real[rank], nil
	}
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{ContextLength: s.Context, MaxTokens: s.MaxTokens, Rewind: 2, Tail: 24, CheckpointBytes: 1000})
	c.ranks[rank] = &fakeRank{Model: m, settings: s, number: rank, flip: -1, each: c.each, big: c.big, hook: &c.hooks[rank]}
	return c.ranks[rank], nil
}

// of makes ranks the members of the next epoch.
func (c *fakeCluster) of(members ...int) {
	c.members, c.settings.Placement = members, nil
	if c.models != nil {
		c.settings.Placement = c.models.place(len(members))
		return
	}
	for i := range members {
		c.settings.Placement = append(c.settings.Placement, parallel.Part{Experts: parallel.Range{Start: 4 * i, End: 4 * (i + 1)}, Weight: 1})
	}
}

// encoded returns settings as ranks get them.
func encoded(t *testing.T, s Settings) []byte {
	t.Helper()
	b, err := s.Encode()
	require.NoError(t, err)
	return b
}

// form forms the next epoch, as the cluster does when all ranks have joined.
func (c *fakeCluster) form() error {
	c.wg.Wait() // no Work runs
	members := slices.Clone(c.members)
	settings, err := c.program.Plan(make([]cluster.Hello, len(members)))
	if err != nil {
		return err
	}
	groups := memory.Groups(len(members))
	done, cancel := context.WithCancelCause(context.Background())
	epoch := func(i int) cluster.Epoch {
		return cluster.Epoch{Number: c.epoch.Number + 1, Rank: members[i], Members: members, Group: groups[i], Done: done}
	}
	programs := []cluster.Program{c.program}
	for _, rank := range members[1:] {
		programs = append(programs, c.workers[rank])
	}
	for _, p := range programs {
		if err := p.Form(done, settings); err != nil {
			cancel(err)
			return err
		}
	}
	for i, p := range programs {
		if err := p.Start(epoch(i)); err != nil {
			cancel(err)
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch, c.cancel, c.why, c.groups = epoch(0), cancel, nil, groups
	c.given, c.settled, c.digests = 0, 0, map[uint64]map[int]cluster.Digest{}
	c.wake()
	c.queues = make([]chan []byte, c.size)
	for _, i := range members[1:] {
		queue := make(chan []byte, 1000)
		c.queues[i] = queue
		c.wg.Go(func() { c.follow(i, queue, done) })
	}
	return nil
}

// follow is a follower in an epoch.
func (c *fakeCluster) follow(rank int, queue chan []byte, done context.Context) {
	for n := uint64(1); ; n++ {
		select {
		case payload := <-queue:
			d, err := c.workers[rank].Work(payload)
			if err != nil {
				c.end(&distributed.PeerError{Rank: rank, Addr: "10.0.0.2:7", Cause: err.Error()})
				return
			}
			c.done(rank, n, d)
		case <-done.Done():
			return
		}
	}
}

// end ends the epoch with a verdict; the first one counts.
func (c *fakeCluster) end(verdict error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return
	}
	c.why = verdict
	c.cancel(verdict)
	for _, g := range c.groups {
		g.Fail(verdict)
	}
	c.wake()
}

func (c *fakeCluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// done notes a digest and compares when all have arrived.
func (c *fakeCluster) done(rank int, n uint64, d cluster.Digest) {
	c.mu.Lock()
	if c.digests[n] == nil {
		c.digests[n] = map[int]cluster.Digest{}
	}
	c.digests[n][rank] = d
	var verdict error
	for len(c.digests[c.settled+1]) == len(c.epoch.Members) {
		c.settled++
		for _, r := range c.epoch.Members {
			for i, x := range c.digests[c.settled][r] {
				if y := c.digests[c.settled][0][i]; x != y && x != cluster.NotComputed && y != cluster.NotComputed && verdict == nil {
					verdict = &distributed.PeerError{Rank: r, Cause: "differs from rank 0 at " + c.program.Describe(i)}
				}
			}
		}
	}
	c.wake()
	c.mu.Unlock()
	if verdict != nil {
		c.end(verdict)
	}
}

func (c *fakeCluster) Epoch() (cluster.Epoch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.why
}

func (c *fakeCluster) Recruit(ctx context.Context) (*cluster.Recruit, error) {
	select {
	case r := <-c.recruits:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *fakeCluster) Reads() cluster.Reads { return c.program.Reads() }

func (c *fakeCluster) State() (cluster.Epoch, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.why != nil && c.recovering, c.why
}

func (c *fakeCluster) Await(ctx context.Context) (cluster.Epoch, error) {
	for {
		c.mu.Lock()
		e, why, changed, recovering := c.epoch, c.why, c.changed, c.recovering
		c.mu.Unlock()
		if why == nil || !recovering {
			return e, why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

func (c *fakeCluster) Begin(epoch uint32, payload []byte) (uint64, error) {
	if f := c.onBegin.Load(); f != nil {
		(*f)()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return 0, c.why
	}
	require.Equal(c.t, c.epoch.Number, epoch)
	c.given++
	if _, begins, _ := decodeBeginning(payload); !begins {
		c.sent = append(c.sent, payload)
	}
	for _, q := range c.queues {
		if q != nil {
			q <- payload
		}
	}
	return c.given, nil
}

func (c *fakeCluster) End(ctx context.Context, n uint64, d cluster.Digest) error {
	c.done(0, n, d)
	for {
		c.mu.Lock()
		why, settled, changed := c.why, c.settled, c.changed
		c.mu.Unlock()
		switch {
		case settled >= n && ctx.Err() == nil:
			return nil
		case why != nil:
			return why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *fakeCluster) EndLater(n uint64, d cluster.Digest) { c.done(0, n, d) }

func (c *fakeCluster) Fail(epoch uint32, cause error) error {
	c.end(&distributed.PeerError{Rank: 0, Cause: cause.Error()})
	return c.why
}

func (c *fakeCluster) Reports(context.Context) ([][]byte, error) {
	out := make([][]byte, c.size)
	for i, w := range c.workers[1:] {
		out[i+1] = w.Report()
		if r, ok := c.reports[i+1]; ok {
			out[i+1] = r
		}
	}
	return out, nil
}

// stop ends the epoch, waits for the followers, closes the models, and checks
// that none was used wrongly.
func (c *fakeCluster) stop(l *Leader) {
	c.end(errors.New("the test is over"))
	c.wg.Wait()
	require.NoError(c.t, l.Close())
	for _, w := range c.workers[1:] {
		require.NoError(c.t, w.Close(context.Background()))
	}
	for i := range c.ranks {
		c.behaved(i)
	}
}

// behaved checks that the model of a rank was not used wrongly.
func (c *fakeCluster) behaved(rank int) {
	c.t.Helper()
	if c.ranks[rank] != nil {
		require.Empty(c.t, c.ranks[rank].Violations(), "rank %d", rank)
	}
}

// others returns the ranks without the leader's.
func (c *fakeCluster) others() (all []int) {
	for rank := 1; rank < c.size; rank++ {
		all = append(all, rank)
	}
	return all
}
