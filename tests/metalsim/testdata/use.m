// What works, and what fails as documented by Metal.
#include "driver.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static BOOL lazy(void) { return !strcmp(getenv("MTLSIM_MODE") ?: "", "lazy"); }
static unsigned long seed(void) { return strtoul(getenv("MTLSIM_SEED") ?: "0", NULL, 10); }
static unsigned char byte(id<MTLBuffer> b) { return *(unsigned char *)[b contents]; }

static void facts(void) {
    CHECK([[dev name] length] > 0 && dev.hasUnifiedMemory && dev.maxBufferLength >= 1u << 30);
    CHECK(dev.maxThreadgroupMemoryLength == 32768 && dev.maxThreadsPerThreadgroup.width == 1024 && dev.recommendedMaxWorkingSetSize > 0);
    CHECK([dev supportsFamily:MTLGPUFamilyApple7] && [dev supportsFamily:MTLGPUFamilyMetal3] && ![dev supportsFamily:MTLGPUFamilyApple9]);
    NSArray *all = MTLCopyAllDevices();
    CHECK([all count] == 1 && [all objectAtIndex:0] == dev);
    id<MTLComputePipelineState> p = pipeline(@"fill");
    CHECK(p.threadExecutionWidth == 32 && p.maxTotalThreadsPerThreadgroup == 1024);
    CHECK([[library() functionNames] containsObject:@"reverse"]);
    if (@available(macOS 15.0, *)) {
    } else {
        CHECK(0);
    }
}

static void memory(void) {
    NSUInteger before = dev.currentAllocatedSize;
    id<MTLBuffer> b = [dev newBufferWithLength:100 options:MTLResourceStorageModeShared];
    CHECK(b.length == 100 && byte(b) == 0xAA && dev.currentAllocatedSize == before + 16384);
    b.label = @"name";
    CHECK([b.label isEqualToString:@"name"] && b.storageMode == MTLStorageModeShared);
    char *p = [b contents];
    (void)p;
    [b release];
    CHECK(dev.currentAllocatedSize == before);
    CHECK([dev newBufferWithLength:0 options:0] == nil);
    id<MTLBuffer> c = [dev newBufferWithBytes:"abcd" length:4 options:0];
    CHECK(byte(c) == 'a');

    id<MTLBuffer> hidden = [dev newBufferWithLength:64 options:MTLResourceStorageModePrivate];
    CHECK([hidden contents] == NULL && hidden.storageMode == MTLStorageModePrivate);
    id<MTLBuffer> from = floats(16, 7), to = floats(16, 0);
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLBlitCommandEncoder> e = [cb blitCommandEncoder];
    [e copyFromBuffer:from sourceOffset:0 toBuffer:hidden destinationOffset:0 size:64];
    [e copyFromBuffer:hidden sourceOffset:8 toBuffer:to destinationOffset:0 size:32];
    [e fillBuffer:to range:NSMakeRange(32, 32) value:1];
    finish(e, cb);
    CHECK(at(to)[0] == 7 && at(to)[7] == 7 && ((int *)at(to))[8] == 0x01010101);
}

static void views(void) {
    static int freed;
    char *p;
    CHECK(posix_memalign((void **)&p, 16384, 65536) == 0);
    CHECK([dev newBufferWithBytesNoCopy:p + 2048 length:16384 options:0 deallocator:nil] == nil);
    CHECK([dev newBufferWithBytesNoCopy:p length:2048 options:0 deallocator:nil] == nil);
	CHECK(getpagesize() == 16384);
	CHECK([dev newBufferWithBytesNoCopy:p + 4096 length:16384 options:0 deallocator:nil] == nil);
    CHECK([dev newBufferWithBytesNoCopy:p length:4096 options:0 deallocator:nil] == nil);
    setenv("MTLSIM_MAX_BUFFER", "32768", 1);
    CHECK(dev.maxBufferLength == 32768 && [dev newBufferWithBytesNoCopy:p length:65536 options:0 deallocator:nil] == nil);
    CHECK([dev newBufferWithLength:32769 options:0] == nil);
    unsetenv("MTLSIM_MAX_BUFFER");
    id<MTLBuffer> b = [dev newBufferWithBytesNoCopy:p
                                             length:65536
                                            options:0
                                        deallocator:^(void *q, NSUInteger n) {
                                          freed = q == p && n == 65536;
                                          free(q);
                                        }];
    CHECK([b contents] == p);
    [b release];
    CHECK(freed);
}

