// Compute and blit encoders: what Apple's validation layer rejects is rejected
// here during encoding.
#import "sim.h"

@implementation SimEncoderInfo
- (NSString *)label {
    return label;
}
- (NSArray *)debugSignposts {
    return signposts;
}
- (MTLCommandEncoderErrorState)errorState {
    return state;
}
- (void)dealloc {
    [label release];
    [signposts release];
    [super dealloc];
}
@end

@implementation SimEncoder
- (id)initFor:(SimCommandBuffer *)buffer {
    if (!(self = [super init])) return nil;
    cb = [buffer retain];
    info = [[SimEncoderInfo alloc] init];
    info->signposts = [[NSMutableArray alloc] init];
    info->state = MTLCommandEncoderErrorStatePending;
    index = (int)[cb->encoders count];
    [cb->encoders addObject:info];
    cb->encoding = YES;
    return self;
}
- (void)live:(const char *)call {
    if (ended) sim_die("%s: the encoder has ended", call);
}
- (SimBuffer *)use:(id<MTLBuffer>)buffer in:(const char *)call {
    SimBuffer *b = (SimBuffer *)buffer;
    if (!b) sim_die("%s: no buffer", call);
    if (!sim_serial(b)) sim_die("%s: the buffer was released", call);
    if (!cb->unretained) [cb hold:b];
    return b;
}
- (NSString *)label {
    return info->label;
}
- (void)setLabel:(NSString *)s {
    [info->label autorelease];
    info->label = [s copy];
}
- (void)insertDebugSignpost:(NSString *)s {
    [self live:"insertDebugSignpost"];
    [info->signposts addObject:s];
}
- (void)pushDebugGroup:(NSString *)s {
    [self live:"pushDebugGroup"];
    if (!s) sim_die("pushDebugGroup: no name");
    [info->signposts addObject:s];
    info->open++;
}
- (void)popDebugGroup {
    [self live:"popDebugGroup"];
    if (info->open-- == 0) sim_die("popDebugGroup without pushDebugGroup");
}
- (void)endEncoding {
    [self live:"endEncoding"];
    if (info->open) sim_die("endEncoding: %d debug groups are open", info->open);
    ended = YES;
    cb->encoding = NO;
}
- (void)dealloc {
    if (!ended) sim_die("an encoder was released without endEncoding");
    [info release];
    [cb release];
    [super dealloc];
}
@end

@implementation SimComputeEncoder
- (MTLDispatchType)dispatchType {
    return now.concurrent ? MTLDispatchTypeConcurrent : MTLDispatchTypeSerial;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
    [self live:"setComputePipelineState"];
    if (!state) sim_die("setComputePipelineState: no pipeline");
    now.pipeline = (SimPipeline *)state;
    now.pipelineSerial = sim_serial(state);
    if (!cb->unretained) [cb hold:state];
}

static void index_ok(const char *call, NSUInteger i) {
    if (i >= MSL_BUFFERS) sim_die("%s: index %lu, the last one is 30", call, (unsigned long)i);
}

static void offset_ok(const char *call, SimBuffer *b, NSUInteger offset) {
    if (offset >= b->length) sim_die("%s: offset %lu in a buffer of %lu bytes", call, (unsigned long)offset, (unsigned long)b->length);
    if (offset % 4) sim_die("%s: offset %lu is not a multiple of 4", call, (unsigned long)offset);
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)i {
    [self live:"setBuffer"];
    index_ok("setBuffer", i);
    SimBuffer *b = NULL;
    if (buffer) {
        b = [self use:buffer in:"setBuffer"];
        offset_ok("setBuffer", b, offset);
    }
    now.buf[i] = b;
    now.bufSerial[i] = b ? sim_serial(b) : 0;
    now.offset[i] = offset;
    now.data[i] = nil;
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)i {
    [self live:"setBufferOffset"];
    index_ok("setBufferOffset", i);
    if (!now.buf[i]) sim_die("setBufferOffset: no buffer is bound at index %lu", (unsigned long)i);
    offset_ok("setBufferOffset", now.buf[i], offset);
    now.offset[i] = offset;
}

- (void)setBytes:(const void *)p length:(NSUInteger)n atIndex:(NSUInteger)i {
    [self live:"setBytes"];
    index_ok("setBytes", i);
    if (!p || n == 0) sim_die("setBytes: no bytes");
    if (n > 4096) sim_die("setBytes: %lu bytes, the limit is 4096", (unsigned long)n);
    NSData *d = [NSData dataWithBytes:p length:n];
    [cb hold:d];
    now.data[i] = d;
    now.buf[i] = nil;
}

- (void)setThreadgroupMemoryLength:(NSUInteger)n atIndex:(NSUInteger)i {
    [self live:"setThreadgroupMemoryLength"];
    index_ok("setThreadgroupMemoryLength", i);
    if (n % 16) sim_die("setThreadgroupMemoryLength: %lu is not a multiple of 16", (unsigned long)n);
    now.tgLength[i] = n;
}

