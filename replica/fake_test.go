package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/distributed/memory"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
	"ringmaster/parallel"
)

// fakeRank is a rank's model: enginetest's, which holds each call against the
// rules, and an exchange in each step as if it were a layer.
type fakeRank struct {
	*enginetest.Model
	settings Settings
	number   int
	inUse    atomic.Bool

	group     *distributed.Group
	placement parallel.Placement
	digest    []uint32
	joins     int
	restored  int // sequences

	// What a test may change before a step.
	onPrepare func(model.Step) error
	onForward func(context.Context, model.Step) error
	// hook is onForward for tests that change it while steps run.
	hook atomic.Pointer[func(context.Context, model.Step) error]
	flip int // position of the digest that is wrong, -1 for none

	wants    []model.Want // of all entries run
	prepared []model.Step // the steps of all Prepare
}

// alone panics when two goroutines use a rank at the same time.
func (r *fakeRank) alone() func() {
	if !r.inUse.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("rank %d is used by two goroutines", r.number))
	}
	return func() { r.inUse.Store(false) }
}

func (r *fakeRank) Join(g *distributed.Group, p parallel.Placement) error {
	defer r.alone()()
	r.group, r.placement = g, p
	r.joins++
	return nil
}

func (r *fakeRank) Forget() {
	defer r.alone()()
	r.Model.Forget()
}

func (r *fakeRank) Snapshot(w io.Writer, id model.SeqID, tokens []int32) error {
	defer r.alone()()
	if have := r.Live()[id]; !slices.Equal(have, tokens) {
		return fmt.Errorf("sequence %d is %v, not %v", id, have, tokens)
	}
	return json.NewEncoder(w).Encode(tokens)
}

func (r *fakeRank) Restore(in io.Reader, id model.SeqID) (tokens []int32, err error) {
	defer r.alone()()
	if err := json.NewDecoder(in).Decode(&tokens); err != nil {
		return nil, err
	}
	r.restored++
	r.Model.Restore(id, tokens)
	return tokens, nil
}

func (r *fakeRank) Prepare(s model.Step) error {
	defer r.alone()()
	r.prepared = append(r.prepared, s)
	if r.onPrepare != nil {
		return r.onPrepare(s)
	}
	return nil
}

func (r *fakeRank) Run(ctx context.Context) ([][]float32, error) {
	defer r.alone()()
	s := r.prepared[len(r.prepared)-1]
	for _, e := range s.Entries {
		r.wants = append(r.wants, e.Want)
	}
	if r.onForward != nil {
		if err := r.onForward(ctx, s); err != nil {
			return nil, err
		}
	}
	if hook := r.hook.Load(); hook != nil {
		if err := (*hook)(ctx, s); err != nil {
			return nil, err
		}
	}
	rows, err := r.Model.Forward(ctx, s)
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(withoutWant(s))
	sum := crc32.ChecksumIEEE(text)
	r.digest = []uint32{sum, sum + 1, sum + 2} // two layers and the end
	if r.flip >= 0 {
		r.digest[r.flip]++
	}
	return rows, r.exchange(ctx)
}

// exchange gathers rank+1 bytes of each rank, so that what ranks send differs.
func (r *fakeRank) exchange(ctx context.Context) error {
	sizes, total := make([]int, r.group.Size()), 0
	for i := range sizes {
		sizes[i] = i + 1
		total += i + 1
	}
	return r.group.AllGatherV(ctx, make([]byte, total), sizes)
}

func (r *fakeRank) Commit(s model.Step) {
	defer r.alone()()
	r.Model.Commit(s)
}

func (r *fakeRank) Digest() []uint32 { return r.digest }

func (r *fakeRank) LayerStats() []parallel.LayerStats {
	n := uint64(len(r.Steps()))
	return []parallel.LayerStats{{Compute: time.Second, Exchanges: n}, {Compute: time.Minute, Exchanges: n, Sent: uint64(r.number)}}
}

// withoutWant is a step without what its entries want.
func withoutWant(s model.Step) model.Step {
	s.Entries = slices.Clone(s.Entries)
	for i := range s.Entries {
		s.Entries[i].Want = model.WantNone
	}
	return s
}