static void order(void) { // serial encoders run in order, whatever the seed
    id<MTLBuffer> a = floats(64, 0), b = floats(64, 0);
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [cb computeCommandEncoder];
    put(e, a, 64, 3);
    add_one(e, a, b, 64);
    add_one(e, b, a, 64);
    [e endEncoding];
    e = [cb computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    CHECK(e.dispatchType == MTLDispatchTypeConcurrent);
    add_one(e, a, b, 64);
    [e memoryBarrierWithScope:MTLBarrierScopeBuffers];
    add_one(e, b, a, 64);
    [e endEncoding];
    [cb commit];
    if (lazy()) {
        CHECK(at(a)[0] == 0 && cb.status < MTLCommandBufferStatusCompleted);
    }
    [cb waitUntilCompleted];
    CHECK(cb.status == MTLCommandBufferStatusCompleted && cb.error == nil && cb.GPUEndTime >= cb.GPUStartTime && cb.GPUStartTime > 0);
    CHECK(at(a)[0] == 7 && at(a)[63] == 7);
}

// A missing barrier in a concurrent encoder: certain to show with seed 1.
static void no_barrier(void) {
    id<MTLBuffer> a = floats(64, 0), b = floats(64, 0);
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [cb computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    put(e, a, 64, 3);
    add_one(e, a, b, 64);
    finish(e, cb);
    if (seed() == 0) CHECK(at(b)[0] == 4);
    if (seed() == 1) CHECK(at(b)[0] == 1);
}

// A barrier for one buffer orders only those that share it.
static void narrow_barrier(void) {
    id<MTLBuffer> a = floats(64, 0), b = floats(64, 0), c = floats(64, 0), d = floats(64, 0);
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [cb computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    put(e, a, 64, 3);
    put(e, c, 64, 3);
    [e memoryBarrierWithResources:(const id<MTLResource>[]){ a } count:1];
    add_one(e, a, b, 64);
    add_one(e, c, d, 64);
    finish(e, cb);
    CHECK(at(b)[0] == 4);
    if (seed() == 1) CHECK(at(d)[0] == 1);
}

static void handlers(void) {
    static int done, planned;
    id<MTLBuffer> a = floats(32, 0);
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [cb computeCommandEncoder];
    put(e, a, 32, 1);
    [e endEncoding];
    [cb addScheduledHandler:^(id<MTLCommandBuffer> b) { planned = b.status == MTLCommandBufferStatusScheduled; }];
    [cb addCompletedHandler:^(id<MTLCommandBuffer> b) { done = b.status == MTLCommandBufferStatusCompleted && at(a)[0] == 1; }];
    [cb commit];
    [cb waitUntilScheduled];
    if (lazy()) CHECK(!done);
    [cb waitUntilCompleted];
    CHECK(done && planned);
}

static void polling(void) { // polling often enough counts as waiting
    id<MTLSharedEvent> ev = [dev newSharedEvent];
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    [cb encodeSignalEvent:ev value:3];
    [cb commit];
    if (lazy()) CHECK(ev.signaledValue == 0);
    for (int i = 0; ev.signaledValue != 3; i++) {
        CHECK(i < 20000);
        usleep(100);
    }
}

static void events(void) { // a queue that waits does not block another one
    id<MTLSharedEvent> ev = [dev newSharedEvent];
    id<MTLCommandQueue> other = [dev newCommandQueue];
    id<MTLBuffer> a = floats(32, 0), b = floats(32, 0);
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [other commandBuffer];
    [first encodeWaitForEvent:ev value:1];
    id<MTLComputeCommandEncoder> e = [first computeCommandEncoder];
    add_one(e, a, b, 32);
    [e endEncoding];
    [first encodeSignalEvent:ev value:2];
    [first commit];
    e = [second computeCommandEncoder];
    put(e, a, 32, 5);
    [e endEncoding];
    [second encodeSignalEvent:ev value:1];
    CHECK(![ev waitUntilSignaledValue:1 timeoutMS:20]);
    [second commit];
    CHECK([ev waitUntilSignaledValue:2 timeoutMS:20000]);
    CHECK(at(b)[0] == 6);
    ev.signaledValue = 10;
    CHECK([ev waitUntilSignaledValue:10 timeoutMS:0]);
}

static void enqueued(void) { // the order of execution is that of enqueue
    id<MTLBuffer> a = floats(32, 0);
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    [first enqueue];
    CHECK(first.status == MTLCommandBufferStatusEnqueued);
    id<MTLComputeCommandEncoder> e = [second computeCommandEncoder];
    put(e, a, 32, 2);
    [e endEncoding];
    [second commit];
    e = [first computeCommandEncoder];
    put(e, a, 32, 1);
    [e endEncoding];
    [first commit];
    [second waitUntilCompleted];
    CHECK(at(a)[0] == 2);
}

static void many(void) { // more than a queue holds: the 65th waits
    id<MTLBuffer> a = floats(32, 0), b = floats(32, 0);
    id<MTLCommandBuffer> last = nil;
    for (int i = 0; i < 200; i++) {
        last = [queue commandBuffer];
        id<MTLComputeCommandEncoder> e = [last computeCommandEncoder];
        add_one(e, a, b, 32);
        add_one(e, b, a, 32);
        [e endEncoding];
        [last commit];
    }
    [last waitUntilCompleted];
    CHECK(at(a)[0] == 400);
}

static void failing(void) { // MTLSIM_FAIL=bad:2
    id<MTLSharedEvent> ev = [dev newSharedEvent];
    MTLCommandBufferDescriptor *d = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
    d.errorOptions = MTLCommandBufferErrorOptionEncoderExecutionStatus;
    for (int i = 0; i < 3; i++) {
        id<MTLBuffer> a = floats(32, 0), b = floats(32, 0);
        id<MTLCommandBuffer> cb = [queue commandBufferWithDescriptor:d];
        cb.label = @"the bad one";
        id<MTLComputeCommandEncoder> e = [cb computeCommandEncoder];
        e.label = @"first";
        put(e, a, 32, 1);
        [e endEncoding];
        e = [cb computeCommandEncoder];
        e.label = @"second";
        [e pushDebugGroup:@"op"];
        put(e, b, 32, 1);
        [e popDebugGroup];
        [e endEncoding];
        [cb encodeSignalEvent:ev value:(uint64_t)i + 1];
        run(cb);
        CHECK(cb.status == (i == 1 ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted));
        CHECK(ev.signaledValue == (i == 1 ? 1 : (uint64_t)i + 1));
        if (i != 1) continue;
        CHECK(at(a)[0] == 1 && at(b)[0] == 0);
        CHECK([cb.error.domain isEqualToString:MTLCommandBufferErrorDomain] && cb.error.code == MTLCommandBufferErrorTimeout);
        NSArray *infos = [cb.error.userInfo objectForKey:MTLCommandBufferEncoderInfoErrorKey];
        id<MTLCommandBufferEncoderInfo> one = [infos objectAtIndex:0], two = [infos objectAtIndex:1];
        CHECK(one.errorState == MTLCommandEncoderErrorStateCompleted && two.errorState == MTLCommandEncoderErrorStateFaulted);
        CHECK([two.label isEqualToString:@"second"] && [[two.debugSignposts objectAtIndex:0] isEqualToString:@"op"]);
    }
}

static NSString *problem(NSString *kernel, NSUInteger threads, NSUInteger tg) {
    id<MTLBuffer> b = floats(4096, 1);
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [cb computeCommandEncoder];
    [e setComputePipelineState:pipeline(kernel)];
    [e setBuffer:b offset:0 atIndex:0];
    if (tg) [e setThreadgroupMemoryLength:tg atIndex:0];
    [e dispatchThreadgroups:ONE threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
    finish(e, cb);
    return cb.error ? [cb.error localizedDescription] : nil;
}
static BOOL says(NSString *s, NSString *part) {
    if (s && [s rangeOfString:part].location != NSNotFound) return YES;
    fprintf(stderr, "'%s' lacks '%s'\n", [s UTF8String], [part UTF8String]);
    return NO;
}

static void kernels(void) { // what the runtime finds in kernels
    CHECK(problem(@"reverse", 64, 256) == nil);
    CHECK(says(problem(@"reverse", 64, 0), @"setThreadgroupMemoryLength missing at index 0"));
    CHECK(problem(@"fixed", 64, 16384) == nil && pipeline(@"fixed").staticThreadgroupMemoryLength == 16384);
    CHECK(says(problem(@"fixed", 64, 16400), @"16384 bytes of static and 16400 of dynamic threadgroup memory"));
    CHECK(says(problem(@"some_barrier", 64, 0), @"reached by 5 threads of 64"));
    CHECK(says(problem(@"two_barriers", 64, 0), @"different threadgroup_barriers"));
    CHECK(says(problem(@"divergent", 64, 0), @"divergent control flow"));
    CHECK(says(problem(@"fill", 32, 0), @"buffer 0 is bound") || says(problem(@"fill", 32, 0), @"no buffer is bound at index 1"));
}

static void constants(void) {
    NSError *e = nil;
    CHECK([library() newFunctionWithName:@"none"] == nil);
    MTLFunctionConstantValues *v = [[[MTLFunctionConstantValues alloc] init] autorelease];
    CHECK([library() newFunctionWithName:@"none" constantValues:v error:&e] == nil && e.code == MTLLibraryErrorFunctionNotFound);
    CHECK([library() newFunctionWithName:@"scale"] == nil);
    CHECK([library() newFunctionWithName:@"scale" constantValues:v error:&e] == nil && says([e localizedDescription], @"needs a value for function constant twice"));
    float wrong = 1;
    [v setConstantValue:&wrong type:MTLDataTypeFloat atIndex:0];
    CHECK([library() newFunctionWithName:@"scale" constantValues:v error:&e] == nil && says([e localizedDescription], @"type"));
    [v reset];
    BOOL yes = YES;
    int nine = 9;
    [v setConstantValue:&yes type:MTLDataTypeBool withName:@"twice"];
    CHECK([library() newFunctionWithName:@"scale" constantValues:v error:&e]);
    id<MTLFunction> f[2] = { [library() newFunctionWithName:@"constants"], nil };
    [v setConstantValue:&nine type:MTLDataTypeInt atIndex:1];
    f[1] = [library() newFunctionWithName:@"constants" constantValues:v error:&e];
    for (int i = 0; i < 2; i++) {
        id<MTLBuffer> b = floats(4, 0);
        id<MTLCommandBuffer> cb = [queue commandBuffer];
        id<MTLComputeCommandEncoder> en = [cb computeCommandEncoder];
        [en setComputePipelineState:[dev newComputePipelineStateWithFunction:f[i] error:NULL]];
        [en setBuffer:b offset:0 atIndex:0];
        [en dispatchThreads:ONE threadsPerThreadgroup:ONE];
        finish(en, cb);
        CHECK(*(int *)[b contents] == (i ? 9 : 5));
    }
}

static void sources(void) {
    NSError *e = nil;
    MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
    NSString *s = @"#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float *a [[buffer(0)]]) {\n  a[0] = isfinite(a[1]) ? NAME : gone(1);\n}\n";
	CHECK(o.mathMode == MTLMathModeRelaxed && o.mathFloatingPointFunctions == MTLMathFloatingPointFunctionsFast);
	o.mathMode = MTLMathModeFast;
	CHECK([dev newLibraryWithSource:s options:o error:&e] == nil && e.code == MTLLibraryErrorCompileFailure);
    CHECK(says([e localizedDescription], @":4:") && says([e localizedDescription], @"fast math") && says([e localizedDescription], @"gone"));
	o.mathMode = MTLMathModeSafe;
	o.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
	CHECK(!o.fastMathEnabled && ((MTLCompileOptions *)[[o copy] autorelease]).mathMode == MTLMathModeSafe);
	o.preprocessorMacros = @{ @"NAME" : @"1.0f + (' ' == 32)", @"gone" : @"float" };
    o.languageVersion = MTLLanguageVersion3_0;
    CHECK([dev newLibraryWithSource:s options:o error:&e]);
    CHECK([dev newLibraryWithSource:@"kernel void k(device bfloat *a [[buffer(0)]]) { a[0] = 0; }" options:o error:&e] == nil);
}

static void refusals(void) { // each gets the compiler's output to the last line
    NSString *s = @"kernel void k(device float *a [[buffer(0)]]) { a[0] = absent_name; }";
    const char *times = getenv("DRIVER_TIMES");
    for (int i = 0; i < (times ? atoi(times) : 1); i++) {
        NSError *e = nil;
        CHECK([dev newLibraryWithSource:s options:nil error:&e] == nil);
        CHECK(says([e localizedDescription], @"absent_name") && says([e localizedDescription], @"1 error generated."));
    }
}

static void older(void) { // macOS 14, and an Intel Mac
	setenv("MTLSIM_MACOS", "14.5", 1);
	MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
	CHECK(o.languageVersion == MTLLanguageVersion3_1 && [[NSProcessInfo processInfo] operatingSystemVersion].minorVersion == 5);
	o.fastMathEnabled = NO;
	CHECK(o.mathMode == MTLMathModeSafe && o.mathFloatingPointFunctions == MTLMathFloatingPointFunctionsPrecise);
	CHECK([dev supportsFamily:MTLGPUFamilyApple7] && ![dev supportsFamily:MTLGPUFamilyApple8] && [dev supportsFamily:MTLGPUFamilyMetal3]);
	setenv("MTLSIM_GPU", "intel", 1);
	CHECK(![dev supportsFamily:MTLGPUFamilyApple5] && [dev supportsFamily:MTLGPUFamilyMac2] && [dev supportsFamily:MTLGPUFamilyMetal3]);
	setenv("MTLSIM_GPU", "paravirtual", 1);
	CHECK([dev supportsFamily:MTLGPUFamilyApple5] && ![dev supportsFamily:MTLGPUFamilyApple7]);
	CHECK(dev.maxBufferLength < dev.recommendedMaxWorkingSetSize);
}

extern uint64_t sim_count(const char *what);
extern void sim_idle(void);

static void idle(void) { // memory of a set is unwired unless it is requested or used
	id<MTLResidencySet> s = [dev newResidencySetWithDescriptor:[[[MTLResidencySetDescriptor alloc] init] autorelease] error:NULL];
	id<MTLBuffer> b = floats(16, 0);
	[s addAllocation:b];
	[s commit];
	[s requestResidency];
	CHECK(sim_count("wired") == 16384 && sim_count("requests") == 1);
	sim_idle(); // it was requested in this period
	[s requestResidency];
	sim_idle();
	CHECK(sim_count("expired") == 0 && sim_count("wired") == 16384);
	sim_idle();
	CHECK(sim_count("expired") == 1);
	[queue addResidencySet:s];
	id<MTLCommandBuffer> cb = [queue commandBuffer];
	run(cb);
	CHECK(sim_count("wired") == 2 * 16384);
	sim_idle(); // it was used in this period
	CHECK(sim_count("expired") == 1);
	[queue removeResidencySet:s];
	[s removeAllAllocations];
	[s commit];
	[b release];
	[s release];
}

static void residency(void) {
    MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
    d.label = @"weights";
    d.initialCapacity = 4;
    id<MTLResidencySet> s = [dev newResidencySetWithDescriptor:d error:NULL];
    id<MTLBuffer> b = floats(16, 0);
    [s addAllocation:b];
    CHECK(![s containsAllocation:b] && s.allocationCount == 0);
    [s commit];
    CHECK([s containsAllocation:b] && s.allocationCount == 1 && s.allocatedSize == 16384 && [s.label isEqualToString:@"weights"]);
    [s requestResidency];
    [queue addResidencySet:s];
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    [cb useResidencySet:s];
    run(cb);
    [queue removeResidencySet:s];
    [s endResidency];
    [s removeAllAllocations];
    [s commit];
    [b release];
    [s release];
}

static void race(void) { // what only a race detector is certain to see
    NSError *e = nil;
    MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
    o.preprocessorMacros = @{ @"NO_BARRIER" : @"1" };
    NSString *s = [NSString stringWithContentsOfFile:[NSString stringWithUTF8String:getenv("DRIVER_SOURCE")] encoding:NSUTF8StringEncoding error:NULL];
    id<MTLFunction> f = [[dev newLibraryWithSource:s options:o error:&e] newFunctionWithName:@"reverse"];
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> en = [cb computeCommandEncoder];
    [en setComputePipelineState:[dev newComputePipelineStateWithFunction:f error:NULL]];
    [en setBuffer:floats(64, 1) offset:0 atIndex:0];
    [en setThreadgroupMemoryLength:256 atIndex:0];
    [en dispatchThreadgroups:ONE threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
    finish(en, cb);
    CHECK(cb.error == nil);
}

// MTLSIM_LATENCY=8000,4000,2000: each call takes at least what it is charged, and a poll of an
// event or a wait for what has happened nothing.
static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
static void latency(void) {
    id<MTLBuffer> a = floats(32, 0), b = floats(32, 0);
    id<MTLSharedEvent> event = [dev newSharedEvent], other = [dev newSharedEvent];
    id<MTLCommandBuffer> cb = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [cb computeCommandEncoder];
    double began = milliseconds();
    add_one(e, a, b, 32);
    CHECK(milliseconds() - began >= 2);
    [e endEncoding];
    [cb encodeWaitForEvent:other value:1]; // so that the first wait sleeps
    [cb encodeSignalEvent:event value:1];
    began = milliseconds();
    [cb commit];
    CHECK(milliseconds() - began >= 4);
    began = milliseconds();
    CHECK(![event waitUntilSignaledValue:1 timeoutMS:1]);
    CHECK(milliseconds() - began >= 8);
    other.signaledValue = 1;
    (void)[event waitUntilSignaledValue:1 timeoutMS:60000];
    [cb waitUntilCompleted];
    CHECK(event.signaledValue == 1 && cb.GPUEndTime >= cb.GPUStartTime && cb.GPUStartTime > 0);
}

static void limits(void) { // MTLSIM_MAX_THREADS=512
    CHECK(pipeline(@"fill").maxTotalThreadsPerThreadgroup == 512);
}

const struct test_case uses[] = {
    {"facts", facts},
    {"memory", memory},
    {"views", views},
    {"order", order},
    {"no barrier", no_barrier},
    {"narrow barrier", narrow_barrier},
    {"handlers", handlers},
    {"polling", polling},
    {"events", events},
    {"enqueued", enqueued},
    {"many", many},
    {"failing", failing},
    {"kernels", kernels},
    {"constants", constants},
    {"sources", sources},
    {"refusals", refusals},
    {"residency", residency},
    {"older", older},
    {"idle", idle},
    {"limits", limits},
    {"latency", latency},
    {"race", race},
    {NULL, NULL},
};
