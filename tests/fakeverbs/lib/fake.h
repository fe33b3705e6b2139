// A verbs library without hardware: the symbols and the ABI of libibverbs, over
// a fabric that lives in memory. See ../README.md for the script that describes
// devices, cables and faults.
//
// The whole state of the fabric is in one region: anonymous memory for ranks
// that are threads of one process, a mapped file for ranks that are processes.
// It contains no pointers except the addresses of registered memory, which are
// valid in the process that owns them. A message is copied once, directly from
// the sender's memory to the receiver's, by whichever side posts last; between
// processes with process_vm_readv and process_vm_writev.
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../../distributed/rdma/verbs/rm_verbs.h"

enum {
	MAX_DEVS = 64,
	MAX_HOSTS = 64,
	MAX_CABLES = 128,
	MAX_QPS = 512, // a power of two: the low bits of a qp_num are the slot
	MAX_CQS = 512,
	MAX_PDS = 1024,
	MAX_MRS = 4096,
	MAX_DEPTH = 4096, // requests in one queue
	MAX_CQE = 8192,
	MAX_FAULTS = 64,
	MAX_GIDS = 8,
	FRAME = 4096,
};

enum link { LINK_TB, LINK_IB, LINK_ETH };
enum norecv { NORECV_HOLD, NORECV_DROP, NORECV_KILL, NORECV_RNR };
// How messages become frames of 4 KiB: not at all; several frames, as many on both
// sides (26.3); one frame each (26.2); packets that each fill a receive (27.0).
enum frames { FRAMES_NONE,
	          FRAMES_MANY,
	          FRAMES_SINGLE,
	          FRAMES_PACKETS };
// The depth that is granted, where it is not a number.
enum grant { GRANT_ASKED = 0,
	         GRANT_ROUND = -1,
	         GRANT_APPLE = -2 };
enum host_state { HOST_ALIVE, HOST_STOPPED, HOST_DEAD };

// Events that a fault may be attached to. The names are in script.c, in this
// order.
enum event {
	ON_OPEN,
	ON_QUERY,
	ON_PORT,
	ON_ALLOC_PD,
	ON_REG_MR,
	ON_CREATE_CQ,
	ON_CREATE_QP,
	ON_INIT,
	ON_RTR,
	ON_RTS,
	ON_DESTROY_QP,
	ON_DEREG_MR,
	ON_DESTROY_CQ,
	ON_DEALLOC_PD,
	ON_CLOSE,
	ON_POST_SEND, // one call
	ON_POST_RECV,
	ON_SEND, // one message, when it is posted
	ON_RECV, // one message, when it is delivered
	ON_POLL, // a poll that has something to return
	ON_POLL_ANY,
	EVENTS,
};

// What a fault does. The names are in script.c, in this order.
enum action {
	DO_NOTHING,
	DO_ERRNO, // arg: errno, either sign; accept: requests taken before it
	DO_STATUS, // arg: status of the completion
	DO_DROP,
	DO_SWALLOW,
	DO_DUP,
	DO_DELAY, // arg: microseconds
	DO_HOLD,  // arg: messages that pass first, anywhere
	DO_CORRUPT, // arg: offset of the byte
	DO_NEGATIVE,
	DO_MORE,
	DO_OVERRUN,
	DO_KILL_DIRECTION,
	DO_KILL_RAIL,
	DO_KILL_HOST,
	DO_PORT_DOWN,
	DO_HANG,  // arg: milliseconds
	DO_CRASH, // SIGSEGV, as a write to a page that is not mapped
	DO_LENGTH, // arg: the byte_len that the completion states
	ACTIONS,
};

struct fault {
	int event, action;
	int64_t arg;
	int accept;
	uint32_t vendor;
	int flush_first; // with a status: the requests behind it complete before it
	int64_t above;   // of messages: only longer ones count
	int dev, host, peer; // -1: any
	uint64_t nth, count; // fires on events nth … nth+count-1
	uint32_t prob, seed; // 1/10000 of the events; 0: always
	atomic_ullong seen, fired;
};

struct cable {
	int a, b; // the two devices
	atomic_int dead;
	uint64_t latency, rate; // ns, bytes/s; 0: that of the sending device
};

