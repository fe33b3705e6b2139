package rdma

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/reduce"
)

// key is what a job depends on.
type key struct {
	op       opCode
	dtype    distributed.DType
	force    plan.Algorithm
	bytes    int64
	received int64 // of a message
	root     int
	to, from int // of a message, -1 for none
	extra    uint64
	rails    int // fewer than there are, while measuring; 0 for all
}

// jobCache keeps the jobs used last: the operations of a model repeat.
type jobCache struct {
	mu    sync.Mutex
	jobs  map[key]*cached
	limit int
	clock uint64
}

type cached struct {
	job   *job // nil if there is nothing to move
	sizes []int64
	used  uint64
}

func (c *jobCache) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.jobs {
		if x.job != nil {
			x.job.free()
		}
	}
	c.jobs = nil
}

// get finds or makes the job of a key.
func (c *jobCache) get(k key, sizes []int64, build func() (*job, error)) (*job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	if x, ok := c.jobs[k]; ok && slices.Equal(x.sizes, sizes) {
		x.used = c.clock
		return x.job, nil
	}
	j, err := build()
	if err != nil {
		return nil, err
	}
	if c.jobs == nil {
		c.jobs = map[key]*cached{}
	}
	if old := c.jobs[k]; old != nil && old.job != nil {
		old.job.free()
	}
	if len(c.jobs) >= c.limit {
		var oldest key
		at := c.clock
		for x, v := range c.jobs {
			if v.used < at {
				oldest, at = x, v.used
			}
		}
		if v := c.jobs[oldest]; v != nil && v.job != nil {
			v.job.free()
		}
		delete(c.jobs, oldest)
	}
	c.jobs[k] = &cached{job: j, sizes: slices.Clone(sizes), used: c.clock}
	return j, nil
}

var collectives = map[opCode]plan.Collective{
	opAllSum: plan.AllSum, opAllMax: plan.AllMax, opAllMin: plan.AllMin, opAllGather: plan.AllGather, opAllGatherV: plan.AllGatherV,
	opSumScatter: plan.SumScatter, opBroadcast: plan.Broadcast, opBarrier: plan.Barrier, opSplit: plan.Barrier,
}

// largeFrom is the length from which a started operation is given to the worker:
// below it everything is under way when Start returns.
const largeFrom = 128 << 10

// build plans and compiles the job of a key on this rank.
func (g *group) build(k key, sizes []int64) (*job, error) {
	cfg := g.cfg
	if k.rails > 0 {
		cfg.Topology.Rails = k.rails
	}
	var locals []*plan.Local
	total := max(k.bytes, k.received)
	if k.op == opMessage {
		var err error
		switch {
		case k.to >= 0 && k.from >= 0:
			locals, err = plan.SendRecv(cfg, g.rank, k.to, k.bytes, k.from, k.received)
		case k.to >= 0:
			locals, err = g.locals(cfg, plan.Request{Op: plan.Send, Bytes: k.bytes, From: g.rank, To: k.to})
		default:
			locals, err = g.locals(cfg, plan.Request{Op: plan.Send, Bytes: k.received, From: k.from, To: g.rank})
		}
		if err != nil {
			return nil, err
		}
	} else {
		req := plan.Request{Op: collectives[k.op], Bytes: k.bytes, Sizes: sizes, Root: k.root}
		if k.dtype != noDType {
			req.DType, req.Force = k.dtype, k.force
		}
		var err error
		if locals, err = g.locals(cfg, req); err != nil {
			return nil, err
		}
		for _, n := range sizes {
			total += n
		}
	}
	moves := 0
	for _, l := range locals {
		moves += len(l.Ops)
	}
	if moves == 0 {
		return nil, nil
	}
	out := head{op: k.op, dtype: k.dtype, epoch: g.link.Epoch, group: g.session, bytes: uint64(k.bytes), extra: k.extra}
	in := out
	if k.op == opMessage {
		in.bytes = uint64(k.received)
	}
	s := shape{locals: locals, out: out, in: in, whole: cfg.Whole, tag: g.tag, spin: g.t.opts.Spin, ends: func(peer, rail int) *end {
		if rail >= len(g.byPeer[peer]) {
			return nil
		}
		return g.byPeer[peer][rail]
	}}
	switch k.op {
	case opAllSum, opSumScatter:
		s.reduce, s.op = true, reduce.Sum
	case opAllMax:
		s.reduce, s.op = true, reduce.Max
	case opAllMin:
		s.reduce, s.op = true, reduce.Min
	}
	j, err := compile(s)
	if err == nil {
		j.large = total > largeFrom
	}
	return j, err
}

