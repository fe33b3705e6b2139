// The verbs library loaded at run time, and its calls. Every call except the
// two that only read memory may block in the kernel, so the Go side bounds
// them.
#ifndef RMV_LIB_H
#define RMV_LIB_H

#include "rm_verbs.h"

struct rmv_lib {
	void *handle;
	void **(*get_device_list)(int *n);
	void (*free_device_list)(void **list);
	const char *(*get_device_name)(void *dev);
	struct rmv_context *(*open_device)(void *dev);
	int (*close_device)(struct rmv_context *ctx);
	int (*query_device)(struct rmv_context *ctx, struct rmv_device_attr *out);
	int (*query_port)(struct rmv_context *ctx, uint8_t port, struct rmv_port_attr *out);
	int (*query_gid)(struct rmv_context *ctx, uint8_t port, int index, union rmv_gid *out);
	struct rmv_pd *(*alloc_pd)(struct rmv_context *ctx);
	int (*dealloc_pd)(struct rmv_pd *pd);
	struct rmv_mr *(*reg_mr)(struct rmv_pd *pd, void *addr, size_t n, int access);
	int (*dereg_mr)(struct rmv_mr *mr);
	struct rmv_cq *(*create_cq)(struct rmv_context *ctx, int cqe, void *cq_context, void *channel, int vector);
	int (*destroy_cq)(struct rmv_cq *cq);
	struct rmv_qp *(*create_qp)(struct rmv_pd *pd, struct rmv_qp_init_attr *attr);
	int (*destroy_qp)(struct rmv_qp *qp);
	int (*modify_qp)(struct rmv_qp *qp, struct rmv_qp_attr *attr, int mask);
	int (*query_qp)(struct rmv_qp *qp, struct rmv_qp_attr *attr, int mask, struct rmv_qp_init_attr *init);
	// Optional, NULL if the library lacks it.
	int (*query_gid_ex)(struct rmv_context *ctx, uint32_t port, uint32_t index, struct rmv_gid_entry *out, uint32_t flags,
	                    size_t size);
};

// rmv_open loads the library of a path. On failure it returns NULL and a line
// in err that names the path or the missing symbol.
struct rmv_lib *rmv_open(const char *path, char *err, size_t n);
// rmv_close unloads it. Its objects must have been destroyed before.
void rmv_close(struct rmv_lib *lib);

// rmv_device_names writes the names, each ended by a newline, and returns the
// number of devices, or the negative errno.
int rmv_device_names(struct rmv_lib *lib, char *out, size_t n);
// rmv_open_device opens a device by name; NULL with *err 0 if none has it.
struct rmv_context *rmv_open_device(struct rmv_lib *lib, const char *name, int *err);

// The calls. Those that return an object set *err when it is NULL; the others
// return 0 or a positive errno.
int rmv_close_device(struct rmv_lib *lib, struct rmv_context *ctx);
int rmv_query_device(struct rmv_lib *lib, struct rmv_context *ctx, struct rmv_device_attr *out);
int rmv_query_port(struct rmv_lib *lib, struct rmv_context *ctx, int port, struct rmv_port_attr *out);
// rmv_query_gid: the type is -1 if the library cannot tell it.
int rmv_query_gid(struct rmv_lib *lib, struct rmv_context *ctx, int port, int index, uint8_t out[16], int *type);
struct rmv_pd *rmv_alloc_pd(struct rmv_lib *lib, struct rmv_context *ctx, int *err);
int rmv_dealloc_pd(struct rmv_lib *lib, struct rmv_pd *pd);
struct rmv_mr *rmv_reg_mr(struct rmv_lib *lib, struct rmv_pd *pd, void *addr, size_t n, int access, int *err);
int rmv_dereg_mr(struct rmv_lib *lib, struct rmv_mr *mr);
struct rmv_cq *rmv_create_cq(struct rmv_lib *lib, struct rmv_context *ctx, int cqe, int *err);
int rmv_destroy_cq(struct rmv_lib *lib, struct rmv_cq *cq);
struct rmv_qp *rmv_create_qp(struct rmv_lib *lib, struct rmv_pd *pd, struct rmv_cq *send_cq, struct rmv_cq *recv_cq, int type,
                             const struct rmv_qp_cap *cap, int *err);
int rmv_destroy_qp(struct rmv_lib *lib, struct rmv_qp *qp);
int rmv_modify_qp(struct rmv_lib *lib, struct rmv_qp *qp, struct rmv_qp_attr *attr, int mask);
// rmv_query_qp_cap reads back the granted depths and the state.
int rmv_query_qp_cap(struct rmv_lib *lib, struct rmv_qp *qp, struct rmv_qp_cap *cap, uint32_t *state);

// rmv_request is one message to send, or a buffer to receive one, for callers
// that do not post from C.
struct rmv_request {
	uint64_t wr_id;
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

// rmv_post posts n requests, as sends (all signalled) or receives, chained.
// It returns how many were posted and sets *err; see rmv_post_send.
int rmv_post(struct rmv_qp *qp, int send, const struct rmv_request *req, int n, int *err);
// rmv_poll is rmv_poll_cq for Go.
int rmv_poll(struct rmv_cq *cq, int n, struct rmv_wc *wc);

#endif
