package main

import (
	"fmt"

	"ringmaster/api/dialect"
	"ringmaster/distributed/cluster"
	"ringmaster/engine"
	"ringmaster/gguf"
	"ringmaster/internal/units"
	"ringmaster/model/decoder"
)

// What Go's heap, stacks and the runtime take, in bytes; measured on the built-in
// model and on one with the vocabulary of V4 (docs/notes/memory.md).
const (
	leastHeap    = 48 << 20 // runtime, tables of the program, connections at rest
	heapPerToken = 400      // of the vocabulary: the tokenizer's tables
	heapPerBody  = 8        // times the bytes of all bodies under way
	heapPerPlace = 1 << 20  // of a request that runs or waits: its text, events, buffers
	promptToken  = 3 * 4    // of a prompt: as parsed, in the request, in its sequence
)

// grammars is the most bytes of the grammars of constraints that a server keeps: less where
// little memory is given to it, as they only save the time to make them again.
func grammars(memory int64) int64 {
	if memory > 0 {
		return min(dialect.DefaultGrammars, memory/16)
	}
	return dialect.DefaultGrammars
}

// heap is the memory of Go for a server that may use so much memory, 0 if that is not known;
// but for the vocabulary.
func (o *serveOptions) heap(memory int64) int64 {
	return leastHeap + grammars(memory) + heapPerBody*o.bodies() +
		heapPerPlace*int64(o.engine.MaxActive+o.engine.QueueLength) + o.disk.memory()
}

// ownMemory is what the process uses beside the mapped weights and the KV caches.
type ownMemory struct {
	kernels, heap int64
}

func (m ownMemory) bytes() int64 { return m.kernels + m.heap }

// own computes ownMemory for a plan: for the kernels of a backend with so many
// threads, 0 for one on a GPU.
func own(p decoder.Plan, threads int, heap int64) ownMemory {
	// Of the prompts, those that run and, up to a limit, those that wait.
	prompts := int64(p.Sequences)*int64(p.Context) + min(engine.MaxQueuedTokens, int64(p.Context)*64)
	m := ownMemory{heap: heap + heapPerToken*int64(p.Vocab) + promptToken*prompts}
	if threads > 0 {
		p.Working.Threads = threads
		m.kernels = p.Working.Bytes()
	}
	return m
}

// memoryFlag is the value of --memory in bytes, 0 if it is not given.
func (o *modelOptions) memoryFlag() (int64, error) {
	n, err := units.ParseBytes(o.memory)
	if err != nil {
		return 0, fmt.Errorf("--memory: %w", err)
	}
	return n, nil
}

// hostLimit is the most memory that a process that runs a model alone may use beside
// the mapped weights, 0 if nothing limits it: --memory, or what is free as long as
// the weights stay in memory too.
func (o *modelOptions) hostLimit(p decoder.Plan) (int64, error) {
	limit, err := o.memoryFlag()
	if err != nil || limit > 0 {
		return limit, err
	}
	mem, known := systemMemory()
	if !known || o.overcommit {
		return 0, nil
	}
	return min(mem.Available, mem.Total-p.Weights()), nil
}

// sequenceBudget divides a limit: what the rest leaves is for the KV caches, but not
// more than all sequences can take. 0 if there is no limit.
func sequenceBudget(limit, rest int64, p decoder.Plan) int64 {
	all := p.AllSequences()
	if limit == 0 {
		return all
	}
	return min(limit-rest, all)
}

// fit plans the memory of this host, prints the plan and returns it with the
// budget for the KV caches. A model that does not fit is refused.
func (o *modelOptions) fit(f *gguf.File, l *loaded, sequences int) (decoder.Plan, int64, error) {
	mem, known := systemMemory()
	flag, err := o.memoryFlag()
	if err != nil {
		return decoder.Plan{}, 0, err
	}
	rest := func(p decoder.Plan) int64 { return p.Fixed() + own(p, l.threads, o.heap).bytes() }
	need := func(p decoder.Plan) int64 { return rest(p) + p.PerSequence() }
	fits := func(p decoder.Plan) bool {
		if flag > 0 && need(p) > flag {
			return false
		}
		return !known || o.overcommit || need(p) <= mem.Available
	}
	plan, err := o.fitContext(f, sequences, fits)
	if err != nil {
		return plan, 0, err
	}
	limit, err := o.hostLimit(plan)
	if err != nil {
		return plan, 0, err
	}
	m := own(plan, l.threads, o.heap)
	plan.Kernels, plan.Heap, plan.Budget = m.kernels, m.heap, sequenceBudget(limit, rest(plan), plan)
	l.heap, l.atMost = plan.Heap, plan.AtMost()
	if err := plan.Write(l.log); err != nil {
		return plan, 0, err
	}
	if o.ctx == 0 && plan.Context < plan.ContextLimit {
		fmt.Fprintf(l.log, "context limited to %d tokens of the file's %d by the memory\n", plan.Context, plan.ContextLimit)
	}
	switch {
	case flag > 0 && need(plan) > flag:
		return plan, 0, fmt.Errorf("%s needs %s for buffers and one sequence of %d tokens; --memory allows %s. Raise it, or use a smaller --ctx, --max-batch or --max-body",
			f.Path(), units.Bytes(need(plan)), plan.Context, units.Bytes(flag))
	case known && !o.overcommit && flag > mem.Available:
		return plan, 0, fmt.Errorf("--memory allows %s, but %s is free; lower it, or use --overcommit to start anyway",
			units.Bytes(flag), units.Bytes(mem.Available))
	case !fits(plan):
		return plan, 0, fmt.Errorf("%s needs %s for buffers and one sequence of %d tokens; %s of memory is free. Use a smaller --ctx or --max-batch, or --overcommit to start anyway",
			f.Path(), units.Bytes(need(plan)), plan.Context, units.Bytes(mem.Available))
	case known && !o.overcommit && plan.Weights()+need(plan) > mem.Total:
		return plan, 0, fmt.Errorf("%s has %s of weights and needs %s in addition; this host has %s, so every token would read from disk. Share the experts among more hosts, or use --overcommit to run anyway",
			f.Path(), units.Bytes(plan.Weights()), units.Bytes(need(plan)), units.Bytes(mem.Total))
	}
	return plan, plan.Budget, nil
}

// rankRest is what a rank of a group uses beside the weights and the KV caches: its
// buffers, the working buffers of its threads, and Go's memory.
func (o *modelOptions) rankRest(p decoder.Plan, member cluster.Hello, buffers int64) int64 {
	heap := o.heap
	if member.Rank > 0 {
		heap = min(o.heap, leastHeap) // a follower has no API
	}
	return buffers + own(p, member.Threads, heap).bytes()
}