func (g *group) locals(cfg plan.Config, req plan.Request) ([]*plan.Local, error) {
	p, err := plan.New(cfg, req)
	if err != nil {
		return nil, err
	}
	return p.Locals(g.rank), nil
}

// start begins the operation of a key, which begin has taken the group for.
func (g *group) start(k key, sizes []int64, src, dst []byte, later bool) error {
	if k.op != opMessage {
		g.seq++
	}
	if !g.enter() {
		return nil // drive tells
	}
	j, err := g.jobs.get(k, sizes, func() (*job, error) { return g.build(k, sizes) })
	g.leave()
	if err != nil {
		err = g.wrap(err)
		g.Fail(err) // the other ranks are in the operation
		g.release()
		return err
	}
	g.op.job, g.op.src, g.op.dst = j, src, dst
	if j == nil && len(dst) == len(src) && k.dtype != noDType {
		copy(dst, src)
	}
	g.launch(later)
	return nil
}

func (g *group) startReduce(ctx context.Context, name string, op opCode, dst, src []byte, dt distributed.DType, later bool) error {
	if err := g.begin(ctx, name, distributed.CheckReduce(dst, src, dt)); err != nil {
		return err
	}
	return g.start(key{op: op, dtype: dt, force: g.rule.Force, bytes: int64(len(src)), to: -1, from: -1}, nil, src, dst, later)
}

func (g *group) allReduce(ctx context.Context, name string, op opCode, dst, src []byte, dt distributed.DType) error {
	if err := g.startReduce(ctx, name, op, dst, src, dt, false); err != nil {
		return err
	}
	return g.finish()
}

// AllSum is described at distributed.Group, as are the others.
func (g *group) AllSum(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_sum", opAllSum, dst, src, dt)
}

func (g *group) AllMax(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_max", opAllMax, dst, src, dt)
}

func (g *group) AllMin(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	return g.allReduce(ctx, "all_min", opAllMin, dst, src, dt)
}

func (g *group) StartAllSum(ctx context.Context, dst, src []byte, dt distributed.DType) distributed.Pending {
	if err := g.startReduce(ctx, "all_sum", opAllSum, dst, src, dt, true); err != nil {
		return refused{err}
	}
	return &g.pending
}

func (g *group) AllGather(ctx context.Context, dst, src []byte) error {
	if err := g.begin(ctx, "all_gather", distributed.CheckGather(g.size, g.rank, dst, src)); err != nil {
		return err
	}
	k := key{op: opAllGather, dtype: noDType, bytes: int64(len(src)), to: -1, from: -1}
	if err := g.start(k, nil, src, dst, false); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) StartAllGatherV(ctx context.Context, dst []byte, sizes []int) distributed.Pending {
	if err := g.begin(ctx, "all_gather_v", distributed.CheckGatherV(g.size, dst, sizes)); err != nil {
		return refused{err}
	}
	long := make([]int64, len(sizes))
	h := fnv.New64a()
	for r, n := range sizes {
		long[r] = int64(n)
		fmt.Fprint(h, n, " ")
	}
	k := key{op: opAllGatherV, dtype: noDType, bytes: int64(len(dst)), extra: h.Sum64(), to: -1, from: -1}
	if err := g.start(k, long, nil, dst, true); err != nil {
		return refused{err}
	}
	return &g.pending
}

func (g *group) SumScatter(ctx context.Context, dst, src []byte, dt distributed.DType) error {
	if err := g.begin(ctx, "sum_scatter", distributed.CheckScatter(g.size, dst, src, dt)); err != nil {
		return err
	}
	if err := g.start(key{op: opSumScatter, dtype: dt, bytes: int64(len(dst)), to: -1, from: -1}, nil, src, dst, false); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) Broadcast(ctx context.Context, buf []byte, root int) error {
	if err := g.begin(ctx, "broadcast", distributed.CheckRoot(g.size, root)); err != nil {
		return err
	}
	k := key{op: opBroadcast, dtype: noDType, bytes: int64(len(buf)), root: root, extra: uint64(root) + 1, to: -1, from: -1}
	if err := g.start(k, nil, nil, buf, false); err != nil {
		return err
	}
	return g.finish()
}

