// The inner loop of RDMA operations: one rank's part of a plan (package plan,
// Local), executed over queue pairs. A job is the programs of all rails of one
// operation; it is made once for each plan and run many times. Nothing here
// allocates, locks or formats; whatever goes wrong is put into struct rm_fail,
// and Go says it in words.
//
// The first message of every wire of an operation is a head: struct rm_head says
// which operation the sender is in, and the chunk follows it if it fits. The
// receive for a head is always posted, also between operations, so that a rank
// may begin before another; those for data are posted when an operation begins.
//
// An unreliable queue pair may lose a message, and those behind it move up. There
// every message with data ends in a tag of 8 bytes that counts (rm_job.tag), so
// that none is taken for another.
//
// A message without a receive is held back by Thunderbolt and asked for again on
// reliable queue pairs. Unreliable ones elsewhere drop it; there each side writes
// into the memory of the other how many receives it has posted (rm_conn.room),
// and no message is sent beyond that number.
#ifndef RM_ENGINE_H
#define RM_ENGINE_H

#include <stdint.h>

#include "verbs/rm_verbs.h"

enum {
	RM_MAX_SLOTS = 8,
	RM_HEADS = 2, // send heads: one may be under way while the next is filled
	RM_BATCH = 16,
	RM_GRANTS = 4,      // writes of the number of receives that may be under way
	RM_GRANT_STEP = 64, // bytes between the words that they come from

	// Kinds of requests, in bits 16 to 23 of a wr_id.
	RM_KIND_SEND = 1,
	RM_KIND_RECV = 2,
	RM_KIND_HEAD_SEND = 3,
	RM_KIND_HEAD_RECV = 4,
	RM_KIND_GRANT = 5,

	// Spaces and kinds of ops: those of package plan.
	RM_NONE = 0,
	RM_SRC = 1,
	RM_DST = 2,
	RM_SCRATCH = 3,
	RM_SLOT = 4,

	RM_OP_SEND = 0,
	RM_OP_RECV = 1,
	RM_OP_REDUCE = 2,
	RM_OP_COPY = 3,

	// How C reduces; RM_BY_GO leaves it to the caller.
	RM_BY_GO = 0,
	RM_HALF = 1,
	RM_BFLOAT = 2,
	RM_FLOAT = 3,

	// Results of rm_run.
	RM_DONE = 0,
	RM_AGAIN = 1,   // the slice of time is over
	RM_REDUCE = 2,  // reduce need_* and call again
	RM_STOPPED = 3, // the flag is set
	RM_BROKEN = 4,  // see struct rm_fail

	// Kinds of struct rm_fail.
	RM_FAIL_COMPLETION = 1, // wc
	RM_FAIL_POLL = 2,       // got
	RM_FAIL_POST_SEND = 3,  // err
	RM_FAIL_POST_RECV = 4,  // err
	RM_FAIL_HEAD = 5,       // head: the peer is in another operation
	RM_FAIL_STALE = 6,      // wc: a completion that nothing waits for
	RM_FAIL_LENGTH = 7,     // wc.byte_len, want
	RM_FAIL_LOST = 8,       // got, want: number of the message that came, and of the one in front
};

// rm_head is the same on both ends of a wire. All of it is compared.
struct rm_head {
	uint32_t magic;
	uint32_t epoch;
	uint64_t group; // hash of the group's id
	uint64_t seq;   // collective operations begun
	uint64_t bytes;
	uint64_t extra; // root, or hash of the sizes
	uint8_t op, dtype, rail, from;
	uint8_t to, wide, pad[2];
	uint64_t messages; // on the wire in this operation
	uint64_t room;
};
_Static_assert(sizeof(struct rm_head) == 64, "size of rm_head");

// rm_conn is a queue pair to a peer on a rail. Its memory, registered:
// slots*slot_bytes to send, as many to receive, RM_HEADS heads to send, one to
// receive. A wr_id of 0 means that the slot is free.
struct rm_conn {
	struct rmv_qp *qp;
	struct rmv_cq *cq;
	uint8_t *send, *recv, *head_send, *head_recv;
	uint32_t lkey, slot_bytes, head_bytes;
	int32_t slots, peer, rail;
	uint32_t epoch;
	uint64_t send_id[RM_MAX_SLOTS], recv_id[RM_MAX_SLOTS], head_id[RM_HEADS], head_recv_id;
	uint32_t recv_len[RM_MAX_SLOTS];
	uint64_t sends, heads;         // posted since the beginning
	uint64_t recvs, came;          // receives posted, and completed
	uint64_t head_recvs;           // receives of heads posted
	int32_t head_in;               // a head is in head_recv
	uint32_t head_len;
	// Where a message without a receive is lost, else room is NULL: the peer
	// writes into room how many receives it has posted, and this side writes
	// the same of its own to far, from the words at grant. All of it is
	// registered memory.
	const uint64_t *room;
	uint8_t *grant;
	uint64_t far;
	uint32_t far_key;
	uint64_t told, seen;           // number written last, and found in room last
	uint64_t grants, grant_id[RM_GRANTS];
};

