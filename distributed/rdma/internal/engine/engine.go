// Package engine executes plans (package plan) over queue pairs (package verbs).
// It compiles the program of a rank into a Task, keeps the most recently used
// tasks, and runs them in C. It knows connections and operations, but no group:
// its caller handles who may call it when, deadlines, and what a failure means to
// the other ranks.
package engine

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/reduce"
)

// Config is what all operations of a rank have in common.
type Config struct {
	Plan  plan.Config // the same on all ranks
	Rank  int
	Epoch uint32
	Group uint64        // hash that names the group and its epoch
	Spin  time.Duration // polling before a thread yields
	Force plan.Algorithm
	Conns []*Conn // those to one peer in the order of the rails
}

// Engine executes the operations of one rank. One goroutine at a time calls it;
// any goroutine may call Stop. Connections belong to the caller.
type Engine struct {
	cfg     Config
	planner *plan.Planner
	byPeer  [][]*Conn // [ranks][rails]
	flag    *int32    // not 0: stop
	scratch scratchMemory
	tasks   cache
}

// New makes an engine. The connections must be ready.
func New(c Config) (*Engine, error) {
	planner, err := plan.NewPlanner(c.Plan)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, planner: planner, byPeer: make([][]*Conn, c.Plan.Topology.N), flag: newFlag()}
	for _, x := range c.Conns {
		e.byPeer[x.Peer] = append(e.byPeer[x.Peer], x)
	}
	return e, nil
}

// Plan returns the configuration of the plans.
func (e *Engine) Plan() plan.Config { return e.planner.Config() }

// SetModel replaces the model of the wires. All ranks must call it between the
// same two operations.
func (e *Engine) SetModel(m plan.Model) error {
	e.cfg.Plan.Model = m
	e.tasks.free() // they were planned with another model
	var err error
	e.planner, err = plan.NewPlanner(e.cfg.Plan)
	return err
}

// Stop makes the current and all later calls of Run return Stopped.
func (e *Engine) Stop() { atomic.StoreInt32(e.flag, 1) }

// Drain waits up to limit until the sends in flight have completed.
func (e *Engine) Drain(limit time.Duration) {
	deadline := time.Now().Add(limit)
	for _, c := range e.cfg.Conns {
		c.drain(max(0, time.Until(deadline)))
	}
}

// Free frees the tasks, the scratch memory and the flag. No other call may be in
// progress or follow.
func (e *Engine) Free() {
	e.tasks.free()
	e.scratch.free()
	freeFlag(e.flag)
	e.flag = nil
}

// Operation is what a task does, except the sizes of parts. Messages of all kinds
// are a Send, with To, From or both. The participating ranks have equal
// operations, except To and From.
type Operation struct {
	Kind     distributed.Kind  // an Agree is a barrier with a header of its own
	DType    distributed.DType // of a reduction, else distributed.NoDType
	Bytes    int64             // as plan.Request.Bytes; of a message, those sent
	Received int64             // of a message
	Root     int               // of a Broadcast and a Gather
	To, From int               // of a message, -1 for none
	Extra    uint64            // further arguments, compared by the ranks
	Rails    int               // fewer than each pair has, while measuring; 0 for all
}

// Task returns the task of an operation, nil if this rank has nothing to do.
// sizes are the bytes of each rank's part, nil where the operation has none. The
// task belongs to the engine and is valid until the next call.
func (e *Engine) Task(o Operation, sizes []int) (*Task, error) {
	if t, ok := e.tasks.get(o, sizes); ok {
		return t, nil
	}
	t, err := e.build(o, sizes)
	if err == nil {
		e.tasks.put(o, sizes, t)
	}
	return t, err
}

var collectives = map[distributed.Kind]plan.Collective{
	distributed.AllSum: plan.AllSum, distributed.AllMax: plan.AllMax, distributed.AllMin: plan.AllMin,
	distributed.AllGather: plan.AllGather, distributed.AllGatherV: plan.AllGatherV, distributed.ReduceScatter: plan.ReduceScatter,
	distributed.Gather: plan.Gather, distributed.Broadcast: plan.Broadcast, distributed.Barrier: plan.Barrier, distributed.Agree: plan.Barrier,
}

// build plans and compiles an operation.
func (e *Engine) build(o Operation, sizes []int) (*Task, error) {
	locals, err := e.locals(o, sizes)
	if err != nil {
		return nil, err
	}
	moves := 0
	for _, l := range locals {
		moves += len(l.Ops)
	}
	if moves == 0 {
		return nil, nil
	}
	out := header{kind: o.Kind, dtype: o.DType, epoch: e.cfg.Epoch, group: e.cfg.Group, bytes: uint64(o.Bytes), extra: o.Extra}
	in := out
	if o.Kind == distributed.Send {
		in.bytes = uint64(o.Received)
	}
	s := shape{locals: locals, out: out, in: in, tag: int(e.cfg.Plan.Tag), spin: e.cfg.Spin, conn: func(peer, rail int) *Conn {
		if rail >= len(e.byPeer[peer]) {
			return nil
		}
		return e.byPeer[peer][rail]
	}}
	switch o.Kind {
	case distributed.AllSum, distributed.ReduceScatter:
		s.reduce, s.op = true, reduce.Sum
	case distributed.AllMax:
		s.reduce, s.op = true, reduce.Max
	case distributed.AllMin:
		s.reduce, s.op = true, reduce.Min
	}
	t, err := compile(s)
	if err != nil {
		return nil, err
	}
	t.Bytes = max(o.Bytes, o.Received)
	for _, n := range sizes {
		t.Bytes += int64(n)
	}
	return t, nil
}