func (g *group) Barrier(ctx context.Context) error {
	if err := g.begin(ctx, "barrier", nil); err != nil {
		return err
	}
	if err := g.start(key{op: opBarrier, dtype: noDType, to: -1, from: -1}, nil, nil, nil, false); err != nil {
		return err
	}
	return g.finish()
}

// message moves bytes between this rank and others: over rails where there are
// some, else over the side channel, which both ends know alike.
func (g *group) message(ctx context.Context, name string, args error, dst []byte, from int, src []byte, to int) error {
	if err := g.begin(ctx, name, args); err != nil {
		return err
	}
	k := key{op: opMessage, dtype: noDType, bytes: int64(len(src)), received: int64(len(dst)), to: to, from: from}
	sideTo, sideFrom := -1, -1
	if to >= 0 && !g.cfg.Topology.Joined(g.rank, to) {
		sideTo, k.to, k.bytes = to, -1, 0
	}
	if from >= 0 && !g.cfg.Topology.Joined(g.rank, from) {
		sideFrom, k.from, k.received = from, -1, 0
	}
	if sideTo >= 0 || sideFrom >= 0 {
		g.overSide(0, max(sideTo, sideFrom), func(ctx context.Context) error {
			switch {
			case sideTo >= 0 && sideFrom >= 0:
				return g.side.SendRecv(ctx, dst, sideFrom, src, sideTo)
			case sideTo >= 0:
				return g.side.Send(ctx, src, sideTo)
			}
			return g.side.Recv(ctx, dst, sideFrom)
		})
	}
	g.op.to = to
	if k.to < 0 && k.from < 0 {
		g.op.done = true
		return g.finish()
	}
	if g.op.peer = k.to; k.to < 0 {
		g.op.peer = k.from
	}
	if err := g.start(k, nil, src, dst, false); err != nil {
		return err
	}
	return g.finish()
}

// overSide begins the part of an operation that goes over the side channel. It
// may take slack longer than the rest, which finds out more about who is late. An
// error without a culprit is one of the peer, -1 for none.
func (g *group) overSide(slack time.Duration, peer int, f func(ctx context.Context) error) {
	done := make(chan error, 1)
	g.op.side = done
	deadline := g.op.deadline.Add(slack)
	g.running.Go(func() {
		ctx, cancel := context.WithDeadlineCause(context.Background(), deadline,
			fmt.Errorf("%w: not delivered within %v", distributed.ErrTimeout, g.link.OpTimeout))
		defer cancel()
		err := f(ctx)
		if err != nil {
			g.sideTrouble(peer, err)
		}
		done <- err
	})
}

// sideTrouble suspects the peer of an error of the side channel. If it was
// closed the other side has given up, and the watch is about to tell why.
func (g *group) sideTrouble(peer int, err error) {
	var op *distributed.OpError
	if errors.As(err, &op) {
		if err = op.Err; op.Peer >= 0 {
			peer = op.Peer
		}
	}
	if errors.Is(err, distributed.ErrPeerGone) {
		timer := time.NewTimer(letterTimeout)
		defer timer.Stop()
		select {
		case <-g.failed:
		case <-timer.C:
		}
	}
	g.suspect(peer, err)
}

func (g *group) Send(ctx context.Context, src []byte, to int) error {
	return g.message(ctx, "send", distributed.CheckPeer(g.size, g.rank, to), nil, -1, src, to)
}

func (g *group) Recv(ctx context.Context, dst []byte, from int) error {
	return g.message(ctx, "recv", distributed.CheckPeer(g.size, g.rank, from), dst, from, nil, -1)
}

func (g *group) SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error {
	return g.message(ctx, "send_recv", distributed.CheckSendRecv(g.size, g.rank, dst, from, src, to), dst, from, src, to)
}
