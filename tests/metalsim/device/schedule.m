// The worker: runs committed command buffers, in order within a queue and
// concurrently across queues.
#import "sim.h"
#include <stdlib.h>
#include <unistd.h>

static SimQueue **queues;
static int queueCount, queueRoom;
static pthread_t worker;
static BOOL haveWorker;
static BOOL workerKnown; // to GNUstep, as a thread of its own
static int waiters; // threads that wait for work
static BOOL impatient; // a thread has polled so often that it counts as waiting
static int looks;
static unsigned long random_state;

static unsigned dice(unsigned n) {
    random_state = random_state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(random_state >> 33) % n;
}

BOOL sim_blocked(SimCommandBuffer *cb) {
    if (cb->next >= cb->count) return NO;
    sim_cmd *c = &cb->cmds[cb->next];
    return c->op == OP_WAIT && c->event->value < c->eventValue;
}

void sim_wait_begin(const char *call) {
    if (haveWorker && pthread_equal(pthread_self(), worker)) sim_die("%s: called from a handler, which holds up what is waited for", call);
    waiters++;
    pthread_cond_broadcast(&sim_cv);
}

void sim_wait_end(void) { waiters--; }

void sim_poll(void) {
    if (++looks < 1000) return;
    looks = 0;
    impatient = YES;
    pthread_cond_broadcast(&sim_cv);
}

static void finish(SimCommandBuffer *cb, NSString *problem, NSInteger code) { // with sim_mu held
    MTLCommandBufferErrorOption detail = cb->errorOptions & MTLCommandBufferErrorOptionEncoderExecutionStatus;
    if (problem) {
        NSDictionary *more = detail ? [NSDictionary dictionaryWithObject:cb->encoders forKey:MTLCommandBufferEncoderInfoErrorKey] : nil;
        cb->error = [sim_error(MTLCommandBufferErrorDomain, code, problem, more) retain];
    }
    cb->end = sim_now();
    cb->status = problem ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
    pthread_mutex_unlock(&sim_mu);
    for (NSValue *v in cb->completed) ((MTLCommandBufferHandler)[v pointerValue])(cb);
    pthread_mutex_lock(&sim_mu);
    cb->finished = YES;
    cb->queue->alive--;
    impatient = NO;
    SimQueue *q = [cb->queue retain];
    [cb retain];
    [q->order removeObjectIdenticalTo:cb];
    pthread_cond_broadcast(&sim_cv);
    pthread_mutex_unlock(&sim_mu);
    [cb release]; // may be the last reference: the destructor takes the lock
    [q release];
    pthread_mutex_lock(&sim_mu);
}

static BOOL schedule(void) { // with sim_mu held
    for (int i = 0; i < queueCount; i++) {
        for (SimCommandBuffer *cb in queues[i]->order) {
            if (cb->status == MTLCommandBufferStatusEnqueued) break;
            if (cb->status != MTLCommandBufferStatusCommitted) continue;
            cb->status = MTLCommandBufferStatusScheduled;
            pthread_cond_broadcast(&sim_cv);
            if ([cb->scheduled count] == 0) continue;
            [cb retain];
            pthread_mutex_unlock(&sim_mu);
            for (NSValue *v in cb->scheduled) ((MTLCommandBufferHandler)[v pointerValue])(cb);
            [cb release];
            pthread_mutex_lock(&sim_mu);
            return YES; // the lists may have changed
        }
    }
    return NO;
}

static SimCommandBuffer *choose(void) { // with sim_mu held
    SimCommandBuffer *found = nil;
    unsigned n = 0;
    for (int i = 0; i < queueCount; i++) {
        if ([queues[i]->order count] == 0) continue;
        SimCommandBuffer *cb = [queues[i]->order objectAtIndex:0];
        if (cb->status != MTLCommandBufferStatusScheduled) continue;
        cb->blocked = sim_blocked(cb);
        if (cb->blocked) continue;
        n++;
        if (!found || (sim_seed() && dice(n) == 0)) found = cb;
    }
    return found;
}

static void turn(void) { // with sim_mu held: runs one command buffer, or waits for something to change
    while (schedule()) {
    }
    BOOL may = waiters > 0 || impatient || sim_mode() != SIM_LAZY;
    SimCommandBuffer *cb = may ? choose() : nil;
    if (!cb) {
        if (sim_mode() == SIM_SYNC) pthread_cond_broadcast(&sim_cv); // a blocked commit returns
        pthread_cond_wait(&sim_cv, &sim_mu);
        return;
    }
    [cb retain];
    pthread_mutex_unlock(&sim_mu);
    unsigned long delay = sim_env_size("MTLSIM_DELAY_US", 0);
    if (delay) usleep((useconds_t)delay);
    if (cb->start == 0) cb->start = sim_now();
	pthread_mutex_lock(&sim_mu);
	for (SimResidencySet *s in cb->sets) [s use];
	pthread_mutex_unlock(&sim_mu);
	NSInteger code = MTLCommandBufferErrorInternal;
    NSString *problem = sim_run(cb, &code);
    pthread_mutex_lock(&sim_mu);
    if (problem || cb->next >= cb->count) finish(cb, problem, code);
    pthread_mutex_unlock(&sim_mu);
    [cb release]; // the destructor takes the lock
    pthread_mutex_lock(&sim_mu);
}

static void *work(void *unused) {
    (void)unused;
    random_state = sim_seed();
    for (;;) {
        @autoreleasepool {
            pthread_mutex_lock(&sim_mu);
            if (!workerKnown) {
                workerKnown = YES;
                pthread_cond_broadcast(&sim_cv);
            }
            turn();
            pthread_mutex_unlock(&sim_mu);
        }
    }
    return NULL;
}

void sim_queue_born(SimQueue *q) {
    pthread_mutex_lock(&sim_mu);
    if (queueCount == queueRoom) {
        queueRoom = queueRoom ? queueRoom * 2 : 8;
        queues = realloc(queues, (size_t)queueRoom * sizeof *queues);
    }
    queues[queueCount++] = q;
    if (!haveWorker) {
        haveWorker = YES;
        if (pthread_create(&worker, NULL, work, NULL)) sim_die("no thread for the worker");
    }
    // A thread's first autorelease pool makes it known to GNUstep, which crashes if
    // the program's end runs GNUstep's exit handlers at that moment.
    while (!workerKnown) pthread_cond_wait(&sim_cv, &sim_mu);
    pthread_mutex_unlock(&sim_mu);
}

void sim_queue_died(SimQueue *q) {
    pthread_mutex_lock(&sim_mu);
    for (int i = 0; i < queueCount; i++) {
        if (queues[i] == q) queues[i--] = queues[--queueCount];
    }
    pthread_mutex_unlock(&sim_mu);
}
