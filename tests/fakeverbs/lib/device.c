// The calls of the library that are not on the hot path.
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int dev_of(struct rmv_context *ctx) { return ((struct fake_context *)ctx)->dev; }

void *refuse(void *handle, int e) {
	free(handle);
	errno = e;
	return NULL;
}

// my_host is the host of this process, -1 if the process is all of them.
static int my_host(void) {
	const char *h = getenv("FAKEVERBS_HOST");
	return h == NULL || h[0] == 0 ? -1 : atoi(h);
}

EXPORT void **ibv_get_device_list(int *n) {
	if (n != NULL) {
		*n = 0;
	}
	int rc = fabric_ready();
	if (rc != 0) {
		return refuse(NULL, rc);
	}
	void **list = calloc(MAX_DEVS + 1, sizeof *list);
	int host = my_host(), k = 0;
	for (int i = 0; list != NULL && i < fab->devs; i++) {
		if (host >= 0 && fab->dev[i].host != host) {
			continue;
		}
		struct fake_device *d = calloc(1, sizeof *d);
		if (d == NULL) {
			break;
		}
		d->index = i;
		memcpy(d->abi + 24, fab->dev[i].name, sizeof fab->dev[i].name);
		list[k++] = d;
	}
	if (n != NULL) {
		*n = k;
	}
	return list;
}

EXPORT void ibv_free_device_list(void **list) {
	for (int i = 0; list[i] != NULL; i++) {
		free(list[i]);
	}
	free(list);
}

EXPORT const char *ibv_get_device_name(void *dev) {
	return fab->dev[((struct fake_device *)dev)->index].name;
}

// claim takes a free slot of a table, if the device may have one more, and
// returns -1 otherwise. The caller holds the lock of the tables.
#define CLAIM(table, size, device, limit, slot) \
	do { \
		int have_ = 0, free_ = -1; \
		for (int i_ = 0; i_ < (size); i_++) { \
			if (atomic_load(&fab->table[i_].used)) { \
				have_ += fab->table[i_].dev == (device); \
			} else if (free_ < 0) { \
				free_ = i_; \
			} \
		} \
		(slot) = have_ < (limit) ? free_ : -1; \
	} while (0)

EXPORT struct rmv_context *ibv_open_device(void *device) {
	int dev = ((struct fake_device *)device)->index, fails, e = fault_call(ON_OPEN, dev, &fails);
	if (fails) {
		return refuse(NULL, abs(e));
	}
	struct fake_context *c = calloc(1, sizeof *c);
	if (c == NULL) {
		return NULL;
	}
	fabric_lock(&fab->lock);
	sweep();
	CLAIM(ctx, MAX_PDS, dev, MAX_PDS, c->slot);
	if (c->slot >= 0) {
		fab->ctx[c->slot].dev = dev;
		fab->ctx[c->slot].pid = getpid();
		atomic_store(&fab->ctx[c->slot].used, 1);
	}
	fabric_unlock(&fab->lock);
	if (c->slot < 0) {
		return refuse(c, ENOMEM);
	}
	c->dev = dev;
	c->v.ops.poll_cq = fake_poll_cq;
	c->v.ops.post_send = fake_post_send;
	c->v.ops.post_recv = fake_post_recv;
	c->v.cmd_fd = c->v.async_fd = -1;
	c->v.num_comp_vectors = 1;
	return &c->v;
}

EXPORT int ibv_close_device(struct rmv_context *ctx) {
	struct fake_context *c = (struct fake_context *)ctx;
	int fails, e = fault_call(ON_CLOSE, c->dev, &fails);
	if (fails) {
		return e;
	}
	atomic_store(&fab->ctx[c->slot].used, 0);
	free(c);
	return 0;
}

EXPORT int ibv_query_device(struct rmv_context *ctx, struct rmv_device_attr *out) {
	const struct device *d = &fab->dev[dev_of(ctx)];
	int fails, e = fault_call(ON_QUERY, dev_of(ctx), &fails);
	if (fails) {
		return e;
	}
	memset(out, 0, sizeof *out);
	memcpy(out->fw_ver, "fake", 5);
	uint8_t guid[8];
	for (int i = 0; i < 8; i++) {
		guid[i] = (uint8_t)(d->guid >> (56 - 8 * i));
	}
	memcpy(&out->node_guid, guid, 8);
	memcpy(&out->sys_image_guid, guid, 8);
	out->max_mr_size = d->max_mr_size;
	out->page_size_cap = 1 << 14;
	out->max_qp = d->told_qp;
	out->max_qp_wr = d->max_wr;
	out->max_sge = out->max_sge_rd = 1;
	out->max_cq = d->max_cq;
	out->max_cqe = d->max_cqe;
	out->max_mr = d->max_mr;
	out->max_pd = d->max_pd;
	out->phys_port_cnt = 1;
	return 0;
}

