//go:build (darwin && cgo) || metalsim

#import <Foundation/Foundation.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "residency.h"

struct rmm_residency {
	id set;                // MTLResidencySet
	id<MTLCommandQueue> queue;
	uint32_t renew_ms;
	uint64_t keep_ms;
	pthread_t thread;
	pthread_mutex_t lock;  // of all below, and of the set
	pthread_cond_t change; // of wanted or closing
	int stale;             // the set has changed since its last commit
	int requested;         // residency was requested
	int wanted;            // and is to be renewed
	int closing;
	uint64_t used_ms;      // when it was last used
};

static uint64_t milliseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

// sleep_ms waits for a change, at most ms milliseconds, with the lock held.
static void sleep_ms(rmm_residency *r, uint32_t ms) {
#ifdef __APPLE__
	struct timespec span = {ms / 1000, (long)(ms % 1000) * 1000000};
	pthread_cond_timedwait_relative_np(&r->change, &r->lock, &span);
#else
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)ms * 1000000;
	t.tv_sec += (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	pthread_cond_timedwait(&r->change, &r->lock, &t);
#endif
}

// request requests residency, with the lock held.
static void request(rmm_residency *r) RMM_MACOS15;
static void request(rmm_residency *r) {
	@autoreleasepool {
		[(id<MTLResidencySet>)r->set requestResidency];
		r->requested = 1;
	}
}

// renew is the thread. It sleeps while nothing is wanted.
static void *renew(void *p) RMM_MACOS15;
static void *renew(void *p) {
	rmm_residency *r = p;
	pthread_mutex_lock(&r->lock);
	while (!r->closing) {
		if (!r->wanted) {
			pthread_cond_wait(&r->change, &r->lock);
			continue;
		}
		uint64_t due = milliseconds() + r->renew_ms;
		for (uint64_t now; !r->closing && (now = milliseconds()) < due;) sleep_ms(r, (uint32_t)(due - now));
		if (r->closing) break;
		if (r->keep_ms > 0 && milliseconds() - r->used_ms >= r->keep_ms) r->wanted = 0;
		else request(r);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

// make_lock makes the lock and the condition, with a clock that does not jump.
static int make_lock(rmm_residency *r) {
	if (pthread_mutex_init(&r->lock, NULL) != 0) return -1;
#ifdef __APPLE__
	int failed = pthread_cond_init(&r->change, NULL);
#else
	pthread_condattr_t clock;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	int failed = pthread_cond_init(&r->change, &clock);
	pthread_condattr_destroy(&clock);
#endif
	if (failed) pthread_mutex_destroy(&r->lock);
	return failed ? -1 : 0;
}

rmm_residency *rmm_residency_open(id<MTLDevice> device, id<MTLCommandQueue> queue, uint32_t renew_ms, uint64_t keep_ms) {
	rmm_residency *r = calloc(1, sizeof *r);
	if (r == NULL) return NULL;
	r->renew_ms = renew_ms;
	r->keep_ms = keep_ms;
	MTLResidencySetDescriptor *d = [[MTLResidencySetDescriptor alloc] init];
	d.label = @"ringmaster";
	r->set = [device newResidencySetWithDescriptor:d error:NULL];
	[d release];
	if (r->set == nil || make_lock(r) != 0) {
		[r->set release];
		free(r);
		return NULL;
	}
	if (pthread_create(&r->thread, NULL, renew, r) != 0) {
		pthread_cond_destroy(&r->change);
		pthread_mutex_destroy(&r->lock);
		[r->set release];
		free(r);
		return NULL;
	}
	r->queue = [queue retain];
	[queue addResidencySet:r->set];
	return r;
}

void rmm_residency_close(rmm_residency *r) {
	pthread_mutex_lock(&r->lock);
	r->closing = 1;
	pthread_cond_signal(&r->change);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	pthread_cond_destroy(&r->change);
	pthread_mutex_destroy(&r->lock);
	[r->queue removeResidencySet:r->set];
	if (r->requested) [(id<MTLResidencySet>)r->set endResidency];
	[r->set release];
	[r->queue release];
	free(r);
}

void rmm_residency_add(rmm_residency *r, id<MTLBuffer> b) {
	pthread_mutex_lock(&r->lock);
	[(id<MTLResidencySet>)r->set addAllocation:b];
	r->stale = 1;
	pthread_mutex_unlock(&r->lock);
}

void rmm_residency_remove(rmm_residency *r, id<MTLBuffer> b) {
	pthread_mutex_lock(&r->lock);
	// The set retains the buffer until the removal is committed.
	[(id<MTLResidencySet>)r->set removeAllocation:b];
	[(id<MTLResidencySet>)r->set commit];
	pthread_mutex_unlock(&r->lock);
}

void rmm_residency_use(rmm_residency *r) {
	pthread_mutex_lock(&r->lock);
	if (r->stale) [(id<MTLResidencySet>)r->set commit];
	if (r->stale || !r->wanted) request(r);
	if (!r->wanted) pthread_cond_signal(&r->change);
	r->stale = 0;
	r->wanted = 1;
	r->used_ms = milliseconds();
	pthread_mutex_unlock(&r->lock);
}

int rmm_residency_renewed(rmm_residency *r) {
	pthread_mutex_lock(&r->lock);
	int renewed = r->wanted;
	pthread_mutex_unlock(&r->lock);
	return renewed;
}
