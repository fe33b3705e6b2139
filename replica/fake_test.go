package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
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
	"ringmaster/model/snapshot"
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
	restored  int // sequences, as a whole
	continued int // positions of others
	each      int // bytes of a position's state, 0: a sequence has fakeState

	// What a test may change before a step.
	onPrepare func(model.Step) error
	onExamine func(model.Piece) error
	onForward func(context.Context, model.Step) error
	// onRestoreFrom may refuse a sequence.
	onRestoreFrom func(model.SeqID) error
	// hook is onForward for tests that change it while steps run.
	hook atomic.Pointer[func(context.Context, model.Step) error]
	flip int // position of the digest that is wrong, -1 for none
	// overflows is the exchanges repeated in float32 that it counts.
	overflows uint64

	rows     [][]float32  // the logits of the last step, until Join
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
	for _, row := range r.rows { // as memory that is freed
		for i := range row {
			row[i] = float32(math.NaN())
		}
	}
	r.group, r.placement, r.rows = g, p, nil
	r.joins++
	return nil
}

func (r *fakeRank) Forget() {
	defer r.alone()()
	r.Model.Forget()
}

func (r *fakeRank) Drop(id model.SeqID) {
	defer r.alone()()
	r.Model.Drop(id)
}

func (r *fakeRank) Snapshot(w io.Writer, id model.SeqID, tokens []int32) error {
	done := r.alone()
	have := r.Live()[id]
	done() // it is written in pieces, between steps
	if !slices.Equal(have, tokens) {
		return fmt.Errorf("sequence %d is %v, not %v", id, have, tokens)
	}
	h := snapshot.Header{Model: "fake", Layout: "fake", Length: len(tokens), Peak: len(tokens)}
	return snapshot.Write(w, h, tokens, []snapshot.Section{{Name: "nothing", Parts: [][]byte{make([]byte, fakeState)}}})
}

// fakeState is the bytes of a sequence's state, which mean nothing.
const fakeState = 3 << 19

func (r *fakeRank) Restore(in io.Reader, id model.SeqID) (tokens []int32, err error) {
	// Read in pieces, between steps.
	x, err := snapshot.Read(in, "fake", "fake", r.settings.Context)
	if err != nil {
		return nil, err
	}
	bytes := fakeState
	if r.each > 0 {
		bytes = r.each * x.Length
	}
	if err := x.Section(snapshot.Section{Name: "nothing", Parts: [][]byte{make([]byte, bytes)}}); err != nil {
		return nil, err
	}
	tokens = x.Tokens
	defer r.alone()()
	r.restored++
	r.Model.Restore(id, tokens)
	return tokens, nil
}

// SnapshotFrom has a section of each bytes for every position.
func (r *fakeRank) SnapshotFrom(w io.Writer, id model.SeqID, tokens []int32, from int) error {
	if from == 0 && r.each == 0 {
		return r.Snapshot(w, id, tokens)
	}
	defer r.alone()()
	if have := r.Live()[id]; len(have) < len(tokens) || !slices.Equal(have[:len(tokens)], tokens) {
		return fmt.Errorf("sequence %d is %v, not %v", id, have, tokens)
	}
	h := snapshot.Header{Model: "fake", Layout: "fake", Length: len(tokens), Peak: len(tokens), From: from}
	return snapshot.Write(w, h, tokens, []snapshot.Section{{Name: "nothing", Parts: [][]byte{make([]byte, r.each*(len(tokens)-from))}}})
}

func (r *fakeRank) RestoreFrom(in io.Reader, id model.SeqID, before []int32) ([]int32, error) {
	if r.onRestoreFrom != nil {
		if err := r.onRestoreFrom(id); err != nil {
			return nil, err
		}
	}
	x, err := snapshot.ReadOn(in, "fake", "fake", r.settings.Context, before)
	if err != nil {
		return nil, err
	}
	if err := x.Section(snapshot.Section{Name: "nothing", Parts: [][]byte{make([]byte, r.each*(x.Length-x.From))}}); err != nil {
		return nil, err
	}
	defer r.alone()()
	if x.From > len(r.Live()[id]) {
		return nil, fmt.Errorf("sequence %d has %d positions, not %d", id, len(r.Live()[id]), x.From)
	}
	r.continued += x.Length - x.From
	r.Model.Extend(id, x.Tokens)
	return x.Tokens, nil
}

func (r *fakeRank) StateBytes(_ model.SeqID, from, length int) int64 {
	return int64(r.each) * int64(length-from)
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
	r.rows = rows
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

func (r *fakeRank) Extent() model.Extent {
	return model.Extent{Layers: []int{0, 1}, Experts: r.placement.Sizes().Experts, Blocks: 3}
}

// Examine has a sum for each number of the piece.
func (r *fakeRank) Examine(p model.Piece) (sums []model.Sum, err error) {
	defer r.alone()()
	if r.onExamine != nil {
		return nil, r.onExamine(p)
	}
	for i := p.From; i < p.To; i++ {
		sums = append(sums, model.Sum{Name: "w", Layer: p.Layer, Expert: i, Weights: uint32(i), Result: uint32(p.Seed)})
	}
	return sums, nil
}

func (r *fakeRank) Digest() []uint32 { return r.digest }

func (r *fakeRank) LayerStats() []parallel.LayerStats {
	n := uint64(len(r.Steps()))
	return []parallel.LayerStats{{Compute: time.Second, Exchanges: n}, {Compute: time.Minute, Exchanges: n, Sent: uint64(r.number), Overflows: r.overflows}}
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
	members  []int // of the next epoch, ranks in order
	each     int   // fakeRank.each of new ranks
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
	recruits   chan *cluster.Recruit
}

// newCluster makes a cluster of size ranks and forms its first epoch.
func newCluster(t *testing.T, size int) (*fakeCluster, *Leader) {
	c := &fakeCluster{
		t: t, size: size, ranks: make([]*fakeRank, size), loads: make([]int, size), workers: make([]*Worker, size),
		settings: Settings{Context: 4096, MaxTokens: 64, Reduce: "sum", Wire: "f16"},
		why:      errors.New("the group is forming"), changed: make(chan struct{}),
		recruits: make(chan *cluster.Recruit),
	}
	for i := range size {
		c.of(append(c.members, i)...)
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
	c.ranks[rank] = &fakeRank{Model: m, settings: s, number: rank, flip: -1, each: c.each}
	return c.ranks[rank], nil
}

// of makes ranks the members of the next epoch.
func (c *fakeCluster) of(members ...int) {
	c.members, c.settings.Placement = members, nil
	for i := range members {
		c.settings.Placement = append(c.settings.Placement, parallel.Part{Experts: parallel.Range{Start: 4 * i, End: 4 * (i + 1)}, Weight: 1})
	}
}

// form forms the next epoch, as the cluster does when all ranks are there.
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
	for len(c.digests[c.settled+1]) == len(c.epoch.Members) {
		c.settled++
		for _, r := range c.epoch.Members {
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