struct rm_ref {
	int64_t off, stride;
	int32_t space, window;
};

struct rm_dep {
	int32_t op, back;
};

struct rm_input {
	struct rm_ref ref;
	int32_t wide, recv; // recv: the op that holds the chunk in its slot, or -1
};

struct rm_op {
	int32_t kind, held, wide, wire;
	struct rm_ref read, write;
	int64_t elems, chunk_elems, chunks, lag;
	int32_t after, nafter, in, nin; // places in deps and inputs
	int64_t done, arrived;
};

// rm_wire is one direction of a connection in this operation.
struct rm_wire {
	int32_t conn, recv; // recv: 1 if messages come
	int32_t first, nops; // places in wire_ops
	int64_t messages;
	struct rm_head head; // sent, or expected
	// State, set anew by rm_begin.
	int64_t round, left, chunk; // chunk of the message in front
	int32_t next, op;           // op of it, -1 after the last
	int32_t begun;              // the head was sent, or has come and was right
	int32_t embedded;           // the first chunk is in the head
	int32_t announced;          // the held message in front counts as arrived
	int64_t number;             // of the message in front
	int64_t data;               // messages in slots
	uint64_t base;              // conn->came when the operation began
};

struct rm_fail {
	int32_t kind, conn, err, got;
	uint32_t want;
	struct rmv_wc wc;
	struct rm_head head, expected;
};

typedef void rm_sum_fn(int level, int half, void *dst, int64_t n, int k, const void *p0, const void *p1,
                       const void *p2, const void *p3, const void *p4, const void *p5, const void *p6, const void *p7);

struct rm_job {
	int32_t nops, nwires, nconns, elem, whole, how;
	int32_t tag; // bytes at the end of messages in slots: 8 or 0
	struct rm_op *ops;
	struct rm_dep *deps;
	struct rm_input *inputs;
	struct rm_wire *wires;
	int32_t *wire_ops;
	struct rm_conn **conns; // each once
	uint8_t *scratch;
	int *flag; // not 0: stop
	rm_sum_fn *sum;
	int level;
	int64_t spin; // ns of looking before a thread yields
	// State.
	uint64_t seq;
	int64_t left; // chunks of all ops
	int64_t sent, received; // bytes of messages
	int64_t heard;          // when the last head came, ns of the monotonic clock
	int64_t polls, empty;
	// What to reduce when rm_run has said RM_REDUCE.
	int32_t need_op, need_inputs;
	int64_t need_chunk, need_elems;
	struct rm_fail fail;
};

// rm_job_new copies the arrays; the state is not set. NULL without memory.
struct rm_job *rm_job_new(const struct rm_job *shape, const struct rm_op *ops, const struct rm_dep *deps, int ndeps,
                          const struct rm_input *inputs, int ninputs, const struct rm_wire *wires,
                          const int32_t *wire_ops, int nwire_ops, struct rm_conn *const *conns);
void rm_job_free(struct rm_job *j);

// rm_begin resets the job for operation seq and posts its receives; then the
// sends that are ready may be posted by rm_run with a slice of 0.
int rm_begin(struct rm_job *j, uint64_t seq);

// rm_run works until the job is done, a slice of time in ns is over, the flag is
// set (looked at when there is nothing to do), or something has failed.
int rm_run(struct rm_job *j, const uint8_t *src, uint8_t *dst, int64_t slice);

// rm_reduced goes on after the caller has reduced the chunk that was needed.
int rm_reduced(struct rm_job *j);

// rm_need gives block k of the reduction that is needed: its address if it is
// in registered or scratch memory, else NULL, its space and its offset there.
const uint8_t *rm_need(struct rm_job *j, int k, int32_t *space, int64_t *off, int32_t *wide);

// rm_post_head posts the standing receive of a connection; 0 or an errno.
int rm_post_head(struct rm_conn *c, uint64_t seq);

// rm_grant tells the peer how many receives are posted, if it does not know and
// a word is free; 0 or an errno. Where no message is lost it does nothing.
int rm_grant(struct rm_conn *c, uint64_t seq);

// rm_granted notes the completion of such a write; 0 if it is of none.
int rm_granted(struct rm_conn *c, uint64_t id);

// rm_room is how many receives the peer has posted.
uint64_t rm_room(const struct rm_conn *c);

// rm_scan looks for the cause behind a flush for up to limit ns: it polls all
// connections of n until a completion has failed otherwise. 1 if it found one.
int rm_scan(struct rm_conn *const *conns, int n, int64_t limit, struct rm_fail *f);

// rm_drain polls a connection until its sends have completed, the limit in ns is
// over or something fails. It returns how many sends are left.
int rm_drain(struct rm_conn *c, int64_t limit);

// rm_now is the monotonic clock in ns.
int64_t rm_now(void);

// rm_sum_wide adds k blocks of n elements: float32 where wide[b], else halves
// (how RM_HALF) or bfloat16; the result is float32 if out_wide.
void rm_sum_wide(int how, int out_wide, uint8_t *out, int64_t n, int k, const uint8_t *const *blocks,
                 const uint8_t *wide);

#endif
