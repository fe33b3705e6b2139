// Events and residency sets.
#import "sim.h"
#include <errno.h>
#include <time.h>

@implementation SimEvent
@synthesize label;

- (uint64_t)signaledValue {
    pthread_mutex_lock(&sim_mu);
    uint64_t v = value;
    sim_poll();
    pthread_mutex_unlock(&sim_mu);
    return v;
}

- (void)setSignaledValue:(uint64_t)v {
    pthread_mutex_lock(&sim_mu);
    value = v;
    pthread_cond_broadcast(&sim_cv);
    pthread_mutex_unlock(&sim_mu);
}

- (BOOL)waitUntilSignaledValue:(uint64_t)v timeoutMS:(uint64_t)ms {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t most = (uint64_t)1000 * 3600 * 24 * 365;
    if (ms > most) ms = most;
    t.tv_sec += (time_t)(ms / 1000);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&sim_mu);
    sim_wait_begin("waitUntilSignaledValue");
    int rc = 0;
    BOOL slept = value < v;
    while (value < v && rc != ETIMEDOUT) rc = pthread_cond_timedwait(&sim_cv, &sim_mu, &t);
    BOOL ok = value >= v;
    sim_wait_end();
    pthread_mutex_unlock(&sim_mu);
    if (slept) sim_charge(SIM_WAKE);
    return ok;
}

- (void)dealloc {
    sim_died(self);
    [label release];
    [super dealloc];
}
@end

// Changes to a set take effect at commit. Buffers must outlive their membership:
// no code may rely on Apple's sets retaining them.
@implementation SimResidencySet

- (id)init {
    if (!(self = [super init])) return nil;
    members = [[NSMutableArray alloc] init];
    pending = [[NSMutableArray alloc] init];
    sim_born(self);
	pthread_mutex_lock(&sim_mu);
	sim_set_born(self);
	pthread_mutex_unlock(&sim_mu);
	return self;
}

static void leave(SimBuffer *b) { b->residencySets--; }

- (void)dealloc {
    sim_died(self);
	pthread_mutex_lock(&sim_mu);
	sim_set_died(self);
	pthread_mutex_unlock(&sim_mu);
	for (NSValue *v in pending) leave([v nonretainedObjectValue]);
    for (NSValue *v in members) {
        if (![pending containsObject:v]) leave([v nonretainedObjectValue]);
    }
    [members release];
    [pending release];
    [label release];
    [super dealloc];
}

- (NSString *)label {
    return label;
}
- (id<MTLDevice>)device {
    return device;
}
- (uint64_t)allocatedSize {
    uint64_t n = 0;
    for (NSValue *v in members) n += [(SimBuffer *)[v nonretainedObjectValue] allocatedSize];
    return n;
}
- (NSUInteger)allocationCount {
    return [members count];
}

- (void)addAllocation:(id<MTLAllocation>)a {
    if (!a || !sim_serial(a)) sim_die("addAllocation: no living allocation");
    NSValue *v = [NSValue valueWithNonretainedObject:a];
    if ([pending containsObject:v]) return;
    [pending addObject:v];
    if (![members containsObject:v]) ((SimBuffer *)a)->residencySets++;
}

// Removed allocations still count until commit: only then may they be freed.
- (void)removeAllocation:(id<MTLAllocation>)a {
    NSValue *v = [NSValue valueWithNonretainedObject:a];
    if (![pending containsObject:v]) return;
    [pending removeObject:v];
    if (![members containsObject:v]) leave((SimBuffer *)a);
}

- (void)removeAllAllocations {
    for (NSValue *v in [[pending copy] autorelease]) [self removeAllocation:[v nonretainedObjectValue]];
}

- (BOOL)containsAllocation:(id<MTLAllocation>)a {
    return [members containsObject:[NSValue valueWithNonretainedObject:a]];
}

- (void)commit {
    for (NSValue *v in members) {
        if (![pending containsObject:v]) leave([v nonretainedObjectValue]);
    }
    [members setArray:pending];
}

// The memory of a set that is neither used nor requested is unwired even so: see
// sim_idle.
- (void)use {
	touched = YES;
	if (wired) return;
	wired = YES;
	sim_counted("wired", [self allocatedSize]);
}
- (void)requestResidency {
	pthread_mutex_lock(&sim_mu);
	requested++;
	sim_counted("requests", 1);
	[self use];
	pthread_mutex_unlock(&sim_mu);
}
- (void)endResidency {
    if (requested == 0) sim_die("endResidency without requestResidency");
	pthread_mutex_lock(&sim_mu);
	requested = 0;
	wired = NO;
	pthread_mutex_unlock(&sim_mu);
}
@end