struct device {
	char name[64];
	int host, link, mtu, swtch; // swtch: -1 or the number of a switch
	int link_layer;             // that query_port reports
	atomic_int state;           // RMV_PORT_*
	uint16_t lid;
	uint64_t guid, max_mr_size;
	uint8_t ip[4];
	int gids;
	uint8_t gid[MAX_GIDS][16];
	uint32_t gid_type[MAX_GIDS];
	int max_qp, told_qp, max_mr, max_pd, max_cq, max_cqe, max_wr;
	int grant_send, grant_recv; // >0: this, else enum grant
	int silent_depth;           // requests beyond the depth are accepted, and fail later
	// enum frames; not 0: depth and lengths count in frames of 4 KiB
	int frames;
	// a message without bytes is lost and never completes
	int zero_lost;
	// memory may be registered with that right alone
	int local_write;
	// one region too many ends the process
	int mr_crash;
	// a queue pair receives only in memory that is older
	int mr_first;
	// first state of a queue pair that takes receives
	int recv_from;
	// posts are refused with a negative errno
	int negative;
	// after a failed RTR a queue pair is of no use
	int once;
	// after a lost link the next post ends the process
	int crash;
	// how often the link was lost
	atomic_int losses;
	int mismatch_both;          // a wrong number of frames fails the sender too
	int norecv_uc, norecv_rc;
	int unreachable; // errno of RTR; 0: none, but the messages are lost
	int late, poison, rc, bridge;
	uint64_t latency, rate, rc_timeout; // ns, bytes/s, ns
	atomic_ullong wire_free;            // when the last byte has left, ns
	atomic_ullong sent;                 // bytes of messages that have arrived
	uint64_t max_mem;                   // bytes that may be registered
};

struct region_mr {
	atomic_int used;
	uint64_t born; // order among memory regions and queue pairs
	uint32_t lkey;
	int dev, pd, access;
	pid_t pid;
	uint64_t addr, len;
};

struct owned {
	atomic_int used;
	int dev;
	pid_t pid;
};

struct send_slot {
	uint64_t wr_id, addr, deadline, until; // until: not before this time, ns
	uint64_t hold;                         // not before this many messages have passed
	uint64_t remote;                       // for a remote write: the address that is written
	uint32_t len, lkey, rkey, status, vendor;
	uint32_t moved; // bytes that have arrived, of a message in packets
	int64_t corrupt;
	uint8_t inlined[64];
	uint8_t signaled, drop, swallow, dup, flush_first, is_inline, late, write;
};

struct recv_slot {
	uint64_t wr_id, addr;
	uint32_t len, lkey;
	int over; // accepted beyond the depth
};

struct qp {
	pthread_mutex_t lock; // of the receive queue, and of the send queue of the peer
	atomic_int used;
	atomic_int state;
	uint32_t gen, qpn;
	int dev, pd, scq, rcq, type, sig_all, access;
	pid_t pid;
	struct rmv_qp_cap cap; // as told
	int sq_room, rq_room;  // depth in fact
	uint64_t born;
	int spoilt; // RTR has failed
	int losses; // of the link, when it was made
	uint32_t dest_qpn, sq_psn, rq_psn;
	int dest, dest_dev, cable, rnr, port; // dest: slot, -1 before RTR
	atomic_int killed;                    // nothing is sent any more
	atomic_int gone;                      // its process was found dead
	uint64_t looked;                      // when its sender last checked for that, ns
	atomic_int sq_used, rq_used;          // depth in use, until polled
	int unsignaled;
	uint64_t last_send, last_recv; // a completion is never ready before the previous one
	uint32_t sq_head, sq_tail, rq_head, rq_tail;
};

// The slots are separate from the tables, so that a search through a table
// touches few pages.
struct slots {
	struct send_slot sq[MAX_DEPTH];
	struct recv_slot rq[MAX_DEPTH];
};
#define SQ(q) (fab->slots[(q) - fab->qp].sq)
#define RQ(q) (fab->slots[(q) - fab->qp].rq)
#define CQE(c) (fab->cqe[(c) - fab->cq])

struct cqe {
	struct rmv_wc wc;
	uint64_t ready;
	int qp, frames, send;
};

struct cq {
	pthread_mutex_t lock;
	atomic_int used, dead, count, attention;
	int dev, cap, head;
	pid_t pid;
	atomic_ullong qps[MAX_QPS / 64];
};

struct fabric {
	atomic_int ready;
	int shared, devs, cables, switches;
	atomic_int faults;
	pthread_mutex_t lock; // of the tables
	struct device dev[MAX_DEVS];
	struct cable cable[MAX_CABLES];
	struct fault fault[MAX_FAULTS];
	atomic_int armed[EVENTS]; // number of faults attached to an event
	atomic_int host[MAX_HOSTS];
	atomic_ullong messages, bytes, lost, empty, gen;
	struct owned ctx[MAX_PDS], pd[MAX_PDS];
	struct region_mr mr[MAX_MRS];
	struct qp qp[MAX_QPS];
	struct cq cq[MAX_CQS];
	struct slots slots[MAX_QPS];
	struct cqe cqe[MAX_CQS][MAX_CQE];
};

