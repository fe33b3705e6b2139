// Every misuse that the device aborts on. The name of a case, up to " / ", is
// what the message must contain.
#include "driver.h"

static id<MTLComputeCommandEncoder> encoder(void) { return [[queue commandBuffer] computeCommandEncoder]; }
static id<MTLComputeCommandEncoder> with(NSString *kernel) {
    id<MTLComputeCommandEncoder> e = encoder();
    [e setComputePipelineState:pipeline(kernel)];
    return e;
}

static void second_encoder(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b computeCommandEncoder];
    [b blitCommandEncoder];
}
static void committed_encoder(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b commit];
    [b computeCommandEncoder];
}
static void commit_open(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b computeCommandEncoder];
    [b commit];
}
static void commit_group(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b pushDebugGroup:@"x"];
    [b commit];
}
static void commit_twice(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b commit];
    [b commit];
}
static void enqueue_twice(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b enqueue];
    [b enqueue];
}
static void wait_uncommitted(void) { [[queue commandBuffer] waitUntilCompleted]; }
static void wait_unscheduled(void) { [[queue commandBuffer] waitUntilScheduled]; }
static void late_handler(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b commit];
    [b addCompletedHandler:^(id<MTLCommandBuffer> c) { (void)c; }];
}
static void event_inside(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b computeCommandEncoder];
    [b encodeSignalEvent:[dev newSharedEvent] value:1];
}
static void event_falls(void) {
    id<MTLSharedEvent> ev = [dev newSharedEvent];
    ev.signaledValue = 5;
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b encodeSignalEvent:ev value:4];
    run(b);
}
static void no_event(void) { [[queue commandBuffer] encodeWaitForEvent:nil value:4]; }
static void pop_buffer_group(void) { [[queue commandBuffer] popDebugGroup]; }
static void wait_in_handler(void) {
    id<MTLCommandBuffer> b = [queue commandBuffer];
    [b addCompletedHandler:^(id<MTLCommandBuffer> c) {
      id<MTLCommandBuffer> d = [queue commandBuffer];
      (void)c;
      run(d);
    }];
    run(b);
}
static void too_many(void) {
    NSMutableArray *a = [NSMutableArray array];
    for (int i = 0; i < 65; i++) [a addObject:[queue commandBuffer]];
}
static void queue_of_none(void) { [dev newCommandQueueWithMaxCommandBufferCount:0]; }

static void ended(void) {
    id<MTLComputeCommandEncoder> e = encoder();
    [e endEncoding];
    [e setBuffer:nil offset:0 atIndex:0];
}
static void not_ended(void) {
    @autoreleasepool {
        encoder();
    }
}
static void no_pipeline(void) { [encoder() dispatchThreads:ONE threadsPerThreadgroup:ONE]; }
static void nil_pipeline(void) { [encoder() setComputePipelineState:nil]; }
static void long_bytes(void) {
    static char bytes[4097];
    [encoder() setBytes:bytes length:4097 atIndex:0];
}
static void empty_bytes(void) { [encoder() setBytes:"" length:0 atIndex:0]; }
static void high_index(void) { [encoder() setBuffer:nil offset:0 atIndex:31]; }
static void far_offset(void) { [encoder() setBuffer:floats(4, 0) offset:16 atIndex:0]; }
static void odd_offset(void) { [encoder() setBuffer:floats(4, 0) offset:2 atIndex:0]; }
static void no_buffer_offset(void) { [encoder() setBufferOffset:0 atIndex:3]; }
static void far_new_offset(void) {
    id<MTLComputeCommandEncoder> e = encoder();
    [e setBuffer:floats(4, 0) offset:0 atIndex:0];
    [e setBufferOffset:400 atIndex:0];
}
static void odd_memory(void) { [encoder() setThreadgroupMemoryLength:8 atIndex:0]; }
static void much_memory(void) {
    id<MTLComputeCommandEncoder> e = with(@"reverse");
    [e setThreadgroupMemoryLength:32784 atIndex:0];
    [e dispatchThreads:ONE threadsPerThreadgroup:ONE];
}
static void no_threads(void) { [with(@"fill") dispatchThreads:MTLSizeMake(0, 1, 1) threadsPerThreadgroup:ONE]; }
static void many_threads(void) { [with(@"fill") dispatchThreadgroups:ONE threadsPerThreadgroup:MTLSizeMake(1025, 1, 1)]; }
static void pop_group(void) { [encoder() popDebugGroup]; }
static void open_group(void) {
    id<MTLComputeCommandEncoder> e = encoder();
    [e pushDebugGroup:@"x"];
    [e endEncoding];
}
static void no_resources(void) { [encoder() memoryBarrierWithResources:NULL count:0]; }
static void dead_buffer(void) {
    id<MTLBuffer> b = floats(4, 0);
    [b release];
    [encoder() setBuffer:b offset:0 atIndex:0];
}

