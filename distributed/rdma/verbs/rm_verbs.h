// The part of the verbs ABI that Ringmaster uses, and its hot path: posting,
// polling and the check of a batch of completions, all inline. Nothing here
// needs the system's headers or links to a library: the objects come from one
// that was loaded at run time, and post and poll go through the function table
// of their context, as the inline functions of infiniband/verbs.h do.
//
// Sizes and offsets are those of rdma-core on 64-bit systems; Apple's header
// has the same. They are asserted below, and a test compares them with the
// installed header. Ringmaster uses only one scatter/gather element per
// request.
#ifndef RMV_VERBS_H
#define RMV_VERBS_H

#include <stddef.h>
#include <stdint.h>

enum {
	RMV_QPT_RC = 2,
	RMV_QPT_UC = 3,

	RMV_QPS_RESET = 0,
	RMV_QPS_INIT = 1,
	RMV_QPS_RTR = 2,
	RMV_QPS_RTS = 3,
	RMV_QPS_SQD = 4,
	RMV_QPS_SQE = 5,
	RMV_QPS_ERR = 6,

	RMV_QP_STATE = 1,
	RMV_QP_ACCESS_FLAGS = 8,
	RMV_QP_PKEY_INDEX = 16,
	RMV_QP_PORT = 32,
	RMV_QP_AV = 128,
	RMV_QP_PATH_MTU = 256,
	RMV_QP_TIMEOUT = 512,
	RMV_QP_RETRY_CNT = 1024,
	RMV_QP_RNR_RETRY = 2048,
	RMV_QP_RQ_PSN = 4096,
	RMV_QP_MAX_QP_RD_ATOMIC = 8192,
	RMV_QP_MIN_RNR_TIMER = 32768,
	RMV_QP_SQ_PSN = 65536,
	RMV_QP_MAX_DEST_RD_ATOMIC = 131072,
	RMV_QP_CAP = 524288,
	RMV_QP_DEST_QPN = 1048576,

	RMV_WR_RDMA_WRITE = 0,
	RMV_WR_SEND = 2,
	RMV_SEND_SIGNALED = 2,
	RMV_SEND_INLINE = 8,

	RMV_ACCESS_LOCAL_WRITE = 1,
	RMV_ACCESS_REMOTE_WRITE = 2,
	RMV_ACCESS_REMOTE_READ = 4,

	RMV_WC_SEND = 0,
	RMV_WC_RECV = 128,

	RMV_WC_SUCCESS = 0,
	RMV_WC_LOC_LEN_ERR = 1,
	RMV_WC_LOC_PROT_ERR = 4,
	RMV_WC_WR_FLUSH_ERR = 5,
	RMV_WC_REM_INV_REQ_ERR = 9,
	RMV_WC_REM_ACCESS_ERR = 10,
	RMV_WC_RETRY_EXC_ERR = 12,
	RMV_WC_RNR_RETRY_EXC_ERR = 13,
	RMV_WC_TM_RNDV_INCOMPLETE = 23,

	RMV_PORT_DOWN = 1,
	RMV_PORT_ACTIVE = 4,

	RMV_LINK_UNSPECIFIED = 0,
	RMV_LINK_INFINIBAND = 1,
	RMV_LINK_ETHERNET = 2,
	RMV_LINK_THUNDERBOLT = 100, // only in the header of the macOS SDK

	RMV_GID_IB = 0,
	RMV_GID_ROCE_V1 = 1,
	RMV_GID_ROCE_V2 = 2,
};

struct rmv_context;
struct rmv_cq;
struct rmv_qp;
struct rmv_wc;
struct rmv_send_wr;
struct rmv_recv_wr;

union rmv_gid {
	uint8_t raw[16];
	uint64_t align[2];
};

// rmv_context_ops: entries that are not called here are padding.
struct rmv_context_ops {
	void *before_poll[11];
	int (*poll_cq)(struct rmv_cq *cq, int n, struct rmv_wc *wc);
	int (*req_notify_cq)(struct rmv_cq *cq, int solicited_only);
	void *before_srq[7];
	void *post_srq_recv;
	void *before_send[4];
	int (*post_send)(struct rmv_qp *qp, struct rmv_send_wr *wr, struct rmv_send_wr **bad);
	int (*post_recv)(struct rmv_qp *qp, struct rmv_recv_wr *wr, struct rmv_recv_wr **bad);
	void *rest[5];
};