- (void)dispatch:(const char *)call grid:(MTLSize)g threadgroup:(MTLSize)t exact:(BOOL)exact {
    [self live:call];
    if (!now.pipeline) sim_die("%s: no pipeline state is set", call);
    const char *name = now.pipelineSerial == sim_serial(now.pipeline) ? now.pipeline->function->kernel->name : "?";
    if (!g.width || !g.height || !g.depth || !t.width || !t.height || !t.depth)
        sim_die("%s of %s: a size is 0: grid %lux%lux%lu, threadgroup %lux%lux%lu", call, name, (unsigned long)g.width,
                (unsigned long)g.height, (unsigned long)g.depth, (unsigned long)t.width, (unsigned long)t.height, (unsigned long)t.depth);
    NSUInteger threads = t.width * t.height * t.depth, memory = 0;
    if (threads > now.pipeline->maxThreads)
        sim_die("%s of %s: %lu threads a threadgroup, the pipeline allows %lu", call, name, (unsigned long)threads,
                (unsigned long)now.pipeline->maxThreads);
    for (int i = 0; i < MSL_BUFFERS; i++) memory += now.tgLength[i];
    if (memory > 32768) sim_die("%s of %s: %lu bytes of threadgroup memory, the limit is 32768", call, name, (unsigned long)memory);
    sim_cmd *c = [cb push:OP_DISPATCH encoder:index];
    enum sim_op op = c->op;
    *c = now;
    c->op = op;
    c->encoder = index;
    c->grid = g;
    c->threadgroup = t;
    c->exact = exact;
}

- (void)dispatchThreadgroups:(MTLSize)g threadsPerThreadgroup:(MTLSize)t {
    sim_charge(SIM_DISPATCH);
    [self dispatch:"dispatchThreadgroups" grid:g threadgroup:t exact:NO];
}

- (void)dispatchThreads:(MTLSize)g threadsPerThreadgroup:(MTLSize)t {
    sim_charge(SIM_DISPATCH);
    [self dispatch:"dispatchThreads" grid:g threadgroup:t exact:YES];
}

- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    [self live:"memoryBarrierWithScope"];
    if (scope & MTLBarrierScopeBuffers) [cb push:OP_BARRIER encoder:index];
}

- (void)memoryBarrierWithResources:(const id<MTLResource> *)resources count:(NSUInteger)count {
    [self live:"memoryBarrierWithResources"];
    if (!resources || count == 0) sim_die("memoryBarrierWithResources: no resources");
    NSMutableArray *list = [NSMutableArray array];
    for (NSUInteger i = 0; i < count; i++) [list addObject:[NSValue valueWithPointer:[self use:(id<MTLBuffer>)resources[i] in:"memoryBarrierWithResources"]]];
    [cb hold:list];
    [cb push:OP_BARRIER_RESOURCES encoder:index]->resources = list;
}
@end

@implementation SimBlitEncoder
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)r value:(uint8_t)value {
    [self live:"fillBuffer"];
    SimBuffer *b = [self use:buffer in:"fillBuffer"];
    if (r.length == 0) sim_die("fillBuffer: the range is empty");
    if (r.location > b->length || r.length > b->length - r.location)
        sim_die("fillBuffer: %lu bytes at %lu in a buffer of %lu", (unsigned long)r.length, (unsigned long)r.location, (unsigned long)b->length);
    if (r.location % 4 || r.length % 4) sim_die("fillBuffer: the range %lu+%lu is not made of multiples of 4", (unsigned long)r.location, (unsigned long)r.length);
    sim_cmd *c = [cb push:OP_FILL encoder:index];
    c->to = b;
    c->toSerial = sim_serial(b);
    c->toOffset = r.location;
    c->size = r.length;
    c->fill = value;
}

- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)from
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)to
                  size:(NSUInteger)n {
    [self live:"copyFromBuffer"];
    SimBuffer *a = [self use:source in:"copyFromBuffer"], *b = [self use:destination in:"copyFromBuffer"];
    if (n == 0) sim_die("copyFromBuffer: no bytes");
    if (from > a->length || n > a->length - from || to > b->length || n > b->length - to)
        sim_die("copyFromBuffer: %lu bytes from %lu of %lu to %lu of %lu", (unsigned long)n, (unsigned long)from, (unsigned long)a->length,
                (unsigned long)to, (unsigned long)b->length);
    if (from % 4 || to % 4 || n % 4) sim_die("copyFromBuffer: %lu bytes from %lu to %lu: all must be multiples of 4", (unsigned long)n, (unsigned long)from, (unsigned long)to);
    if (a == b && from < to + n && to < from + n) sim_die("copyFromBuffer: the ranges overlap");
    sim_cmd *c = [cb push:OP_COPY encoder:index];
    c->from = a;
    c->to = b;
    c->fromSerial = sim_serial(a);
    c->toSerial = sim_serial(b);
    c->fromOffset = from;
    c->toOffset = to;
    c->size = n;
}
@end
