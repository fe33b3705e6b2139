//go:build !static

#include "rm_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// find looks a symbol up. On Linux the calls exist twice, so the version
// selects the ABI of current headers.
static void *find(void *handle, const char *name) {
#ifdef __linux__
	void *p = dlvsym(handle, name, "IBVERBS_1.1");
	if (p != NULL) {
		return p;
	}
#endif
	return dlsym(handle, name);
}

struct rmv_lib *rmv_open(const char *path, char *err, size_t n) {
	struct rmv_lib *lib = calloc(1, sizeof *lib);
	if (lib == NULL) {
		snprintf(err, n, "out of memory");
		return NULL;
	}
	lib->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib->handle == NULL) {
		const char *why = dlerror();
		snprintf(err, n, "cannot load %s: %s", path, why == NULL ? "no reason given" : why);
		free(lib);
		return NULL;
	}
	struct {
		const char *name;
		void *slot; // address of the pointer to fill
		int optional;
	} want[] = {
	    {"ibv_get_device_list", &lib->get_device_list, 0},
	    {"ibv_free_device_list", &lib->free_device_list, 0},
	    {"ibv_get_device_name", &lib->get_device_name, 0},
	    {"ibv_open_device", &lib->open_device, 0},
	    {"ibv_close_device", &lib->close_device, 0},
	    {"ibv_query_device", &lib->query_device, 0},
	    {"ibv_query_port", &lib->query_port, 0},
	    {"ibv_query_gid", &lib->query_gid, 0},
	    {"ibv_alloc_pd", &lib->alloc_pd, 0},
	    {"ibv_dealloc_pd", &lib->dealloc_pd, 0},
	    {"ibv_reg_mr", &lib->reg_mr, 0},
	    {"ibv_dereg_mr", &lib->dereg_mr, 0},
	    {"ibv_create_cq", &lib->create_cq, 0},
	    {"ibv_destroy_cq", &lib->destroy_cq, 0},
	    {"ibv_create_qp", &lib->create_qp, 0},
	    {"ibv_destroy_qp", &lib->destroy_qp, 0},
	    {"ibv_modify_qp", &lib->modify_qp, 0},
	    {"ibv_query_qp", &lib->query_qp, 0},
	    {"_ibv_query_gid_ex", &lib->query_gid_ex, 1},
	};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		void *p = find(lib->handle, want[i].name);
		if (p == NULL && !want[i].optional) {
			snprintf(err, n, "%s has no symbol %s", path, want[i].name);
			rmv_close(lib);
			return NULL;
		}
		// POSIX allows a function pointer as a void pointer.
		memcpy(want[i].slot, &p, sizeof p);
	}
	return lib;
}

void rmv_close(struct rmv_lib *lib) {
	dlclose(lib->handle);
	free(lib);
}

// failed returns the errno of a call that returned no object; it is never 0.
static int failed(void) {
	return errno != 0 ? errno : EIO;
}

// code returns the errno of a call that returns it with either sign, or returns
// -1 and sets errno.
static int code(int rc) {
	if (rc == 0) {
		return 0;
	}
	if (rc == -1 && errno != 0) {
		return errno;
	}
	return rc < 0 ? -rc : rc;
}

int rmv_device_names(struct rmv_lib *lib, char *out, size_t n) {
	int count = 0;
	errno = 0;
	void **list = lib->get_device_list(&count);
	if (list == NULL) {
		return -failed();
	}
	size_t used = 0;
	int kept = 0;
	for (int i = 0; i < count; i++) {
		const char *name = lib->get_device_name(list[i]);
		size_t len = name == NULL ? 0 : strlen(name);
		if (len == 0 || used + len + 1 > n) {
			continue;
		}
		memcpy(out + used, name, len);
		out[used + len] = '\n';
		used += len + 1;
		kept++;
	}
	lib->free_device_list(list);
	if (used < n) {
		out[used] = 0;
	}
	return kept;
}

struct rmv_context *rmv_open_device(struct rmv_lib *lib, const char *name, int *err) {
	int count = 0;
	struct rmv_context *ctx = NULL;
	errno = 0;
	void **list = lib->get_device_list(&count);
	if (list == NULL) {
		*err = failed();
		return NULL;
	}
	*err = 0;
	for (int i = 0; i < count; i++) {
		const char *have = lib->get_device_name(list[i]);
		if (have != NULL && strcmp(have, name) == 0) {
			errno = 0;
			ctx = lib->open_device(list[i]);
			if (ctx == NULL) {
				*err = failed();
			}
			break;
		}
	}
	lib->free_device_list(list);
	return ctx;
}

int rmv_close_device(struct rmv_lib *lib, struct rmv_context *ctx) {
	errno = 0;
	return code(lib->close_device(ctx));
}

int rmv_query_device(struct rmv_lib *lib, struct rmv_context *ctx, struct rmv_device_attr *out) {
	memset(out, 0, sizeof *out);
	errno = 0;
	return code(lib->query_device(ctx, out));
}

int rmv_query_port(struct rmv_lib *lib, struct rmv_context *ctx, int port, struct rmv_port_attr *out) {
	// Cleared first, because the exported call fills an older, shorter struct
	// than the header's.
	memset(out, 0, sizeof *out);
	errno = 0;
	return code(lib->query_port(ctx, (uint8_t)port, out));
}

