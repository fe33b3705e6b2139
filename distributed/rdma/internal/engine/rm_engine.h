// The inner loop of RDMA operations: one rank's part of a plan (package plan,
// Local), executed over queue pairs. A task holds the programs of all rails of
// one operation; it is compiled once for each plan and run many times. Nothing
// here allocates, locks or formats text; failures are recorded in struct
// rme_fail, and Go turns them into errors.
//
// The first message on every wire of an operation begins with a header: struct
// rme_header says which operation the sender is in, and the first chunk follows
// it if it fits. The receive for a header is always posted, even between
// operations, so that a rank may begin before another; receives for data are
// posted when an operation begins.
//
// An unreliable queue pair may lose a message, and the messages behind it move
// up. On such queue pairs every message with data ends in a sequence tag of 8
// bytes (rme_task.tag), so that no message is taken for another. The tag is
// better proof than the length that a completion states, so a message with only a
// wrong length is used, and rme_task.odd_lengths counts it.
//
// If no receive is posted for a message, Thunderbolt holds it back, and reliable
// queue pairs send it again. Other unreliable queue pairs drop it, so there each
// side writes how many receives it has posted into the memory of the other
// (credits, rme_conn.credits), and the other sends no message beyond that number.
//
// Layers: conn.h and conn.c know one connection; wire.h the messages of a task
// on a wire; completions.h, transfer.h and compute.h what a pass does; run.c
// the loop. Each includes only those before it.
#ifndef RME_ENGINE_H
#define RME_ENGINE_H

#include <stdint.h>

#include "../../verbs/rm_verbs.h"

enum {
	RME_MAX_SLOTS = 64,
	RME_HEADERS = 2, // header slots to send from, so that one can be filled while another is in flight
	RME_BATCH = 16,
	RME_CREDIT_WRITES = 4, // credit writes that may be in flight
	RME_CREDIT_STEP = 64,  // bytes between the words from which they are sent

	// Kinds of requests, in bits 16 to 23 of a wr_id.
	RME_KIND_SEND = 1,
	RME_KIND_RECV = 2,
	RME_KIND_HEADER_SEND = 3,
	RME_KIND_HEADER_RECV = 4,
	RME_KIND_CREDIT = 5,

	// Spaces and kinds of ops: those of package plan.
	RME_NONE = 0,
	RME_SRC = 1,
	RME_DST = 2,
	RME_SCRATCH = 3,
	RME_SLOT = 4,

	RME_OP_SEND = 0,
	RME_OP_RECV = 1,
	RME_OP_REDUCE = 2,
	RME_OP_COPY = 3,

	// Which sums C computes; RME_BY_GO leaves reductions to the caller.
	RME_BY_GO = 0,
	RME_FLOAT16 = 1,
	RME_BFLOAT16 = 2,
	RME_FLOAT32 = 3,
	RME_INT32 = 4,

	// Results of rme_run.
	RME_DONE = 0,
	RME_AGAIN = 1,   // the time slice is over
	RME_REDUCE = 2,  // reduce need_* and call again
	RME_STOPPED = 3, // the flag is set
	RME_BROKEN = 4,  // see struct rme_fail

	// Kinds of struct rme_fail, with the fields that are set.
	RME_FAIL_COMPLETION = 1, // wc
	RME_FAIL_POLL = 2,       // got
	RME_FAIL_POST_SEND = 3,  // err
	RME_FAIL_POST_RECV = 4,  // err
	RME_FAIL_HEADER = 5,     // header: the peer is in another operation
	RME_FAIL_STALE = 6,      // wc: no request is waiting for this completion
	RME_FAIL_LENGTH = 7,     // wc.byte_len, want
	RME_FAIL_LOST = 8,       // got, want: number of the message received, and of the one expected
};

// rme_header is the same on both ends of a wire. The ends compare all of it.
struct rme_header {
	uint32_t magic;
	uint32_t epoch;
	uint64_t group; // hash of the group's id
	uint64_t seq;   // collective operations begun
	uint64_t bytes;
	uint64_t extra; // root, or hash of the sizes
	uint8_t op, dtype, rail, from;
	uint8_t to, wide, pad[2];
	uint64_t messages; // on the wire in this operation
	uint64_t reserved;
};
_Static_assert(sizeof(struct rme_header) == 64, "size of rme_header");

// rme_conn is a queue pair to a peer on a rail. Its registered memory:
// slots*slot_bytes to send, equally many to receive, RME_HEADERS headers to send,
// one to receive. A wr_id of 0 means that the slot is free.
struct rme_conn {
	struct rmv_qp *qp;
	struct rmv_cq *cq;
	uint8_t *send, *recv, *header_send, *header_recv;
	uint32_t lkey, slot_bytes, header_bytes;
	int32_t slots, peer, rail;
	uint32_t epoch;
	uint64_t send_id[RME_MAX_SLOTS], recv_id[RME_MAX_SLOTS], header_id[RME_HEADERS], header_recv_id;
	uint32_t recv_len[RME_MAX_SLOTS];
	uint64_t sends, headers;      // posted since the beginning
	uint64_t recvs, recvs_done;   // receives of data posted, and completed
	uint64_t header_recvs;        // receives of headers posted
	int32_t header_in;            // a header is in header_recv
	uint32_t header_len;
	// Credits are used where a message without a receive is dropped; otherwise
	// credits is NULL. The peer writes into credits how many receives it has
	// posted; this side writes its own number to peer_credits, from the words at
	// credit_words. All of it is registered memory.
	const uint64_t *credits;
	uint8_t *credit_words;
	uint64_t peer_credits;
	uint32_t peer_credits_key;
	uint64_t credits_sent, credits_seen; // number written last, and read last
	uint64_t credit_writes, credit_id[RME_CREDIT_WRITES];
};