// ibv_query_port fills only the first 48 bytes, as the old call does.
EXPORT int ibv_query_port(struct rmv_context *ctx, uint8_t port, struct rmv_port_attr *out) {
	const struct device *d = &fab->dev[dev_of(ctx)];
	int fails, e = fault_call(ON_PORT, dev_of(ctx), &fails);
	if (fails) {
		return e;
	}
	if (port != 1) {
		return EINVAL;
	}
	struct rmv_port_attr a;
	memset(&a, 0, sizeof a);
	a.state = (uint32_t)atomic_load(&d->state);
	a.max_mtu = 5;
	a.active_mtu = (uint32_t)d->mtu;
	a.gid_tbl_len = d->gids;
	a.max_msg_sz = d->link == LINK_TB ? 0x1000000 : 1u << 30;
	a.pkey_tbl_len = 1;
	a.lid = d->lid;
	a.link_layer = (uint8_t)d->link_layer;
	memcpy(out, &a, 48);
	return 0;
}

EXPORT int ibv_query_gid(struct rmv_context *ctx, uint8_t port, int index, union rmv_gid *out) {
	const struct device *d = &fab->dev[dev_of(ctx)];
	if (port != 1 || index < 0 || index >= d->gids) {
		errno = EINVAL;
		return -1;
	}
	memcpy(out->raw, d->gid[index], 16);
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct rmv_context *ctx, uint32_t port, uint32_t index, struct rmv_gid_entry *out, uint32_t flags,
                             size_t size) {
	const struct device *d = &fab->dev[dev_of(ctx)];
	if (port != 1 || index >= (uint32_t)d->gids || flags != 0 || size < sizeof *out) {
		return EINVAL;
	}
	memset(out, 0, sizeof *out);
	memcpy(out->gid.raw, d->gid[index], 16);
	out->gid_index = index;
	out->port_num = port;
	out->gid_type = d->gid_type[index];
	return 0;
}

EXPORT struct rmv_pd *ibv_alloc_pd(struct rmv_context *ctx) {
	int dev = dev_of(ctx), fails, e = fault_call(ON_ALLOC_PD, dev, &fails);
	const struct device *d = &fab->dev[dev];
	if (!fails && d->link == LINK_TB && atomic_load(&d->state) != RMV_PORT_ACTIVE) {
		fails = 1;
		e = EIO; // as Thunderbolt does for a port that is down
	}
	struct fake_pd *p = fails ? NULL : calloc(1, sizeof *p);
	if (p == NULL) {
		return refuse(NULL, fails ? abs(e) : ENOMEM);
	}
	fabric_lock(&fab->lock);
	sweep();
	CLAIM(pd, MAX_PDS, dev, d->max_pd, p->slot);
	if (p->slot >= 0) {
		fab->pd[p->slot].dev = dev;
		fab->pd[p->slot].pid = getpid();
		atomic_store(&fab->pd[p->slot].used, 1);
	}
	fabric_unlock(&fab->lock);
	if (p->slot < 0) {
		return refuse(p, ENOMEM);
	}
	p->v.context = ctx;
	return &p->v;
}

EXPORT int ibv_dealloc_pd(struct rmv_pd *pd) {
	struct fake_pd *p = (struct fake_pd *)pd;
	int fails, e = fault_call(ON_DEALLOC_PD, dev_of(pd->context), &fails);
	if (fails) {
		return e;
	}
	for (int i = 0; i < MAX_MRS; i++) {
		if (atomic_load(&fab->mr[i].used) && fab->mr[i].pd == p->slot) {
			return EBUSY;
		}
	}
	for (int i = 0; i < MAX_QPS; i++) {
		if (atomic_load(&fab->qp[i].used) && fab->qp[i].pd == p->slot) {
			return EBUSY;
		}
	}
	atomic_store(&fab->pd[p->slot].used, 0);
	free(p);
	return 0;
}

