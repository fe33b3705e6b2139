package server

import (
	"ringmaster/api/dialect"
	"ringmaster/groupplan"
)

// What Go's heap, stacks and the runtime take, in bytes; measured on the built-in
// model and on one with the vocabulary of V4 (docs/notes/memory.md).
const (
	heapPerBody  = 8       // times the bytes of all request bodies
	heapPerPlace = 1 << 20 // of a request that runs or waits: its text, events, buffers
)

// grammars returns the most bytes of the grammars that a server keeps. With little memory
// it is less, because kept grammars only save the time to make them again.
func grammars(memory int64) int64 {
	if memory > 0 {
		return min(dialect.DefaultGrammars, memory/16)
	}
	return dialect.DefaultGrammars
}

// Heap is the memory of Go for a server that may use so much memory, 0 if that is not known;
// but for the vocabulary.
func (o *Options) Heap(memory int64) int64 {
	return groupplan.LeastHeap + grammars(memory) + heapPerBody*o.bodies() +
		heapPerPlace*int64(o.Engine.MaxActive+o.Engine.QueueLength) + o.Disk.memory()
}
