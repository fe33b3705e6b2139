// The memory that a server and its helper process share, and which side may touch what in
// it. It is the contract between rm_server.c and rm_loop.c, which are built from one
// source tree and run from one file.
//
// Each queue pair has a ring of requests (written by the server, read by the helper),
// each completion queue a ring of completions (the other way around), and each helper one
// bell. A ring has one producer and one consumer. Its entry number p, from 0, is in slot
// p % size. The producer fills the slot and then stores p + 1 into its turn (at least
// release); the consumer that finds p + 1 there (acquire) may read the slot. So one cache
// line moves for each entry. The consumer stores how many it has taken (release), and the
// producer overwrites no slot before that. Each side keeps everything else (its own
// position, the size) in its own memory and never reads it from here, so that a faulty
// peer cannot change it.
//
// The bell: before the helper sleeps, it sets asleep and then checks all rings once more;
// after the server has filled a slot, it reads asleep. All four accesses are sequentially
// consistent, so that at least one of the two sees what the other has done, and no
// wake-up is lost. A byte on a socket wakes the helper, because both Linux and macOS can
// wait on sockets across processes, and sockets also show the end of the server.
#ifndef RMH_RING_H
#define RMH_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "../verbs/rm_verbs.h"

enum {
	RMH_LINE = 64, // bytes of a cache line that no two writers may share

	RMH_BATCH = 16, // completions that the helper polls at once

	RMH_RECV = 0xffff, // rmh_request.opcode of a receive; else RMV_WR_*

	RMH_MOST_ERRNO = 0xffff,

	// Kinds of trouble, in bits 56 to 63 of rmh_ring.trouble. Bits 32 to 47 are an
	// errno, the low half is the number of the queue pair or the result of a poll.
	RMH_POLL = 1,
	RMH_POST_SEND = 2,
	RMH_POST_RECV = 3,
};

struct rmh_bell {
	_Alignas(RMH_LINE) _Atomic uint32_t asleep;   // helper: it waits on the socket; server: 0 with the byte
	_Alignas(RMH_LINE) _Atomic uint32_t interest; // server: changes while it polls without result
};

// rmh_ring is the head of a ring; the slots follow it.
struct rmh_ring {
	_Alignas(RMH_LINE) _Atomic uint64_t taken;   // consumer: entries taken
	_Alignas(RMH_LINE) _Atomic uint64_t trouble; // helper, of completions: why no more will follow
	_Atomic uint32_t refused;                    // helper, of requests: errno of one with sync; server: 0
};

struct rmh_request {
	_Alignas(RMH_LINE) _Atomic uint64_t turn;
	uint64_t wr_id;
	uint64_t addr; // in the server's mapping of the region
	uint32_t length, lkey;
	uint32_t opcode, flags;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t sync; // the server waits for this one, so a refusal is its result
};

struct rmh_completion {
	_Alignas(RMH_LINE) _Atomic uint64_t turn;
	struct rmv_wc wc;
};

_Static_assert(sizeof(struct rmh_bell) == 2 * RMH_LINE, "size of rmh_bell");
_Static_assert(sizeof(struct rmh_ring) == 2 * RMH_LINE, "size of rmh_ring");
_Static_assert(sizeof(struct rmh_request) == RMH_LINE, "size of rmh_request");
_Static_assert(sizeof(struct rmh_completion) == RMH_LINE, "size of rmh_completion");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "atomics across processes take no lock");

// rmh_ring_bytes returns the length of a ring of size slots; size is a power of two.
static inline size_t rmh_ring_bytes(uint64_t size) { return sizeof(struct rmh_ring) + (size_t)size * RMH_LINE; }

static inline struct rmh_request *rmh_requests(struct rmh_ring *r) { return (struct rmh_request *)(r + 1); }
static inline struct rmh_completion *rmh_completions(struct rmh_ring *r) { return (struct rmh_completion *)(r + 1); }

static inline uint64_t rmh_trouble(int kind, int err, uint32_t low) {
	return (uint64_t)kind << 56 | (uint64_t)((uint32_t)err & 0xffff) << 32 | low;
}

static inline void rmh_relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
