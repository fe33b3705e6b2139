// Package plan decides how the bytes of a collective operation travel over the wires of an RDMA
// group: which algorithm, how many rails and directions, the size class of the messages, and for
// every rank what it sends, receives and reduces, in which order. It is pure: the same Config and
// Request give the same Plan on every rank, so that sender and receiver cannot disagree about
// counts (collectives specification, 4.11). It knows no verbs and no memory.
//
// New, or a Planner that remembers choices, makes a Plan; Plan.Locals returns what one rank does
// on each rail.
//
// # Wires
//
// Two joined ranks have one queue pair for each rail. A wire is one direction of it: (from, to,
// rail). The k-th message sent on a wire meets the k-th receive posted for it, so a wire is a list
// of messages that both ends know beforehand. At most Config.Slots messages (2) are in flight on a
// wire: one end has that many send slots, the other that many receive slots.
//
// # Programs
//
// A Plan has one Program for each rail in use. Rails share nothing: each has its own pieces of the
// data, wires, slots and scratch memory, so that it may run on its own thread. Where pairs have
// different numbers of cables, a block of data uses as many rails as every pair has that it crosses,
// so that the program of a further rail has fewer blocks (blocks.go). A Program is a list
// of Ops for all ranks; Program.Local extracts the part of one rank, which is what an engine
// executes:
//
//   - Send: take a chunk from memory, put it into a send slot, post it.
//   - Recv: a message was received on the wire; copy its chunk to its place, or,
//     if it is Held, leave it in its slot until the Reduce that uses it has run.
//   - Reduce: combine chunks (memory or held slots), in the order given, which is
//     the order of the ranks, and write the result.
//   - Copy: within the memory of the rank; nothing to do if source and destination are
//     the same.
//
// An Op works on a region of elements in chunks: chunk c are the elements [c*ChunkElems,
// min(Elems, (c+1)*ChunkElems)) of its region, Chunks in all. It does its chunks in order, so its
// state is one number, done. After lists what a chunk waits for: Dep{Op: j, Back: b} means that
// chunk c begins when op j of the same rank has done its chunk c-b (no wait if c < b, and none
// beyond the last chunk of j). A dependence on a Held receive means that its message was received.
// A Send is done with a chunk when the chunk has been copied into the send slot (the memory may
// then be overwritten), a Recv when the chunk has left its slot, Reduce and Copy when the result
// is written.
//
// # Order of messages on a wire
//
// The messages of all ops that use a wire are merged by round: in round t = 0, 1, … each op, in
// the order of the list, sends its chunk t-Lag if it has one. Both ends walk the same list, and
// receives are consumed in its order. Lag lets an op run behind the ops that feed it, so that a
// waiting chunk is seldom in front of a ready one.
//
// # Why it cannot block
//
// Order all chunks of all ops of all ranks by (chunk+Lag, place in the list). Every dependence
// points backward in that order (a test proves it for every kind of program). The first chunk that
// is not done can always be done: its dependences are done, and if it travels, all messages before
// it on its wire are consumed, so a send slot is free and a receive is posted. This holds for any
// number of slots and any interleaving of ranks, rails and completions.
//
// # Arithmetic
//
// Elements are added in the order of the ranks (package distributed). Either one rank has the
// blocks of all and reduces them at once, or a partial result travels along the chain 0, 1, … N-1,
// where each rank adds its own block. Partial sums of Float16 and BFloat16 are float32 on the wire
// and in scratch memory (Wide), and rounded by the last rank only. For other types, and for max
// and min, a partial result has the type itself.
//
// # Memory
//
// Ref says where chunk c of a region lies: at Off + c*Stride bytes in the space, or Off + (c mod
// Window)*Stride if it is a reused window of scratch memory; the writer then depends on its
// readers of Window chunks before. Each rail has its own scratch memory, Program.Scratch bytes for
// every rank. Destination and source may be the same memory in AllSum, AllMax and AllMin.
//
// # Algorithms
//
//   - OneShot: the whole vector of every rank goes to all others; every rank
//     reduces all. One phase, for small messages; with direct wires this is the
//     mesh of one phase (specification, 5). A reduce-scatter sends each rank only
//     its part.
//   - TwoShot: slice q of every vector goes to rank q, which reduces it and sends
//     the result to all: the mesh of two phases. On a ring messages for ranks
//     farther away are forwarded, the shorter way round; what is equally far both
//     ways goes half and half (two Directions).
//   - Chain: rank r adds its block to the partial result of rank r-1 and sends
//     the sum to r+1, in chunks one behind the other; the result flows back from
//     the last rank while partial results still go forward. Every direction of
//     every cable carries the vector once, however long the ring.
//   - Spread: data of one rank, or each, goes to all others, or to one (all-gather,
//     gather, broadcast, barrier). On a ring every block goes both ways round; with an even number
//     of ranks the two halves of a block are mirrored, so that both directions
//     carry the same load (specification, 4.4).
//   - Direct: send and recv over one wire of each rail.
//
// The rolling ring all-reduce of JACCL (specification, 4.3) is not among them, because it begins
// the sum of each slice at another rank, so that its bits depend on N and on the slice.
package plan