static id<MTLBlitCommandEncoder> blit(void) { return [[queue commandBuffer] blitCommandEncoder]; }
static void fill_far(void) { [blit() fillBuffer:floats(4, 0) range:NSMakeRange(8, 12) value:0]; }
static void fill_none(void) { [blit() fillBuffer:floats(4, 0) range:NSMakeRange(0, 0) value:0]; }
static void fill_odd(void) { [blit() fillBuffer:floats(4, 0) range:NSMakeRange(0, 3) value:0]; }
static void fill_nil(void) { [blit() fillBuffer:nil range:NSMakeRange(0, 4) value:0]; }
static void copy_far(void) { [blit() copyFromBuffer:floats(4, 0) sourceOffset:0 toBuffer:floats(2, 0) destinationOffset:0 size:16]; }
static void copy_odd(void) { [blit() copyFromBuffer:floats(4, 0) sourceOffset:0 toBuffer:floats(4, 0) destinationOffset:0 size:2]; }
static void copy_self(void) {
    id<MTLBuffer> b = floats(4, 0);
    [blit() copyFromBuffer:b sourceOffset:0 toBuffer:b destinationOffset:4 size:8];
}
static void copy_none(void) { [blit() copyFromBuffer:floats(4, 0) sourceOffset:0 toBuffer:floats(4, 0) destinationOffset:0 size:0]; }

static void managed(void) { [dev newBufferWithLength:4 options:MTLResourceStorageModeManaged]; }
static void bad_options(void) { [dev newBufferWithLength:4 options:1 << 12]; }
static void private_view(void) { [dev newBufferWithBytesNoCopy:(void *)16384 length:16384 options:MTLResourceStorageModePrivate deallocator:nil]; }
static void untracked(void) {
    id<MTLBuffer> b = [dev newBufferWithLength:128 options:MTLResourceHazardTrackingModeUntracked];
    id<MTLCommandBuffer> c = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
    put(e, b, 32, 1);
    finish(e, c);
}
static void written_bytes(void) {
    id<MTLCommandBuffer> c = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
    int i = 0;
    [e setComputePipelineState:pipeline(@"constants")];
    [e setBytes:&i length:4 atIndex:0];
    [e dispatchThreads:ONE threadsPerThreadgroup:ONE];
    finish(e, c);
}
static void behind_the_end(void) {
    id<MTLBuffer> b = floats(32, 0);
    b.label = @"short one";
    id<MTLCommandBuffer> c = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
    unsigned n = 33;
    [e setComputePipelineState:pipeline(@"beyond")];
    [e setBuffer:b offset:0 atIndex:0];
    [e setBytes:&n length:4 atIndex:1];
    [e dispatchThreads:ONE threadsPerThreadgroup:ONE];
    finish(e, c);
}
static void freed_too_early(void) {
    id<MTLBuffer> b = floats(32, 0);
    id<MTLCommandBuffer> c = [queue commandBufferWithUnretainedReferences];
    id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
    put(e, b, 32, 1);
    [e endEncoding];
    [b release];
    run(c);
}
static void freed_between(void) { // a new buffer may be at the same address
    id<MTLBuffer> b = floats(32, 0);
    MTLCommandBufferDescriptor *d = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
    d.retainedReferences = NO;
    id<MTLCommandBuffer> c = [queue commandBufferWithDescriptor:d];
    id<MTLBlitCommandEncoder> e = [c blitCommandEncoder];
    [e fillBuffer:b range:NSMakeRange(0, 128) value:0];
    [e endEncoding];
    [b release];
    floats(32, 0);
    run(c);
}
static void pipeline_freed(void) {
    id<MTLComputePipelineState> p = pipeline(@"constants");
    id<MTLCommandBuffer> c = [queue commandBufferWithUnretainedReferences];
    id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
    [e setComputePipelineState:p];
    [e setBuffer:floats(4, 0) offset:0 atIndex:0];
    [e dispatchThreads:ONE threadsPerThreadgroup:ONE];
    [e endEncoding];
    [p release];
    run(c);
}

