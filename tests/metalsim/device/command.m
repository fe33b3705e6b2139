// Command buffers and queues.
#import "sim.h"
#include <Block.h>
#include <stdlib.h>
#include <string.h>

@implementation SimCommandBuffer
@synthesize label;

- (id)init {
    if (!(self = [super init])) return nil;
    keep = [[NSMutableArray alloc] init];
    encoders = [[NSMutableArray alloc] init];
    scheduled = [[NSMutableArray alloc] init];
    completed = [[NSMutableArray alloc] init];
    sim_born(self);
    return self;
}

- (void)dealloc {
    sim_died(self);
    pthread_mutex_lock(&sim_mu);
    if (!finished) {
        queue->alive--;
        pthread_cond_broadcast(&sim_cv);
    }
    pthread_mutex_unlock(&sim_mu);
    free(cmds);
    for (NSValue *v in scheduled) Block_release([v pointerValue]);
    for (NSValue *v in completed) Block_release([v pointerValue]);
    [keep release];
    [encoders release];
	[sets release];
	[scheduled release];
    [completed release];
    [label release];
    [error release];
    [queue release];
    [super dealloc];
}

- (sim_cmd *)push:(enum sim_op)op encoder:(int)encoder {
    if (count == room) {
        room = room ? room * 2 : 64;
        cmds = realloc(cmds, (size_t)room * sizeof *cmds);
    }
    sim_cmd *c = &cmds[count++];
    memset(c, 0, sizeof *c);
    c->op = op;
    c->encoder = encoder;
    return c;
}

- (void)hold:(id)object {
    [keep addObject:object];
}

- (id<MTLDevice>)device {
    return queue->device;
}
- (id<MTLCommandQueue>)commandQueue {
    return queue;
}
- (BOOL)retainedReferences {
    return !unretained;
}
- (MTLCommandBufferErrorOption)errorOptions {
    return errorOptions;
}

- (MTLCommandBufferStatus)status {
    pthread_mutex_lock(&sim_mu);
    MTLCommandBufferStatus s = status;
    if (s > MTLCommandBufferStatusEnqueued && s < MTLCommandBufferStatusCompleted) sim_poll();
    pthread_mutex_unlock(&sim_mu);
    return s;
}

- (NSError *)error {
    pthread_mutex_lock(&sim_mu);
    NSError *e = error;
    pthread_mutex_unlock(&sim_mu);
    return e;
}
- (CFTimeInterval)GPUStartTime {
    return start;
}
- (CFTimeInterval)GPUEndTime {
    return end;
}

- (void)open:(const char *)call {
    if (encoding) sim_die("%s: an encoder of this command buffer is open", call);
    pthread_mutex_lock(&sim_mu);
    MTLCommandBufferStatus s = status;
    pthread_mutex_unlock(&sim_mu);
    if (s >= MTLCommandBufferStatusCommitted) sim_die("%s: the command buffer is committed", call);
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
    return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
    [self open:"computeCommandEncoder"];
    SimComputeEncoder *e = [[[SimComputeEncoder alloc] initFor:self] autorelease];
    e->now.concurrent = type == MTLDispatchTypeConcurrent;
    return e;
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
    [self open:"blitCommandEncoder"];
    return [[[SimBlitEncoder alloc] initFor:self] autorelease];
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
    [self open:"addScheduledHandler"];
    [scheduled addObject:[NSValue valueWithPointer:Block_copy(block)]];
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
    [self open:"addCompletedHandler"];
    [completed addObject:[NSValue valueWithPointer:Block_copy(block)]];
}

- (void)event:(id<MTLEvent>)event value:(uint64_t)value op:(enum sim_op)op {
    [self open:op == OP_SIGNAL ? "encodeSignalEvent" : "encodeWaitForEvent"];
    if (!event) sim_die("an event command without an event");
    [self hold:event];
    sim_cmd *c = [self push:op encoder:-1];
    c->event = (SimEvent *)event;
    c->eventValue = value;
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
    [self event:event value:value op:OP_SIGNAL];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
    [self event:event value:value op:OP_WAIT];
}

- (void)pushDebugGroup:(NSString *)s {
    [self open:"pushDebugGroup"];
    if (!s) sim_die("pushDebugGroup: no name");
    groups++;
}
- (void)popDebugGroup {
    [self open:"popDebugGroup"];
    if (groups-- == 0) sim_die("popDebugGroup without pushDebugGroup");
}

- (void)useResidencySet:(id<MTLResidencySet>)set {
    [self open:"useResidencySet"];
    if (!set) sim_die("useResidencySet: no set");
	NSArray *more = [[sets arrayByAddingObject:set] retain];
	[sets release];
	sets = more;
}