// Objects that the caller sees: the part defined by the ABI comes first.
struct fake_device {
	uint8_t abi[664];
	int index;
};
struct fake_context {
	struct rmv_context v;
	int dev, slot;
};
struct fake_pd {
	struct rmv_pd v;
	int slot;
};
struct fake_mr {
	struct rmv_mr v;
	int slot;
};
struct fake_cq {
	struct rmv_cq v;
	int slot;
};
struct fake_qp {
	struct rmv_qp v;
	int slot;
};

#define EXPORT __attribute__((visibility("default")))

// fabric.c
extern struct fabric *fab;
void *refuse(void *handle, int e); // frees a handle, sets errno, and returns NULL
int fabric_ready(void); // 0, or an errno: loads the script on first use
void fabric_lock(pthread_mutex_t *m);
void fabric_unlock(pthread_mutex_t *m);
int mutex_init(pthread_mutex_t *m, int shared);
uint64_t now_ns(void);
int process_alive(pid_t pid);
void sweep(void); // frees what dead processes owned

// profile.c
// profile is what a version of macOS has.
struct profile {
	const char *name;
	int max_qp, told_qp, max_pd, max_cq, max_mr, mr_crash;
	int frames, zero_lost, local_write, recv_from;
	const char *gids;
};
const struct profile *profile_find(const char *name); // NULL: there is none
// profile_default is that of the environment variable FAKEVERBS_PROFILE, NULL if
// there is none of this name, and 26.3 without the variable.
const struct profile *profile_default(void);
uint32_t grant_told(int rule, uint32_t asked);
uint32_t grant_real(int rule, uint32_t asked);

// script.c
// script_parse adds the lines of a text to a fabric; on an error it says which
// line and why.
int script_parse(struct fabric *f, const char *text, char *err, size_t n);

// fault.c
// fault_at counts an event and returns the fault that it triggers, or NULL.
const struct fault *fault_at(int event, int dev, int peer);
const struct fault *fault_at_message(int event, int dev, int peer, uint32_t len);
// fault_call applies a fault to a call that is not a message: it may hang, kill
// or bring a port down. It returns the errno to fail with, 0 to continue.
int fault_call(int event, int dev, int *fails);
void kill_host(int host, int state);
// port_set and cable_set change the state of a link; a loss is counted at both
// ends.
void port_set(struct fabric *f, int dev, int state);
void cable_set(struct fabric *f, struct cable *c, int dead);
void crash(void); // as a write to the doorbell of a link that is gone
int link_lost(const struct qp *q); // since the queue pair was made

// post.c
int fake_post_send(struct rmv_qp *h, struct rmv_send_wr *wr, struct rmv_send_wr **bad);
int fake_post_recv(struct rmv_qp *h, struct rmv_recv_wr *wr, struct rmv_recv_wr **bad);

// complete.c
#define NO_LENGTH UINT32_MAX // byte_len of a completion that has none
void send_done(struct qp *q, uint32_t status, uint64_t ready); // the head; the caller holds the guard
void recv_done(struct qp *q, uint32_t status, uint32_t vendor, uint32_t len, uint64_t ready, int times);
void send_failed(struct qp *q, uint32_t status);
void flush_sends(struct qp *q);
void flush_recvs(struct qp *q);
void qp_fail(struct qp *q); // to ERR; posted requests are flushed
void qp_notify(struct qp *q);

// wire.c
pthread_mutex_t *qp_guard(struct qp *q);
int frames_of(const struct device *d, uint32_t len); // that a message counts as
int in_region(const struct qp *q, uint32_t lkey, uint64_t addr, uint32_t len);
int qp_pump(struct qp *a);
struct qp *qp_inbound(struct qp *b);

// poll.c
int fake_poll_cq(struct rmv_cq *h, int n, struct rmv_wc *wc);
void cq_service(struct cq *c); // wire.c
void cq_push(int slot, const struct cqe *e);

// cq_forget removes the completions of a queue pair that is being destroyed.
void cq_forget(int slot, int qp);

// copy.c
// copy_memory copies between this process and another one.
int copy_memory(pid_t to, uint64_t dst, pid_t from, uint64_t src, size_t n);

#endif