static id<MTLResidencySet> set(void) {
    MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
    return [dev newResidencySetWithDescriptor:d error:NULL];
}
static void resident_freed(void) {
    id<MTLBuffer> b = floats(4, 0);
    [set() addAllocation:b];
    [b release];
}
static void resident_removed_uncommitted(void) {
    id<MTLBuffer> b = floats(4, 0);
    id<MTLResidencySet> s = set();
    [s addAllocation:b];
    [s commit];
    [s removeAllocation:b];
    [b release];
}
static void dead_allocation(void) { [set() addAllocation:nil]; }
static void end_residency(void) { [set() endResidency]; }
static void old_fast_math(void) { [[[[MTLCompileOptions alloc] init] autorelease] setFastMathEnabled:NO]; }
static void new_math_mode(void) {
	setenv("MTLSIM_MACOS", "14.5", 1);
	[[[[MTLCompileOptions alloc] init] autorelease] setMathMode:MTLMathModeSafe];
}
static void new_set(void) {
	setenv("MTLSIM_MACOS", "14.5", 1);
	set();
}
static void unknown_gpu(void) {
	setenv("MTLSIM_GPU", "fast", 1);
	[dev name];
}
static void no_descriptor(void) { [dev newResidencySetWithDescriptor:nil error:NULL]; }
static void remove_unknown_set(void) { [queue removeResidencySet:set()]; }
static void no_set(void) { [queue addResidencySet:nil]; }

static void constant_type(void) {
    MTLFunctionConstantValues *v = [[[MTLFunctionConstantValues alloc] init] autorelease];
    [v setConstantValue:"" type:(MTLDataType)999 atIndex:0];
}
static void no_source(void) { [dev newLibraryWithSource:nil options:nil error:NULL]; }
static void no_function(void) { [dev newComputePipelineStateWithFunction:nil error:NULL]; }
static void language(void) {
    MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
    o.languageVersion = (MTLLanguageVersion)(9 << 16);
    [dev newLibraryWithSource:@"" options:o error:NULL];
}