int rmv_query_gid(struct rmv_lib *lib, struct rmv_context *ctx, int port, int index, uint8_t out[16], int *type) {
	union rmv_gid gid;
	memset(&gid, 0, sizeof gid);
	*type = -1;
	errno = 0;
	int rc = code(lib->query_gid(ctx, (uint8_t)port, index, &gid));
	memcpy(out, gid.raw, 16);
	if (rc == 0 && lib->query_gid_ex != NULL) {
		struct rmv_gid_entry e;
		memset(&e, 0, sizeof e);
		if (lib->query_gid_ex(ctx, (uint32_t)port, (uint32_t)index, &e, 0, sizeof e) == 0) {
			*type = (int)e.gid_type;
		}
	}
	return rc;
}

struct rmv_pd *rmv_alloc_pd(struct rmv_lib *lib, struct rmv_context *ctx, int *err) {
	errno = 0;
	struct rmv_pd *pd = lib->alloc_pd(ctx);
	*err = pd == NULL ? failed() : 0;
	return pd;
}

int rmv_dealloc_pd(struct rmv_lib *lib, struct rmv_pd *pd) {
	errno = 0;
	return code(lib->dealloc_pd(pd));
}

struct rmv_mr *rmv_reg_mr(struct rmv_lib *lib, struct rmv_pd *pd, void *addr, size_t n, int access, int *err) {
	errno = 0;
	struct rmv_mr *mr = lib->reg_mr(pd, addr, n, access);
	*err = mr == NULL ? failed() : 0;
	return mr;
}

int rmv_dereg_mr(struct rmv_lib *lib, struct rmv_mr *mr) {
	errno = 0;
	return code(lib->dereg_mr(mr));
}

struct rmv_cq *rmv_create_cq(struct rmv_lib *lib, struct rmv_context *ctx, int cqe, int *err) {
	errno = 0;
	struct rmv_cq *cq = lib->create_cq(ctx, cqe, NULL, NULL, 0);
	*err = cq == NULL ? failed() : 0;
	return cq;
}

int rmv_destroy_cq(struct rmv_lib *lib, struct rmv_cq *cq) {
	errno = 0;
	return code(lib->destroy_cq(cq));
}

struct rmv_qp *rmv_create_qp(struct rmv_lib *lib, struct rmv_pd *pd, struct rmv_cq *send_cq, struct rmv_cq *recv_cq, int type,
                             const struct rmv_qp_cap *cap, int *err) {
	struct rmv_qp_init_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.send_cq = send_cq;
	attr.recv_cq = recv_cq;
	attr.cap = *cap;
	attr.qp_type = (uint32_t)type;
	errno = 0;
	struct rmv_qp *qp = lib->create_qp(pd, &attr);
	*err = qp == NULL ? failed() : 0;
	return qp;
}

int rmv_destroy_qp(struct rmv_lib *lib, struct rmv_qp *qp) {
	errno = 0;
	return code(lib->destroy_qp(qp));
}

int rmv_modify_qp(struct rmv_lib *lib, struct rmv_qp *qp, struct rmv_qp_attr *attr, int mask) {
	errno = 0;
	return code(lib->modify_qp(qp, attr, mask));
}

int rmv_query_qp_cap(struct rmv_lib *lib, struct rmv_qp *qp, struct rmv_qp_cap *cap, uint32_t *state) {
	struct rmv_qp_attr attr;
	struct rmv_qp_init_attr init;
	memset(&attr, 0, sizeof attr);
	memset(&init, 0, sizeof init);
	errno = 0;
	int rc = code(lib->query_qp(qp, &attr, RMV_QP_STATE | RMV_QP_CAP, &init));
	*cap = attr.cap;
	*state = attr.qp_state;
	return rc;
}

enum { BATCH = 16 };

int rmv_post(struct rmv_qp *qp, int send, const struct rmv_request *req, int n, int *err) {
	int done = 0;
	*err = 0;
	while (done < n) {
		int k = n - done < BATCH ? n - done : BATCH;
		struct rmv_sge sge[BATCH];
		struct rmv_send_wr s[BATCH];
		struct rmv_recv_wr r[BATCH];
		if (send) {
			memset(s, 0, sizeof s[0] * (size_t)k);
		}
		for (int i = 0; i < k; i++) {
			const struct rmv_request *q = &req[done + i];
			sge[i] = (struct rmv_sge){.addr = q->addr, .length = q->length, .lkey = q->lkey};
			if (send) {
				s[i].wr_id = q->wr_id;
				s[i].next = i + 1 < k ? &s[i + 1] : NULL;
				s[i].sg_list = &sge[i];
				s[i].num_sge = 1;
				s[i].opcode = RMV_WR_SEND;
				s[i].send_flags = RMV_SEND_SIGNALED;
			} else {
				r[i] = (struct rmv_recv_wr){
				    .wr_id = q->wr_id, .next = i + 1 < k ? &r[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1};
			}
		}
		done += send ? rmv_post_send(qp, s, k, err) : rmv_post_recv(qp, r, k, err);
		if (*err != 0) {
			return done;
		}
	}
	return done;
}

int rmv_poll(struct rmv_cq *cq, int n, struct rmv_wc *wc) {
	return rmv_poll_cq(cq, n, wc);
}
