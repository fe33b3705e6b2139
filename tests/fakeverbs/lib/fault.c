#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int matches(const struct fault *f, int event, int dev, int peer, int64_t len) {
	return f->event == event && len > f->above && (f->dev < 0 || f->dev == dev) && (f->host < 0 || f->host == fab->dev[dev].host) &&
	       (f->peer < 0 || f->peer == peer);
}

// chance tells whether event number i is one of the prob/10000 that fire.
static int chance(uint32_t seed, uint64_t i, uint32_t prob) {
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (x ^ (x >> 31)) % 10000 < prob;
}

const struct fault *fault_at(int event, int dev, int peer) { return fault_at_message(event, dev, peer, 0); }

const struct fault *fault_at_message(int event, int dev, int peer, uint32_t len) {
	if (atomic_load_explicit(&fab->armed[event], memory_order_relaxed) == 0) {
		return NULL;
	}
	const struct fault *hit = NULL;
	for (int i = 0; i < fab->faults; i++) {
		struct fault *f = &fab->fault[i];
		if (!matches(f, event, dev, peer, len)) {
			continue;
		}
		uint64_t seen = atomic_fetch_add(&f->seen, 1) + 1; // every fault has its own count
		if (hit != NULL || seen < f->nth || seen - f->nth >= f->count || (f->prob != 0 && !chance(f->seed, seen, f->prob))) {
			continue;
		}
		atomic_fetch_add(&f->fired, 1);
		hit = f;
	}
	return hit;
}

void kill_host(int host, int state) {
	atomic_store(&fab->host[host], state);
	for (int i = 0; i < MAX_QPS; i++) {
		if (atomic_load(&fab->qp[i].used)) {
			qp_notify(&fab->qp[i]);
		}
	}
}

// lose counts a loss of the link of a device, and of that at the other end.
static void lose(struct fabric *f, int dev) {
	atomic_fetch_add(&f->dev[dev].losses, 1);
	for (int i = 0; i < f->cables; i++) {
		const struct cable *c = &f->cable[i];
		if (c->a == dev || c->b == dev) {
			atomic_fetch_add(&f->dev[c->a == dev ? c->b : c->a].losses, 1);
		}
	}
}

void port_set(struct fabric *f, int dev, int state) {
	if (atomic_exchange(&f->dev[dev].state, state) == RMV_PORT_ACTIVE && state != RMV_PORT_ACTIVE) {
		lose(f, dev);
	}
}

void cable_set(struct fabric *f, struct cable *c, int dead) {
	if (!atomic_exchange(&c->dead, dead) && dead) {
		lose(f, c->a);
	}
}

int link_lost(const struct qp *q) { return atomic_load(&fab->dev[q->dev].losses) != q->losses; }

void crash(void) {
	// The provider writes to a doorbell page that the kernel has unmapped.
	uint8_t *page = mmap(NULL, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED) {
		*(volatile uint32_t *)(page + 8) = 1;
	}
	abort();
}

int fault_call(int event, int dev, int *fails) {
	const struct fault *f = fault_at(event, dev, -1);
	*fails = 0;
	if (f == NULL) {
		return 0;
	}
	switch (f->action) {
	case DO_ERRNO:
		*fails = 1;
		return (int)f->arg;
	case DO_HANG: {
		struct timespec t = {f->arg / 1000, f->arg % 1000 * 1000000};
		while (nanosleep(&t, &t) != 0 && errno == EINTR) {
		}
		return 0;
	}
	case DO_CRASH:
		crash();
		return 0;
	case DO_PORT_DOWN:
		port_set(fab, dev, RMV_PORT_DOWN);
		return 0;
	case DO_KILL_HOST:
		kill_host(fab->dev[dev].host, HOST_DEAD);
		return 0;
	case DO_KILL_RAIL:
		for (int i = 0; i < fab->cables; i++) {
			if (fab->cable[i].a == dev || fab->cable[i].b == dev) {
				cable_set(fab, &fab->cable[i], 1);
			}
		}
		return 0;
	}
	return 0;
}