const struct test_case misuses[] = {
    {"blitCommandEncoder: an encoder of this command buffer is open", second_encoder},
    {"computeCommandEncoder: the command buffer is committed", committed_encoder},
    {"commit: an encoder is open", commit_open},
    {"commit: 1 debug groups are open", commit_group},
    {"commit: the command buffer is committed already", commit_twice},
    {"enqueue: the command buffer is enqueued already", enqueue_twice},
    {"waitUntilCompleted: the command buffer is not committed", wait_uncommitted},
    {"waitUntilScheduled: the command buffer is not committed", wait_unscheduled},
    {"addCompletedHandler: the command buffer is committed", late_handler},
    {"encodeSignalEvent: an encoder of this command buffer is open", event_inside},
    {"encodeSignalEvent: the value falls from 5 to 4", event_falls},
    {"an event command without an event", no_event},
    {"popDebugGroup without pushDebugGroup", pop_buffer_group},
    {"waitUntilCompleted: called from a handler", wait_in_handler},
    {"commandBuffer: all 64 are open and none is committed", too_many},
    {"newCommandQueueWithMaxCommandBufferCount: 0", queue_of_none},
    {"setBuffer: the encoder has ended", ended},
    {"an encoder was released without endEncoding", not_ended},
    {"dispatchThreads: no pipeline state is set", no_pipeline},
    {"setComputePipelineState: no pipeline", nil_pipeline},
    {"setBytes: 4097 bytes, the limit is 4096", long_bytes},
    {"setBytes: no bytes", empty_bytes},
    {"setBuffer: index 31, the last one is 30", high_index},
    {"setBuffer: offset 16 in a buffer of 16 bytes", far_offset},
    {"setBuffer: offset 2 is not a multiple of 4", odd_offset},
    {"setBufferOffset: no buffer is bound at index 3", no_buffer_offset},
    {"setBufferOffset: offset 400 in a buffer of 16 bytes", far_new_offset},
    {"setThreadgroupMemoryLength: 8 is not a multiple of 16", odd_memory},
    {"32784 bytes of threadgroup memory, the limit is 32768", much_memory},
    {"dispatchThreads of fill: a size is 0", no_threads},
    {"dispatchThreadgroups of fill: 1025 threads a threadgroup, the pipeline allows 1024", many_threads},
    {"popDebugGroup without pushDebugGroup / encoder", pop_group},
    {"endEncoding: 1 debug groups are open", open_group},
    {"memoryBarrierWithResources: no resources", no_resources},
    {"setBuffer: the buffer was released", dead_buffer},
    {"fillBuffer: 12 bytes at 8 in a buffer of 16", fill_far},
    {"fillBuffer: the range is empty", fill_none},
    {"fillBuffer: the range 0+3 is not made of multiples of 4", fill_odd},
    {"fillBuffer: no buffer", fill_nil},
    {"copyFromBuffer: 16 bytes from 0 of 16 to 0 of 8", copy_far},
    {"copyFromBuffer: 2 bytes from 0 to 0: all must be multiples of 4", copy_odd},
    {"copyFromBuffer: the ranges overlap", copy_self},
    {"copyFromBuffer: no bytes", copy_none},
    {"newBuffer: storage mode 1 is neither shared nor private", managed},
    {"newBuffer: options 1000", bad_options},
    {"newBufferWithBytesNoCopy: private storage", private_view},
    {"fill: untracked buffer '' is written; fences are not simulated", untracked},
    {"constants: the parameter at index 0 can be written, its argument is from setBytes", written_bytes},
    {"beyond: buffer 'short one' of 128 bytes was written 4 bytes behind its end", behind_the_end},
    {"fill: a buffer was released while a command buffer without references used it", freed_too_early},
    {"blit: a buffer was released while a command buffer without references used it", freed_between},
    {"the pipeline was released while a command buffer without references used it", pipeline_freed},
    {"is released while a residency set holds it", resident_freed},
    {"is released while a residency set holds it / removed, not committed", resident_removed_uncommitted},
    {"addAllocation: no living allocation", dead_allocation},
    {"endResidency without requestResidency", end_residency},
    {"fastMathEnabled is deprecated since macOS 15", old_fast_math},
    {"mathMode: macOS 14 does not have it", new_math_mode},
    {"newResidencySetWithDescriptor: macOS 14 does not have it", new_set},
    {"MTLSIM_GPU=fast", unknown_gpu},
    {"newResidencySetWithDescriptor: no descriptor", no_descriptor},
    {"removeResidencySet: the queue does not have this set", remove_unknown_set},
    {"addResidencySet: no set", no_set},
    {"setConstantValue: type 999", constant_type},
    {"newLibraryWithSource: no source", no_source},
    {"newComputePipelineStateWithFunction: no function", no_function},
    {"newLibraryWithSource: language version 90000", language},
    {NULL, NULL},
};
