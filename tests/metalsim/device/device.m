// The device, and the plain descriptor objects.
#import "sim.h"
#include <Block.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

NSString *const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
NSString *const MTLCommandBufferEncoderInfoErrorKey = @"MTLCommandBufferEncoderInfoErrorKey";
NSString *const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

// The kinds of GPU that MTLSIM_GPU names. Families: Apple's Metal feature set
// tables, where the M1 is of Apple7 and Metal3, the GPUs of Intel Macs are of Mac2
// and, from 2017 on, of Metal3. The virtual GPU of Apple's virtual machines, as on
// hosted macOS runners, calls itself Apple5 (github.com/JuliaGPU/Metal.jl/issues/309).
static const struct gpu {
	const char *kind, *name;
	MTLGPUFamily apple; // the newest Apple family, 0: none
	BOOL metal3;
} gpus[] = {
    {"apple7", "metalsim (CPU)", MTLGPUFamilyApple7, YES},
    {"intel", "Intel(R) UHD Graphics 630", 0, YES},
    {"paravirtual", "Apple Paravirtual device", MTLGPUFamilyApple5, NO},
};

static const struct gpu *gpu(void) {
	const char *kind = sim_env("MTLSIM_GPU", "apple7");
	for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
		if (!strcmp(gpus[i].kind, kind)) return &gpus[i];
	}
	sim_die("MTLSIM_GPU=%s: it is apple7, intel or paravirtual", kind);
}

// Limits of a Mac with M4 Pro and 64 GB, as MLX's device_info prints them. The
// largest buffer is three quarters of the default working set; raising the working
// set (sysctl iogpu.wired_limit_mb) does not raise it.
static const unsigned long workingSet = 55662788608ul, maxBuffer = 41747087360ul;

@implementation SimDevice

- (NSString *)name {
	return [NSString stringWithUTF8String:gpu()->name];
}
- (BOOL)hasUnifiedMemory {
    return YES;
}
- (MTLSize)maxThreadsPerThreadgroup {
    return MTLSizeMake(1024, 1024, 1024);
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return 32768;
}
- (NSUInteger)maxBufferLength {
	return sim_env_size("MTLSIM_MAX_BUFFER", maxBuffer);
}
- (NSUInteger)currentAllocatedSize {
    pthread_mutex_lock(&sim_mu);
    NSUInteger n = allocated;
    pthread_mutex_unlock(&sim_mu);
    return n;
}
- (uint64_t)recommendedMaxWorkingSetSize {
	return sim_env_size("MTLSIM_WORKING_SET", workingSet);
}

- (BOOL)supportsFamily:(MTLGPUFamily)f {
	if (f > 1000 && f < 2000) return f <= gpu()->apple;
	if (f == MTLGPUFamilyMetal3) return gpu()->metal3;
	return f == MTLGPUFamilyMac2 || (f > 3000 && f <= MTLGPUFamilyCommon3);
}

- (id<MTLCommandQueue>)newCommandQueue {
    return [self newCommandQueueWithMaxCommandBufferCount:64];
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)n {
    if (n == 0) sim_die("newCommandQueueWithMaxCommandBufferCount: 0");
    SimQueue *q = [[SimQueue alloc] init];
    q->device = self;
    q->limit = n;
    return q;
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)n options:(MTLResourceOptions)o {
    return sim_buffer(self, NULL, n, o);
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)p length:(NSUInteger)n options:(MTLResourceOptions)o {
    if (!p) sim_die("newBufferWithBytes: no bytes");
    SimBuffer *b = sim_buffer(self, NULL, n, o);
    if (b) memcpy(b->bytes, p, n);
    return b;
}

// Memory that does not consist of whole pages, of 16 KiB on Apple silicon, cannot be
// wrapped in a buffer, and the result is nil.
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)p
                                   length:(NSUInteger)n
                                  options:(MTLResourceOptions)o
                              deallocator:(void (^)(void *, NSUInteger))d {
    if ((o & 0xf0) == MTLResourceStorageModePrivate) sim_die("newBufferWithBytesNoCopy: private storage");
	const NSUInteger page = (NSUInteger)getpagesize();
	if (!p || (uintptr_t)p % page || n % page) return nil;
    SimBuffer *b = sim_buffer(self, p, n, o);
    if (b && d) b->deallocator = Block_copy(d);
    return b;
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error {
    if (!source) sim_die("newLibraryWithSource: no source");
    return sim_compile(source, options, error);
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)f error:(NSError **)error {
    (void)error;
    if (!f) sim_die("newComputePipelineStateWithFunction: no function");
    SimPipeline *p = [[SimPipeline alloc] init];
    p->function = (SimFunction *)[f retain];
    p->maxThreads = sim_env_size("MTLSIM_MAX_THREADS", 1024);
    sim_born(p);
    return p;
}

- (id<MTLEvent>)newEvent {
    return [self newSharedEvent];
}

- (id<MTLSharedEvent>)newSharedEvent {
    SimEvent *e = [[SimEvent alloc] init];
    sim_born(e);
    return e;
}

- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)d error:(NSError **)error {
    (void)error;
	sim_since(15, "newResidencySetWithDescriptor");
	if (!d) sim_die("newResidencySetWithDescriptor: no descriptor");
    SimResidencySet *s = [[SimResidencySet alloc] init];
    s->label = [d.label copy];
    s->device = self;
    return s;
}
@end

