package groupplan

import (
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/engine"
	"ringmaster/model/decoder"
)

// What Go's heap, stacks and the runtime take, in bytes; measured on the built-in
// model and on one with the vocabulary of V4 (docs/notes/memory.md).
const (
	LeastHeap    = 48 << 20 // runtime, tables of the program, connections at rest
	heapPerToken = 400      // of the vocabulary: the tokenizer's tables
	promptToken  = 3 * 4    // of a prompt: as parsed, in the request, in its sequence
)

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

// sequenceBudget divides a limit: what the rest leaves is for the KV caches, but not
// more than all sequences can take. 0 if there is no limit.
func sequenceBudget(limit, rest int64, p decoder.Plan) int64 {
	all := p.AllSequences()
	if limit == 0 {
		return all
	}
	return min(limit-rest, all)
}

// rest is what a rank of a group uses beside the weights and the KV caches: its
// buffers, the working buffers of its threads, and Go's memory.
func (o Options) rest(p decoder.Plan, member cluster.Hello, buffers int64) int64 {
	heap := o.Heap
	if member.Rank > 0 {
		heap = min(o.Heap, LeastHeap) // a follower has no API
	}
	return buffers + own(p, member.Threads, heap).bytes()
}

// budget is what the rank with the least memory has for KV caches. All ranks
// hold the same sequences.
func (o Options) budget(plan decoder.Plan, members []cluster.Hello, ranks []decoder.RankPlan) int64 {
	budget := sequenceBudget(0, 0, plan)
	for r, m := range members {
		if m.OwnMemory > 0 {
			budget = min(budget, sequenceBudget(m.OwnMemory, ranks[r].Buffers, plan))
		}
		if m.Memory > 0 && !o.Overcommit {
			budget = min(budget, sequenceBudget(m.Memory, ranks[r].Resident()-ranks[r].Sequence, plan))
		}
	}
	return budget
}

// smallestOffer returns the member that offers the least memory, -1 if none is known.
func smallestOffer(members []cluster.Hello) int {
	least := -1
	for i, m := range members {
		if m.Memory > 0 && (least < 0 || m.Memory < members[least].Memory) {
			least = i
		}
	}
	return least
}

// RaiseWiredLimit is how more of a Mac's memory is given to the GPU.
const RaiseWiredLimit = "sudo sysctl iogpu.wired_limit_mb=N gives it N MiB until the next restart of macOS; leave the system some GiB"

// onGPU says of a rank that computes on a Mac's GPU how it can offer more; "" of others.
func onGPU(h cluster.Hello) string {
	if !strings.HasPrefix(h.Kernels, "metal") {
		return ""
	}
	return "; on that rank, " + RaiseWiredLimit
}