- (void)enqueue {
    pthread_mutex_lock(&sim_mu);
    if (status != MTLCommandBufferStatusNotEnqueued) sim_die("enqueue: the command buffer is enqueued already");
    status = MTLCommandBufferStatusEnqueued;
    [queue->order addObject:self];
    pthread_mutex_unlock(&sim_mu);
}

- (void)commit {
    sim_charge(SIM_COMMIT);
    if (encoding) sim_die("commit: an encoder is open");
    if (groups) sim_die("commit: %d debug groups are open", groups);
    pthread_mutex_lock(&sim_mu);
    if (status >= MTLCommandBufferStatusCommitted) sim_die("commit: the command buffer is committed already");
    if (status == MTLCommandBufferStatusNotEnqueued) [queue->order addObject:self];
    sim_order(self);
    status = MTLCommandBufferStatusCommitted;
    pthread_cond_broadcast(&sim_cv);
    BOOL free = YES; // no uncommitted command buffer precedes it
    for (SimCommandBuffer *b in queue->order) {
        if (b == self) break;
        free = free && b->status >= MTLCommandBufferStatusCommitted && !b->blocked;
    }
    if (sim_mode() == SIM_SYNC && free) {
        sim_wait_begin("commit");
        while (!finished && !blocked) pthread_cond_wait(&sim_cv, &sim_mu);
        sim_wait_end();
    }
    pthread_mutex_unlock(&sim_mu);
}

- (void)waitUntilScheduled {
    pthread_mutex_lock(&sim_mu);
    if (status < MTLCommandBufferStatusCommitted) sim_die("waitUntilScheduled: the command buffer is not committed");
    while (status < MTLCommandBufferStatusScheduled) pthread_cond_wait(&sim_cv, &sim_mu);
    pthread_mutex_unlock(&sim_mu);
}
- (void)waitUntilCompleted {
    BOOL slept = NO;
    pthread_mutex_lock(&sim_mu);
    if (status < MTLCommandBufferStatusCommitted) sim_die("waitUntilCompleted: the command buffer is not committed");
    if (!finished) {
        sim_wait_begin("waitUntilCompleted");
        while (!finished) pthread_cond_wait(&sim_cv, &sim_mu);
        sim_wait_end();
        slept = YES;
    }
    pthread_mutex_unlock(&sim_mu);
    if (slept) sim_charge(SIM_WAKE);
}
@end

@implementation SimQueue
@synthesize label;

- (id)init {
    if (!(self = [super init])) return nil;
    order = [[NSMutableArray alloc] init];
    sets = [[NSMutableArray alloc] init];
    sim_queue_born(self);
    sim_born(self);
    return self;
}
- (void)dealloc {
    sim_died(self);
    sim_queue_died(self);
    [order release];
    [sets release];
    [label release];
    [super dealloc];
}
- (id<MTLDevice>)device {
    return device;
}

// A queue has a fixed number of command buffers; requesting one more waits until
// one is finished.
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor *)d {
    pthread_mutex_lock(&sim_mu);
    if (alive >= (int)limit) {
        BOOL committed = NO;
        for (SimCommandBuffer *b in order) committed = committed || b->status >= MTLCommandBufferStatusCommitted;
        if (!committed) sim_die("commandBuffer: all %lu are open and none is committed: this would wait forever", (unsigned long)limit);
        sim_wait_begin("commandBuffer");
        while (alive >= (int)limit) pthread_cond_wait(&sim_cv, &sim_mu);
        sim_wait_end();
    }
    alive++;
    pthread_mutex_unlock(&sim_mu);
    SimCommandBuffer *b = [[[SimCommandBuffer alloc] init] autorelease];
    b->queue = [self retain];
    b->unretained = d && !d.retainedReferences;
    b->errorOptions = d ? d.errorOptions : MTLCommandBufferErrorOptionNone;
	b->sets = [sets copy];
	return b;
}
- (id<MTLCommandBuffer>)commandBuffer {
    return [self commandBufferWithDescriptor:nil];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
    MTLCommandBufferDescriptor *d = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
    d.retainedReferences = NO;
    return [self commandBufferWithDescriptor:d];
}

- (void)addResidencySet:(id<MTLResidencySet>)set {
    if (!set) sim_die("addResidencySet: no set");
    if ([sets count] >= 32) sim_die("addResidencySet: a queue takes 32 sets");
    if (![sets containsObject:set]) [sets addObject:set];
}
- (void)removeResidencySet:(id<MTLResidencySet>)set {
    if (![sets containsObject:set]) sim_die("removeResidencySet: the queue does not have this set");
    [sets removeObject:set];
}
@end