// locals returns the programs of this rank, one for each rail in use.
func (e *Engine) locals(o Operation, sizes []int) ([]*plan.Local, error) {
	planner := e.planner
	if o.Rails > 0 {
		cfg := e.cfg.Plan
		cfg.Topology.Rails, cfg.Topology.Cables = o.Rails, nil
		var err error
		if planner, err = plan.NewPlanner(cfg); err != nil {
			return nil, err
		}
	}
	var req plan.Request
	switch {
	case o.Kind != distributed.Send:
		req = plan.Request{Op: collectives[o.Kind], Bytes: o.Bytes, Root: o.Root}
		for _, n := range sizes {
			req.Sizes = append(req.Sizes, int64(n))
		}
		if o.Kind.Reduces() {
			req.DType = o.DType
		}
		if o.Kind.Reduces() && o.Kind != distributed.ReduceScatter {
			req.Force = e.cfg.Force
		}
	case o.To >= 0 && o.From >= 0:
		return planner.SendRecv(e.cfg.Rank, o.To, o.Bytes, o.From, o.Received)
	case o.To >= 0:
		req = plan.Request{Op: plan.Send, Bytes: o.Bytes, From: e.cfg.Rank, To: o.To}
	default:
		req = plan.Request{Op: plan.Send, Bytes: o.Received, From: o.From, To: e.cfg.Rank}
	}
	p, err := planner.Plan(req)
	if err != nil {
		return nil, err
	}
	return p.Locals(e.cfg.Rank), nil
}

// Begin prepares a task for collective operation seq: it posts the receives, and
// sends what can be sent at once. The operation owns the memory until it ends.
func (e *Engine) Begin(t *Task, seq uint64, src, dst []byte) Result {
	r := t.begin(seq, &e.scratch, e.flag)
	if r == Done {
		r = e.Run(t, src, dst, 0)
	}
	return r
}

// Run works on a begun task until it is done, it has failed, the engine is
// stopped, or the time slice is over. With a slice of 0 it does what is possible
// at once.
func (e *Engine) Run(t *Task, src, dst []byte, slice time.Duration) Result {
	r := t.run(src, dst, slice)
	for r == needsReduce {
		if r = t.reduce(src, dst); r == Done {
			r = t.run(src, dst, slice)
		}
	}
	return r
}

// cache keeps the most recently used tasks, because the operations of a model
// repeat.
type cache struct {
	tasks map[Operation]*cached
	clock uint64
}

type cached struct {
	task  *Task // nil if no data moves
	sizes []int
	used  uint64
}

const cacheSize = 128

func (c *cache) get(o Operation, sizes []int) (*Task, bool) {
	x, ok := c.tasks[o]
	if !ok || !slices.Equal(x.sizes, sizes) {
		return nil, false
	}
	c.clock++
	x.used = c.clock
	return x.task, true
}

func (c *cache) put(o Operation, sizes []int, t *Task) {
	if c.tasks == nil {
		c.tasks = map[Operation]*cached{}
	}
	c.drop(o)
	if len(c.tasks) >= cacheSize {
		var oldest Operation
		at := uint64(1<<64 - 1)
		for o, x := range c.tasks {
			if x.used < at {
				oldest, at = o, x.used
			}
		}
		c.drop(oldest)
	}
	c.clock++
	c.tasks[o] = &cached{task: t, sizes: slices.Clone(sizes), used: c.clock}
}

func (c *cache) drop(o Operation) {
	if x := c.tasks[o]; x != nil && x.task != nil {
		x.task.free()
	}
	delete(c.tasks, o)
}

func (c *cache) free() {
	for o := range c.tasks {
		c.drop(o)
	}
}

// String describes the operation of a rank.
func (h header) String() string {
	name := h.kind.String()
	if h.kind == distributed.Send {
		name = "send or recv"
	}
	s := fmt.Sprintf("%s (collective %d) of %d bytes", name, h.seq, h.bytes)
	if h.dtype != distributed.NoDType {
		s += fmt.Sprintf(" of %v", h.dtype)
	}
	if h.extra != 0 {
		s += fmt.Sprintf(" [%x]", h.extra)
	}
	return fmt.Sprintf("%s, from rank %d to rank %d on rail %d, epoch %d", s, h.from, h.to, h.rail, h.epoch)
}