EXPORT struct rmv_mr *ibv_reg_mr(struct rmv_pd *pd, void *addr, size_t n, int access) {
	int dev = dev_of(pd->context), fails, e = fault_call(ON_REG_MR, dev, &fails);
	struct fake_mr *m = fails ? NULL : calloc(1, sizeof *m);
	if (m == NULL) {
		return refuse(NULL, fails ? abs(e) : ENOMEM);
	}
	// With such a region one provider writes to the wrong place.
	if (n == 0 || (uintptr_t)addr >> 32 != ((uintptr_t)addr + n - 1) >> 32 || ((uintptr_t)addr & 0x3fff) != 0 ||
	    (access & RMV_ACCESS_LOCAL_WRITE) == 0 || (access == RMV_ACCESS_LOCAL_WRITE && !fab->dev[dev].local_write)) {
		return refuse(m, EINVAL);
	}
	fabric_lock(&fab->lock);
	sweep();
	CLAIM(mr, MAX_MRS, dev, fab->dev[dev].max_mr, m->slot);
	if (m->slot < 0 && fab->dev[dev].mr_crash) {
		crash();
	}
	uint64_t held = n;
	for (int i = 0; i < MAX_MRS; i++) {
		held += atomic_load(&fab->mr[i].used) && fab->mr[i].dev == dev ? fab->mr[i].len : 0;
	}
	if (held > fab->dev[dev].max_mem) {
		m->slot = -1;
	}
	if (m->slot >= 0) {
		struct region_mr *r = &fab->mr[m->slot];
		r->lkey = (uint32_t)(atomic_fetch_add(&fab->gen, 1) + 1) * MAX_MRS + (uint32_t)m->slot;
		r->dev = dev;
		r->pd = ((struct fake_pd *)pd)->slot;
		r->pid = getpid();
		r->access = access;
		r->born = atomic_fetch_add(&fab->gen, 1);
		r->addr = (uintptr_t)addr;
		r->len = n;
		m->v.lkey = r->lkey;
		m->v.rkey = fab->dev[dev].link == LINK_TB ? 0 : r->lkey;
		atomic_store(&r->used, 1);
	}
	fabric_unlock(&fab->lock);
	if (m->slot < 0) {
		return refuse(m, ENOMEM);
	}
	m->v.context = pd->context;
	m->v.pd = pd;
	m->v.addr = addr;
	m->v.length = n;
	return &m->v;
}

EXPORT int ibv_dereg_mr(struct rmv_mr *mr) {
	struct fake_mr *m = (struct fake_mr *)mr;
	int fails, e = fault_call(ON_DEREG_MR, dev_of(mr->context), &fails);
	if (fails) {
		return e;
	}
	atomic_store(&fab->mr[m->slot].used, 0);
	free(m);
	return 0;
}

EXPORT struct rmv_cq *ibv_create_cq(struct rmv_context *ctx, int cqe, void *cq_context, void *channel, int vector) {
	int dev = dev_of(ctx), fails, e = fault_call(ON_CREATE_CQ, dev, &fails);
	if (!fails && (cqe < 1 || cqe > fab->dev[dev].max_cqe || channel != NULL || vector != 0)) {
		fails = 1;
		e = EINVAL;
	}
	struct fake_cq *h = fails ? NULL : calloc(1, sizeof *h);
	if (h == NULL) {
		return refuse(NULL, fails ? abs(e) : ENOMEM);
	}
	fabric_lock(&fab->lock);
	sweep();
	CLAIM(cq, MAX_CQS, dev, fab->dev[dev].max_cq, h->slot);
	if (h->slot >= 0) {
		struct cq *c = &fab->cq[h->slot];
		c->dev = dev;
		c->cap = cqe;
		c->head = 0;
		c->pid = getpid();
		atomic_store(&c->count, 0);
		atomic_store(&c->dead, 0);
		atomic_store(&c->attention, 0);
		for (int i = 0; i < MAX_QPS / 64; i++) {
			atomic_store(&c->qps[i], 0);
		}
		atomic_store(&c->used, 1);
	}
	fabric_unlock(&fab->lock);
	if (h->slot < 0) {
		return refuse(h, ENOMEM);
	}
	h->v.context = ctx;
	h->v.cq_context = cq_context;
	h->v.cqe = cqe;
	return &h->v;
}

EXPORT int ibv_destroy_cq(struct rmv_cq *cq) {
	struct fake_cq *h = (struct fake_cq *)cq;
	int fails, e = fault_call(ON_DESTROY_CQ, dev_of(cq->context), &fails);
	if (fails) {
		return e;
	}
	for (int i = 0; i < MAX_QPS; i++) {
		const struct qp *q = &fab->qp[i];
		if (atomic_load(&q->used) && (q->scq == h->slot || q->rcq == h->slot)) {
			return EBUSY;
		}
	}
	atomic_store(&fab->cq[h->slot].used, 0);
	free(h);
	return 0;
}

const char *ibv_wc_status_str(int status);
EXPORT const char *ibv_wc_status_str(int status) { return status == 0 ? "success" : "failure"; }