struct rme_ref {
	int64_t off, stride;
	int32_t space, window;
};

struct rme_dep {
	int32_t op, back;
};

struct rme_input {
	struct rme_ref ref;
	int32_t wide, recv; // recv: the op that holds the chunk in its slot, or -1
};

struct rme_op {
	int32_t kind, held, wide, wire;
	struct rme_ref read, write;
	int64_t elems, chunk_elems, chunks, lag;
	int32_t after, nafter, in, nin; // indices in deps and inputs
	int64_t done, arrived;
};

// rme_cursor is a position in the order of messages on a wire: those before it
// are done. op and chunk are the last one that walk has passed; op is -1 after
// the end.
struct rme_cursor {
	int64_t round, left, chunk;
	int32_t next, op;
};

// rme_wire is one direction of a connection in this operation.
struct rme_wire {
	int32_t conn, recv;  // recv: 1 on the receiving end
	int32_t first, nops; // indices in wire_ops
	int64_t messages;
	struct rme_header header; // sent, or expected
	// State, reset by rme_begin. The message in front is the next one to send
	// or to consume.
	int64_t round, left, chunk; // chunk: of the message in front
	int32_t next, op;           // op: of the message in front, -1 after the last
	int32_t begun;              // the header was sent, or was received and is right
	int32_t embedded;           // the first chunk is in the header's message
	int32_t announced;          // the held message in front counts as arrived
	int64_t number;             // of the message in front
	int64_t data;               // messages in slots
	uint64_t base;              // conn->recvs_done when the operation began
	struct rme_cursor ahead;    // at the message whose receive is posted next
};

struct rme_fail {
	int32_t kind, conn, err, got;
	uint32_t want;
	struct rmv_wc wc;
	struct rme_header header, expected;
};

// rme_sum_fn is rm_reduce_sum of distributed/reduce.
typedef void rme_sum_fn(int level, int type, void *dst, int64_t n, int k, const void *p0, const void *p1,
                        const void *p2, const void *p3, const void *p4, const void *p5, const void *p6, const void *p7);

struct rme_task {
	int32_t nops, nwires, nconns, elem, how;
	int32_t tag; // bytes at the end of messages in slots: 8 or 0
	struct rme_op *ops;
	struct rme_dep *deps;
	struct rme_input *inputs;
	struct rme_wire *wires;
	int32_t *wire_ops;
	struct rme_conn **conns; // each once
	uint8_t *scratch;
	int *flag; // not 0: stop
	rme_sum_fn *sum;
	int level;
	int64_t spin; // ns of polling before a thread yields
	// State.
	uint64_t seq;
	int64_t left;           // chunks of all ops
	int64_t sent, received; // bytes of messages
	int64_t header_at;      // when the last header was received, ns of the monotonic clock
	// Messages with the right header or tag whose completion stated another
	// length, and the last of them.
	int64_t odd_lengths;
	int32_t odd_conn;
	uint32_t odd_len, odd_want;
	// What to reduce when rme_run has returned RME_REDUCE.
	int32_t need_op, need_inputs;
	int64_t need_chunk, need_elems;
	struct rme_fail fail;
};

// rme_task_new copies the arrays; the state is not set. It returns NULL if memory
// has run out.
struct rme_task *rme_task_new(const struct rme_task *shape, const struct rme_op *ops, const struct rme_dep *deps,
                              int ndeps, const struct rme_input *inputs, int ninputs, const struct rme_wire *wires,
                              const int32_t *wire_ops, int nwire_ops, struct rme_conn *const *conns);
void rme_task_free(struct rme_task *t);

// rme_begin resets the task for operation seq and posts its receives. After that
// rme_run with a slice of 0 posts the ready sends.
int rme_begin(struct rme_task *t, uint64_t seq);

// rme_run works until the task is done, a time slice in ns is over, the flag is
// set (read when it has no work), or a failure.
int rme_run(struct rme_task *t, const uint8_t *src, uint8_t *dst, int64_t slice);

// rme_reduced continues after the caller has reduced the needed chunk.
int rme_reduced(struct rme_task *t);

// rme_need returns block k of the needed reduction, or with -1 its result: the
// address if the block is in registered or scratch memory, otherwise NULL with
// its space and its offset there.
const uint8_t *rme_need(struct rme_task *t, int k, int32_t *space, int64_t *off, int32_t *wide);

// rme_post_header posts the standing receive of a connection; 0 or an errno.
int rme_post_header(struct rme_conn *c, uint64_t seq);

// rme_send_credit announces to the peer how many receives are posted, if that is
// new and a word is free; 0 or an errno. It does nothing without credits.
int rme_send_credit(struct rme_conn *c, uint64_t seq);

// rme_credit_sent notes the completion of such a write; 0 if it is not one.
int rme_credit_sent(struct rme_conn *c, uint64_t id);

// rme_credits returns how many receives the peer has posted.
uint64_t rme_credits(const struct rme_conn *c);

// rme_scan searches for the cause of a flush for up to limit ns: it polls n
// connections until a completion fails with another status. It returns 1 if one
// did.
int rme_scan(struct rme_conn *const *conns, int n, int64_t limit, struct rme_fail *f);

// rme_drain polls a connection until its sends have completed, the limit in ns is
// over or a poll fails. It returns how many sends are left.
int rme_drain(struct rme_conn *c, int64_t limit);

// rme_now returns the monotonic clock in ns.
int64_t rme_now(void);

// rme_sum_wide adds k blocks of n elements: float32 where wide[b], otherwise
// float16 or bfloat16 (how); the result is float32 if out_wide.
void rme_sum_wide(int how, int out_wide, uint8_t *out, int64_t n, int k, const uint8_t *const *blocks,
                  const uint8_t *wide);

#endif
