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

// How more memory is given to a GPU: that of a Mac, one that shares the memory of a PC, and
// a card.
const (
	RaiseWiredLimit = "sudo sysctl iogpu.wired_limit_mb=N gives it N MiB until the next restart of macOS; leave the system some GiB"
	RaiseGTT        = "the kernel's parameter ttm.pages_limit=N gives an AMD GPU N pages of 4 KiB, by default half of the memory"
	MoreVRAM        = "use a smaller --ctx or --max-batch, end other programs that use the card, or --backend cpu"
)

// onGPU says of a rank that computes on a GPU how it can offer more; "" of others.
func onGPU(h cluster.Hello) string {
	switch {
	case strings.HasPrefix(h.Kernels, "metal"):
		return "; on that rank, " + RaiseWiredLimit
	case strings.HasPrefix(h.Kernels, "vulkan"):
		return "; on that rank, " + MoreVRAM
	}
	return ""
}