struct rmv_context {
	void *device;
	struct rmv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	uint8_t padding[52];
};

struct rmv_pd {
	struct rmv_context *context;
	uint32_t handle;
};

struct rmv_cq {
	struct rmv_context *context;
	void *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	uint8_t padding[96];
};

struct rmv_qp {
	struct rmv_context *context;
	void *qp_context;
	struct rmv_pd *pd;
	struct rmv_cq *send_cq;
	struct rmv_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
	uint32_t state;
	uint32_t qp_type;
	uint8_t padding[96];
};

struct rmv_mr {
	struct rmv_context *context;
	struct rmv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct rmv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct rmv_send_wr {
	uint64_t wr_id;
	struct rmv_send_wr *next;
	struct rmv_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	uint32_t send_flags;
	uint32_t imm_data;
	uint64_t remote_addr; // of RMV_WR_RDMA_WRITE, and the key
	uint32_t rkey;
	uint32_t align;
	uint64_t wr[9];
};

struct rmv_recv_wr {
	uint64_t wr_id;
	struct rmv_recv_wr *next;
	struct rmv_sge *sg_list;
	int num_sge;
};

// rmv_wc: when status is not 0 only wr_id, status, qp_num and vendor_err hold.
struct rmv_wc {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct rmv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct rmv_qp_init_attr {
	void *qp_context;
	struct rmv_cq *send_cq;
	struct rmv_cq *recv_cq;
	void *srq;
	struct rmv_qp_cap cap;
	uint32_t qp_type;
	int sq_sig_all;
};

struct rmv_ah_attr {
	union rmv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct rmv_qp_attr {
	uint32_t qp_state;
	uint32_t cur_qp_state;
	uint32_t path_mtu;
	uint32_t path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	uint32_t qp_access_flags;
	struct rmv_qp_cap cap;
	struct rmv_ah_attr ah_attr;
	struct rmv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

// rmv_port_attr is larger than any known version (Apple 52, rdma-core 52 and
// 56), because the library fills the part of the zeroed buffer that it knows.
struct rmv_port_attr {
	uint32_t state;
	uint32_t max_mtu;
	uint32_t active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint8_t padding[80];
};

struct rmv_device_attr {
	char fw_ver[64];
	uint64_t node_guid; // big endian
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	uint32_t device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	uint8_t padding[80];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

// rmv_gid_entry is what ibv_query_gid_ex fills.
struct rmv_gid_entry {
	union rmv_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

#define RMV_SIZE(type, n) _Static_assert(sizeof(struct type) == (n), "size of " #type)
#define RMV_AT(type, field, n) _Static_assert(offsetof(struct type, field) == (n), #type "." #field)
RMV_SIZE(rmv_context, 328);
RMV_AT(rmv_context, device, 0);
RMV_AT(rmv_context, ops, 8);
RMV_AT(rmv_context, cmd_fd, 264);
RMV_SIZE(rmv_context_ops, 256);
RMV_AT(rmv_context_ops, poll_cq, 88);
RMV_AT(rmv_context_ops, req_notify_cq, 96);
RMV_AT(rmv_context_ops, post_srq_recv, 160);
RMV_AT(rmv_context_ops, post_send, 200);
RMV_AT(rmv_context_ops, post_recv, 208);
RMV_SIZE(rmv_cq, 128);
RMV_AT(rmv_cq, context, 0);
RMV_SIZE(rmv_qp, 160);
RMV_AT(rmv_qp, context, 0);
RMV_AT(rmv_qp, pd, 16);
RMV_AT(rmv_qp, send_cq, 24);
RMV_AT(rmv_qp, recv_cq, 32);
RMV_AT(rmv_qp, qp_num, 52);
RMV_AT(rmv_qp, state, 56);
RMV_AT(rmv_qp, qp_type, 60);
RMV_SIZE(rmv_mr, 48);
RMV_AT(rmv_mr, addr, 16);
RMV_AT(rmv_mr, length, 24);
RMV_AT(rmv_mr, lkey, 36);
RMV_AT(rmv_mr, rkey, 40);
RMV_SIZE(rmv_sge, 16);
RMV_AT(rmv_sge, addr, 0);
RMV_AT(rmv_sge, length, 8);
RMV_AT(rmv_sge, lkey, 12);
RMV_SIZE(rmv_send_wr, 128);
RMV_AT(rmv_send_wr, wr_id, 0);
RMV_AT(rmv_send_wr, next, 8);
RMV_AT(rmv_send_wr, sg_list, 16);
RMV_AT(rmv_send_wr, num_sge, 24);
RMV_AT(rmv_send_wr, opcode, 28);
RMV_AT(rmv_send_wr, send_flags, 32);
RMV_AT(rmv_send_wr, remote_addr, 40);
RMV_AT(rmv_send_wr, rkey, 48);
RMV_SIZE(rmv_recv_wr, 32);
RMV_AT(rmv_recv_wr, wr_id, 0);
RMV_AT(rmv_recv_wr, next, 8);
RMV_AT(rmv_recv_wr, sg_list, 16);
RMV_AT(rmv_recv_wr, num_sge, 24);
RMV_SIZE(rmv_wc, 48);
RMV_AT(rmv_wc, wr_id, 0);
RMV_AT(rmv_wc, status, 8);
RMV_AT(rmv_wc, opcode, 12);
RMV_AT(rmv_wc, vendor_err, 16);
RMV_AT(rmv_wc, byte_len, 20);
RMV_AT(rmv_wc, qp_num, 28);
RMV_AT(rmv_wc, wc_flags, 36);
RMV_SIZE(rmv_qp_init_attr, 64);
RMV_AT(rmv_qp_init_attr, send_cq, 8);
RMV_AT(rmv_qp_init_attr, recv_cq, 16);
RMV_AT(rmv_qp_init_attr, srq, 24);
RMV_AT(rmv_qp_init_attr, cap, 32);
RMV_AT(rmv_qp_init_attr, qp_type, 52);
RMV_AT(rmv_qp_init_attr, sq_sig_all, 56);
RMV_SIZE(rmv_qp_attr, 144);
RMV_AT(rmv_qp_attr, qp_state, 0);
RMV_AT(rmv_qp_attr, path_mtu, 8);
RMV_AT(rmv_qp_attr, rq_psn, 20);
RMV_AT(rmv_qp_attr, sq_psn, 24);
RMV_AT(rmv_qp_attr, dest_qp_num, 28);
RMV_AT(rmv_qp_attr, qp_access_flags, 32);
RMV_AT(rmv_qp_attr, cap, 36);
RMV_AT(rmv_qp_attr, ah_attr, 56);
RMV_AT(rmv_qp_attr, pkey_index, 120);
RMV_AT(rmv_qp_attr, max_rd_atomic, 126);
RMV_AT(rmv_qp_attr, max_dest_rd_atomic, 127);
RMV_AT(rmv_qp_attr, min_rnr_timer, 128);
RMV_AT(rmv_qp_attr, port_num, 129);
RMV_AT(rmv_qp_attr, timeout, 130);
RMV_AT(rmv_qp_attr, retry_cnt, 131);
RMV_AT(rmv_qp_attr, rnr_retry, 132);
RMV_SIZE(rmv_ah_attr, 32);
RMV_AT(rmv_ah_attr, flow_label, 16);
RMV_AT(rmv_ah_attr, sgid_index, 20);
RMV_AT(rmv_ah_attr, hop_limit, 21);
RMV_AT(rmv_ah_attr, dlid, 24);
RMV_AT(rmv_ah_attr, sl, 26);
RMV_AT(rmv_ah_attr, src_path_bits, 27);
RMV_AT(rmv_ah_attr, static_rate, 28);
RMV_AT(rmv_ah_attr, is_global, 29);
RMV_AT(rmv_ah_attr, port_num, 30);
RMV_SIZE(rmv_port_attr, 128);
RMV_AT(rmv_port_attr, active_mtu, 8);
RMV_AT(rmv_port_attr, gid_tbl_len, 12);
RMV_AT(rmv_port_attr, lid, 34);
RMV_AT(rmv_port_attr, link_layer, 46);
RMV_SIZE(rmv_device_attr, 232);
RMV_AT(rmv_device_attr, max_mr_size, 80);
RMV_AT(rmv_device_attr, max_qp, 108);
RMV_AT(rmv_device_attr, max_qp_wr, 112);
RMV_AT(rmv_device_attr, max_sge, 120);
RMV_AT(rmv_device_attr, max_cq, 128);
RMV_AT(rmv_device_attr, max_cqe, 132);
RMV_AT(rmv_device_attr, max_mr, 136);
RMV_AT(rmv_device_attr, max_pd, 140);
RMV_AT(rmv_device_attr, phys_port_cnt, 227);
RMV_SIZE(rmv_gid_entry, 32);
#undef RMV_SIZE
#undef RMV_AT

// rmv_post_send posts a chain of count requests. It returns how many were
// posted, in order from the head; *err is 0 or the errno of the first refused
// one, always positive (one library returns it negative). Requests before that
// one ARE posted and will complete, so the caller must account for them.
static inline int rmv_post_send(struct rmv_qp *qp, struct rmv_send_wr *head, int count, int *err) {
	struct rmv_send_wr *bad = NULL;
	int e = qp->context->ops.post_send(qp, head, &bad);
	*err = e < 0 ? -e : e;
	if (__builtin_expect(e == 0, 1)) {
		return count;
	}
	int posted = 0;
	for (struct rmv_send_wr *w = head; w != NULL && w != bad && bad != NULL; w = w->next) {
		posted++;
	}
	return posted;
}

// rmv_post_recv posts a chain of count receives; see rmv_post_send.
static inline int rmv_post_recv(struct rmv_qp *qp, struct rmv_recv_wr *head, int count, int *err) {
	struct rmv_recv_wr *bad = NULL;
	int e = qp->context->ops.post_recv(qp, head, &bad);
	*err = e < 0 ? -e : e;
	if (__builtin_expect(e == 0, 1)) {
		return count;
	}
	int posted = 0;
	for (struct rmv_recv_wr *w = head; w != NULL && w != bad && bad != NULL; w = w->next) {
		posted++;
	}
	return posted;
}

// rmv_poll_cq takes up to n completions into wc[n]. It returns their number, or
// a negative number when the queue has failed. Read no completion before
// rmv_wc_bad has returned 0 for the batch.
static inline int rmv_poll_cq(struct rmv_cq *cq, int n, struct rmv_wc *wc) {
	return cq->context->ops.poll_cq(cq, n, wc);
}

// rmv_wc_bad returns 0 if got, the result of rmv_poll_cq(cq, asked, wc), is a
// number of completions from 0 to asked and all of them succeeded. One branch
// in the caller then covers a failed poll, a poll that returned more than
// requested and every failed completion. With RMV_UNCHECKED defined it is
// compiled out, only to measure its cost.
static inline int rmv_wc_bad(int got, int asked, const struct rmv_wc *wc) {
#ifdef RMV_UNCHECKED
	(void)got, (void)asked, (void)wc;
	return 0;
#else
	// As an unsigned number a negative result is larger than any count.
	uint32_t bad = (uint32_t)got > (uint32_t)asked;
	int n = bad ? 0 : got;
	for (int i = 0; i < n; i++) {
		bad |= wc[i].status;
	}
	return __builtin_expect(bad != 0, 0);
#endif
}

// rmv_wc_cause finds the cause in a batch that rmv_wc_bad has refused: the
// first failure that is not a flush, otherwise the first flush, otherwise -1
// (the poll itself failed). It is cold, because it is not part of a loop.
__attribute__((noinline, cold, unused)) static int rmv_wc_cause(int got, int asked, const struct rmv_wc *wc) {
	if ((uint32_t)got > (uint32_t)asked) {
		return -1;
	}
	int flush = -1;
	for (int i = 0; i < got; i++) {
		if (wc[i].status == RMV_WC_WR_FLUSH_ERR) {
			flush = flush < 0 ? i : flush;
		} else if (wc[i].status != RMV_WC_SUCCESS) {
			return i;
		}
	}
	return flush;
}

#endif