// upTo is a placement in which the experts of each rank end at the given numbers.
func upTo(ends ...int) parallel.Placement {
	p, at := make(parallel.Placement, len(ends)), 0
	for r, end := range ends {
		p[r] = parallel.Part{Experts: parallel.Range{Start: at, End: end}, Weight: 1}
		at = end
	}
	return p
}

// fakeCluster does in memory what *cluster.Leader and its followers do, with a
// goroutine for each follower.
type fakeCluster struct {
	t        *testing.T
	size     int
	settings Settings
	program  *Program
	workers  []*Worker // [size], none for rank 0
	ranks    []*fakeRank
	loads    []int    // [size]
	sent     [][]byte // the steps
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
}

// newCluster makes a cluster of size ranks and forms its first epoch.
func newCluster(t *testing.T, size int) (*fakeCluster, *Leader) {
	c := &fakeCluster{
		t: t, size: size, ranks: make([]*fakeRank, size), loads: make([]int, size), workers: make([]*Worker, size),
		settings: Settings{Context: 4096, MaxTokens: 64, Reduce: "sum", Wire: "f16"},
		why:      errors.New("the group is forming"), changed: make(chan struct{}),
	}
	for i := range size {
		c.settings.Placement = append(c.settings.Placement, parallel.Part{Experts: parallel.Range{Start: 4 * i, End: 4 * (i + 1)}, Weight: 1})
		if i > 0 {
			c.workers[i] = NewWorker(i, c.load)
		}
	}
	c.program = NewProgram(c.load, func([]cluster.Hello) (Settings, error) { return c.settings, nil })
	l := NewLeader(c.program, c)
	require.NoError(t, c.form())
	return c, l
}

func (c *fakeCluster) load(s Settings, rank int) (Rank, error) {
	c.loads[rank]++
	m := enginetest.NewModel(enginetest.Size, enginetest.Options{ContextLength: s.Context, MaxTokens: s.MaxTokens, Rewind: 2})
	c.ranks[rank] = &fakeRank{Model: m, settings: s, number: rank, flip: -1}
	return c.ranks[rank], nil
}

// form forms the next epoch, as the cluster does when all ranks are there.
func (c *fakeCluster) form() error {
	c.wg.Wait() // no Work runs
	settings, err := c.program.Plan(make([]cluster.Hello, c.size))
	if err != nil {
		return err
	}
	groups := memory.Groups(c.size)
	done, cancel := context.WithCancelCause(context.Background())
	epoch := func(rank int) cluster.Epoch {
		return cluster.Epoch{Number: c.epoch.Number + 1, Rank: rank, Group: groups[rank], Done: done}
	}
	programs := []cluster.Program{c.program}
	for _, w := range c.workers[1:] {
		programs = append(programs, w)
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
	for i := 1; i < c.size; i++ {
		queue := make(chan []byte, 4)
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

// done notes a digest and compares when all are there.
func (c *fakeCluster) done(rank int, n uint64, d cluster.Digest) {
	c.mu.Lock()
	if c.digests[n] == nil {
		c.digests[n] = map[int]cluster.Digest{}
	}
	c.digests[n][rank] = d
	var verdict error
	for len(c.digests[c.settled+1]) == c.size {
		c.settled++
		for r := range c.size {
			for i, x := range c.digests[c.settled][r] {
				if x != c.digests[c.settled][0][i] && verdict == nil {
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

func (c *fakeCluster) Recovering() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why != nil && c.recovering
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
	for _, q := range c.queues[1:] {
		q <- payload
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

func (c *fakeCluster) Fail(epoch uint32, cause error) error {
	c.end(&distributed.PeerError{Rank: 0, Cause: cause.Error()})
	return c.why
}

func (c *fakeCluster) Reports(context.Context) ([][]byte, error) {
	out := make([][]byte, c.size)
	for i, w := range c.workers[1:] {
		out[i+1] = w.Report()
	}
	return out, nil
}

// stop ends the epoch and, when no follower works any more, closes
// the models, none of which may have been used wrongly.
func (c *fakeCluster) stop(l *Leader) {
	c.end(errors.New("the test is over"))
	c.wg.Wait()
	require.NoError(c.t, l.Close())
	for _, w := range c.workers[1:] {
		require.NoError(c.t, w.Close(context.Background()))
	}
	for i, r := range c.ranks {
		require.Empty(c.t, r.Violations(), "rank %d", i)
	}
}