static SimDevice *device(void) {
    static SimDevice *d;
    pthread_mutex_lock(&sim_mu);
    if (!d) d = [[SimDevice alloc] init];
    pthread_mutex_unlock(&sim_mu);
    return d;
}

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
    return sim_env("MTLSIM_NO_DEVICE", NULL) ? nil : [device() retain];
}

NSArray *MTLCopyAllDevices(void) {
    return sim_env("MTLSIM_NO_DEVICE", NULL) ? [[NSArray alloc] init] : [[NSArray alloc] initWithObjects:device(), nil];
}

@implementation MTLCompileOptions
@synthesize preprocessorMacros, fastMathEnabled, mathMode, mathFloatingPointFunctions, languageVersion;
// The defaults of Apple silicon: relaxed math, fast functions.
- (id)init {
    if ((self = [super init])) {
        fastMathEnabled = YES;
		mathMode = MTLMathModeRelaxed;
		mathFloatingPointFunctions = MTLMathFloatingPointFunctionsFast;
		languageVersion = sim_macos() >= 15 ? MTLLanguageVersion3_2 : sim_macos() == 14 ? MTLLanguageVersion3_1
		                                                                                : MTLLanguageVersion3_0;
	}
    return self;
}
// Deprecated since macOS 15: NO is mathMode Safe with precise functions.
- (void)setFastMathEnabled:(BOOL)on {
	if (sim_macos() >= 15) sim_die("fastMathEnabled is deprecated since macOS 15: set mathMode");
	fastMathEnabled = on;
	mathMode = on ? MTLMathModeRelaxed : MTLMathModeSafe;
	mathFloatingPointFunctions = on ? MTLMathFloatingPointFunctionsFast : MTLMathFloatingPointFunctionsPrecise;
}
- (void)setMathMode:(MTLMathMode)m {
	sim_since(15, "mathMode");
	mathMode = m;
	fastMathEnabled = m != MTLMathModeSafe;
}
- (void)setMathFloatingPointFunctions:(MTLMathFloatingPointFunctions)f {
	sim_since(15, "mathFloatingPointFunctions");
	mathFloatingPointFunctions = f;
}
- (id)copyWithZone:(NSZone *)zone {
    MTLCompileOptions *o = [[MTLCompileOptions allocWithZone:zone] init];
    o.preprocessorMacros = preprocessorMacros;
	o->fastMathEnabled = fastMathEnabled;
	o->mathMode = mathMode;
	o->mathFloatingPointFunctions = mathFloatingPointFunctions;
	o.languageVersion = languageVersion;
    return o;
}
- (void)dealloc {
    [preprocessorMacros release];
    [super dealloc];
}
@end

@implementation MTLCommandBufferDescriptor
@synthesize retainedReferences, errorOptions;
- (id)init {
    if ((self = [super init])) retainedReferences = YES;
    return self;
}
- (id)copyWithZone:(NSZone *)zone {
    MTLCommandBufferDescriptor *d = [[MTLCommandBufferDescriptor allocWithZone:zone] init];
    d.retainedReferences = retainedReferences;
    d.errorOptions = errorOptions;
    return d;
}
@end

@implementation MTLResidencySetDescriptor
@synthesize label, initialCapacity;
- (id)copyWithZone:(NSZone *)zone {
    MTLResidencySetDescriptor *d = [[MTLResidencySetDescriptor allocWithZone:zone] init];
    d.label = label;
    d.initialCapacity = initialCapacity;
    return d;
}
- (void)dealloc {
    [label release];
    [super dealloc];
}
@end

@implementation SimConstant
- (void)dealloc {
    [name release];
    [super dealloc];
}
@end

static unsigned long constant_size(MTLDataType t) {
    switch (t) {
    case MTLDataTypeBool:
    case MTLDataTypeChar:
    case MTLDataTypeUChar: return 1;
    case MTLDataTypeHalf:
    case MTLDataTypeShort:
    case MTLDataTypeUShort: return 2;
    case MTLDataTypeFloat:
    case MTLDataTypeInt:
    case MTLDataTypeUInt: return 4;
    }
    sim_die("setConstantValue: type %lu", (unsigned long)t);
}

@implementation MTLFunctionConstantValues
- (id)init {
    if ((self = [super init])) values = [[NSMutableArray alloc] init];
    return self;
}
- (void)dealloc {
    [values release];
    [super dealloc];
}
- (id)copyWithZone:(NSZone *)zone {
    MTLFunctionConstantValues *v = [[MTLFunctionConstantValues allocWithZone:zone] init];
    [v->values setArray:values];
    return v;
}
- (void)add:(const void *)v type:(MTLDataType)t index:(NSUInteger)i name:(NSString *)n {
    SimConstant *c = [[[SimConstant alloc] init] autorelease];
    c->type = t;
    c->size = constant_size(t);
    memcpy(c->value, v, c->size);
    c->index = i;
    c->name = [n copy];
    [values addObject:c];
}
- (void)setConstantValue:(const void *)v type:(MTLDataType)t atIndex:(NSUInteger)i {
    if (i > 65535) sim_die("setConstantValue: index %lu", (unsigned long)i);
    [self add:v type:t index:i name:nil];
}
- (void)setConstantValue:(const void *)v type:(MTLDataType)t withName:(NSString *)n {
    if (!n) sim_die("setConstantValue: no name");
    [self add:v type:t index:0 name:n];
}
- (void)setConstantValues:(const void *)v type:(MTLDataType)t withRange:(NSRange)r {
    for (NSUInteger i = 0; i < r.length; i++) [self add:(const char *)v + i * constant_size(t) type:t index:r.location + i name:nil];
}
- (void)reset {
    [values removeAllObjects];
}
@end
