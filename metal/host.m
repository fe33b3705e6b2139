//go:build (darwin && cgo) || metalsim

// The host code, in manual retain and release: objects from methods named new* or
// alloc* are owned, all others are autoreleased.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "residency.h"

enum { MAX_LIBRARIES = 32 };

struct rmm_device {
	rmg_device base; // first: package gpu has a pointer to it
	id<MTLDevice> device;
	id<MTLCommandQueue> queue;
	NSInteger macos;          // major version of the system
	rmm_residency *residency; // of all buffers, or NULL where the system has no residency sets
	id<MTLLibrary> libraries[MAX_LIBRARIES];
	int library_count;
	NSMutableArray *pipelines; // of id<MTLComputePipelineState>
	NSMutableArray *running;   // of id<MTLCommandBuffer>: committed, not yet waited for
	MTLCommandBufferDescriptor *descriptor; // for every command buffer
	id<MTLSharedEvent> event;  // signalled by each command buffer, in order
	uint64_t signalled;        // value that the last one will signal
	id<MTLCommandBuffer> encoded; // not committed yet, owned
	BOOL named;                // ops are named for Apple's tools
	double busy;               // seconds on the GPU of those that were waited for
};

static void set_error(char *error, size_t size, NSString *what, NSError *e) {
	NSString *text = e ? [NSString stringWithFormat:@"%@: %@", what, [e localizedDescription]] : what;
	const char *utf8 = [text UTF8String];
	if (size == 0) return;
	strncpy(error, utf8 ? utf8 : "unknown error", size - 1);
	error[size - 1] = 0;
}

static NSString *string(const char *s) {
	return [NSString stringWithUTF8String:s];
}

// The oldest macOS: the one before residency sets, which the backend does without
// there. MLX has the same limit.
enum { OLDEST_MACOS = 14 };

// unsuitable says why the kernels cannot run on the device and system, or returns
// nil. SIMD-group matrices and reductions are of family Apple7, the M1, and later
// (Apple's Metal feature set tables); no GPU of an Intel Mac has them.
static NSString *unsuitable(id<MTLDevice> device, NSOperatingSystemVersion system) {
	if (system.majorVersion < OLDEST_MACOS) {
		return [NSString stringWithFormat:@"macOS %ld.%ld is too old: the kernels need macOS %d or later. Update macOS, or use --backend cpu",
		                                  (long)system.majorVersion, (long)system.minorVersion, OLDEST_MACOS];
	}
	if (device == nil) return @"the system has no Metal device; use --backend cpu";
	if (![device supportsFamily:MTLGPUFamilyApple7] || ![device supportsFamily:MTLGPUFamilyMetal3]) {
		return [NSString stringWithFormat:@"the GPU \"%@\" cannot run the kernels: they need the SIMD-group matrices of GPU family Apple7 (M1 or later) with Metal 3; use --backend cpu",
		                                  device.name];
	}
	return nil;
}

static rmg_buffer alloc_buffer(rmg_device *d, uint64_t n, int host);
static rmg_buffer wrap_memory(rmg_device *d, void *memory, uint64_t n);
static void release_buffer(rmg_device *d, rmg_buffer b);
static int encode(rmg_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size);
static int commit(rmg_device *d, char *error, size_t size);
static void drop(rmg_device *d);
static int wait_for_all(rmg_device *d, rmg_wait_policy policy, char *error, size_t size);
static int busy(rmg_device *d, uint64_t *ns);

static const rmg_driver driver = {
    .alloc = alloc_buffer, .wrap = wrap_memory, .release = release_buffer, .encode = encode, .commit = commit, .drop = drop, .wait = wait_for_all, .busy = busy};

// wants_names reports whether Apple's validation or capture of Metal is on, by its own
// variables. Names of ops and a status for each encoder cost the driver time in every command
// buffer (the reason why mtld3d, in its pull request 579, leaves out the latter).
static BOOL wants_names(void) {
	static const char *const variables[] = {"MTL_DEBUG_LAYER", "MTL_SHADER_VALIDATION", "MTL_CAPTURE_ENABLED"};
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
		const char *value = getenv(variables[i]);
		if (value != NULL && *value != 0 && strcmp(value, "0") != 0) return YES;
	}
	return NO;
}

rmm_device *rmm_open(rmm_info *info, rmm_keep keep, char *error, size_t size) {
	@autoreleasepool {
		memset(info, 0, sizeof *info);
		NSOperatingSystemVersion system = [[NSProcessInfo processInfo] operatingSystemVersion];
		id<MTLDevice> device = MTLCreateSystemDefaultDevice();
		NSString *why = unsuitable(device, system);
		if (why != nil) {
			info->unsuitable = 1;
			set_error(error, size, why, nil);
			[device release];
			return NULL;
		}
		id<MTLCommandQueue> queue = [device newCommandQueue];
		rmm_device *m = queue == nil ? NULL : calloc(1, sizeof *m);
		if (m == NULL) {
			set_error(error, size, @"no memory for a command queue", nil);
			[queue release];
			[device release];
			return NULL;
		}
		m->base.driver = &driver;
		m->device = device;
		m->queue = queue;
		m->macos = system.majorVersion;
		m->pipelines = [[NSMutableArray alloc] init];
		m->running = [[NSMutableArray alloc] init];
		m->event = [device newSharedEvent];
		// The Go side keeps buffers alive while they are in use, so command
		// buffers need not retain them.
		m->descriptor = [[MTLCommandBufferDescriptor alloc] init];
		m->descriptor.retainedReferences = NO;
		m->named = wants_names();
		if (m->named) m->descriptor.errorOptions = MTLCommandBufferErrorOptionEncoderExecutionStatus;
		if (@available(macOS 15.0, *)) {
			// Before macOS 15 each command buffer makes resident what it uses.
			if (m->macos >= 15) {
				m->residency = rmm_residency_open(device, queue, keep.renew_ms, keep.keep_ms);
				if (m->residency == NULL) {
					set_error(error, size, @"no memory for a residency set", nil);
					rmm_close(m);
					return NULL;
				}
			}
		}
		strncpy(info->name, [device.name UTF8String], sizeof info->name - 1);
		info->max_buffer = device.maxBufferLength;
		info->working_set = device.recommendedMaxWorkingSetSize;
		info->page = (uint64_t)getpagesize();
		info->threadgroup_max = (uint32_t)device.maxThreadgroupMemoryLength;
		return m;
	}
}

void rmm_close(rmm_device *m) {
	@autoreleasepool {
		[m->running release];
		[m->event release];
		[m->descriptor release];
		[m->pipelines release];
		for (int i = 0; i < m->library_count; i++) [m->libraries[i] release];
		if (@available(macOS 15.0, *)) {
			if (m->residency != NULL) rmm_residency_close(m->residency);
		}
		[m->queue release];
		[m->device release];
		free(m);
	}
}

// no_fast_math selects IEEE arithmetic and precise functions, since results must
// agree with other backends.
static void no_fast_math(rmm_device *m, MTLCompileOptions *options) {
	if (@available(macOS 15.0, *)) {
		if (m->macos >= 15) {
			options.mathMode = MTLMathModeSafe;
			options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
			return;
		}
	}
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
	options.fastMathEnabled = NO;
#pragma clang diagnostic pop
}

int rmm_library(rmm_device *m, const char *name, const char *source, char *error, size_t size) {
	@autoreleasepool {
		if (m->library_count == MAX_LIBRARIES) {
			set_error(error, size, @"too many libraries", nil);
			return -1;
		}
		MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
		no_fast_math(m, options);
		NSError *e = nil;
		id<MTLLibrary> library = [m->device newLibraryWithSource:string(source) options:options error:&e];
		if (library == nil) {
			set_error(error, size, [NSString stringWithFormat:@"the kernels of %s do not compile", name], e);
			return -1;
		}
		m->libraries[m->library_count] = library;
		return m->library_count++;
	}
}

int rmm_pipeline(rmm_device *m, int library, const char *kernel, uint32_t *threads, char *error, size_t size) {
	@autoreleasepool {
		id<MTLFunction> function = [m->libraries[library] newFunctionWithName:string(kernel)];
		if (function == nil) {
			set_error(error, size, [NSString stringWithFormat:@"there is no kernel %s", kernel], nil);
			return -1;
		}
		NSError *e = nil;
		id<MTLComputePipelineState> p = [m->device newComputePipelineStateWithFunction:function error:&e];
		[function release];
		if (p == nil) {
			set_error(error, size, [NSString stringWithFormat:@"kernel %s cannot be used", kernel], e);
			return -1;
		}
		*threads = (uint32_t)p.maxTotalThreadsPerThreadgroup;
		[m->pipelines addObject:p];
		[p release];
		return (int)[m->pipelines count] - 1;
	}
}

// make_resident adds a new buffer, or nil, to the residency set.
static rmg_buffer make_resident(rmm_device *m, id<MTLBuffer> b) {
	rmg_buffer r = {NULL, NULL, 0};
	if (b == nil) return r;
	if (@available(macOS 15.0, *)) {
		if (m->residency != NULL) rmm_residency_add(m->residency, b);
	}
	r.object = (void *)b;
	r.contents = [b contents];
	r.length = b.length;
	return r;
}

static rmg_buffer alloc_buffer(rmg_device *d, uint64_t n, int host) {
	rmm_device *m = (rmm_device *)d;
	(void)host; // shared storage is in the caches of both
	@autoreleasepool {
		rmg_buffer b = make_resident(m, [m->device newBufferWithLength:n options:MTLResourceStorageModeShared]);
		if (b.contents != NULL) memset(b.contents, 0, n);
		return b;
	}
}

static rmg_buffer wrap_memory(rmg_device *d, void *memory, uint64_t n) {
	rmm_device *m = (rmm_device *)d;
	@autoreleasepool {
		return make_resident(m, [m->device newBufferWithBytesNoCopy:memory
		                                            length:n
		                                           options:MTLResourceStorageModeShared
		                                       deallocator:nil]);
	}
}

static void release_buffer(rmg_device *d, rmg_buffer b) {
	rmm_device *m = (rmm_device *)d;
	@autoreleasepool {
		if (@available(macOS 15.0, *)) {
			if (m->residency != NULL) rmm_residency_remove(m->residency, (id<MTLBuffer>)b.object);
		}
		[(id<MTLBuffer>)b.object release];
	}
}

int rmm_renewed(rmm_device *m) {
	if (@available(macOS 15.0, *)) return m->residency != NULL && rmm_residency_renewed(m->residency);
	return 0;
}

static MTLSize size_of(const uint32_t n[3]) {
	return MTLSizeMake(n[0], n[1], n[2]);
}

static int encode(rmg_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size) {
	rmm_device *m = (rmm_device *)d;
	@autoreleasepool {
		id<MTLCommandBuffer> commands = [m->queue commandBufferWithDescriptor:m->descriptor];
		id<MTLComputeCommandEncoder> encoder =
		    [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
		if (encoder == nil) {
			set_error(error, size, @"no memory for a command buffer", nil);
			return -1;
		}
		commands.label = string(label); // for the message of a failure
		if (m->named) encoder.label = commands.label;
		int32_t pipeline = -1;
		const char *op = NULL;
		for (size_t i = 0; i < n; i++) {
			const rmg_command *c = &list[order[i]];
			if (c->barrier) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
			if (m->named && c->op != op) {
				op = c->op;
				[encoder insertDebugSignpost:string(op)];
			}
			if (c->pipeline != pipeline) {
				pipeline = c->pipeline;
				[encoder setComputePipelineState:[m->pipelines objectAtIndex:(NSUInteger)pipeline]];
			}
			if (c->args_bytes > 0) [encoder setBytes:c->args length:c->args_bytes atIndex:0];
			for (uint32_t k = 0; k < c->bindings; k++) {
				[encoder setBuffer:(id<MTLBuffer>)c->binding[k].object
				            offset:c->binding[k].offset
				           atIndex:k + 1];
			}
			if (c->threadgroup_bytes > 0) [encoder setThreadgroupMemoryLength:c->threadgroup_bytes atIndex:0];
			[encoder dispatchThreadgroups:size_of(c->groups) threadsPerThreadgroup:size_of(c->threads)];
		}
		[encoder endEncoding];
		[commands encodeSignalEvent:m->event value:m->signalled + 1];
		m->encoded = [commands retain];
		return 0;
	}
}

static int commit(rmg_device *d, char *error, size_t size) {
	rmm_device *m = (rmm_device *)d;
	(void)error, (void)size; // failures of a command buffer are known later
	@autoreleasepool {
		if (@available(macOS 15.0, *)) {
			if (m->residency != NULL) rmm_residency_use(m->residency);
		}
		m->signalled++;
		[m->encoded commit];
		[m->running addObject:m->encoded];
		drop(d);
		return 0;
	}
}

static void drop(rmg_device *d) {
	rmm_device *m = (rmm_device *)d;
	@autoreleasepool {
		[m->encoded release];
		m->encoded = nil;
	}
}

static uint64_t microseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

// finished reports whether a command buffer has completed or failed.
static int finished(id<MTLCommandBuffer> c) {
	return c.status == MTLCommandBufferStatusCompleted || c.status == MTLCommandBufferStatusError;
}

// wait_for_last waits for the last command buffer: for its event, and unless policy.results
// is set for its status. It returns 0, or -1 at the deadline.
static int wait_for_last(rmm_device *m, rmg_wait_policy policy) {
	id<MTLCommandBuffer> last = [m->running lastObject];
	if (policy.block) {
		[last waitUntilCompleted];
		return 0;
	}
	uint64_t start = microseconds(), spent = 0;
	while (m->event.signaledValue < m->signalled && spent < policy.spin_us) {
		sched_yield();
		spent = microseconds() - start;
	}
	uint64_t deadline = start + 1000 * (uint64_t)policy.deadline_ms;
	while (m->event.signaledValue < m->signalled) {
		// A command buffer that has failed may never signal: poll its status.
		uint64_t now = microseconds();
		if (finished(last)) return 0;
		if (now >= deadline) return -1;
		uint64_t left = (deadline - now) / 1000 + 1;
		[m->event waitUntilSignaledValue:m->signalled timeoutMS:left < 500 ? left : 500];
	}
	// The results are there. The driver sets the status later, on a thread of its own.
	while (!policy.results && !finished(last)) {
		if (microseconds() >= deadline) return -1;
		sched_yield();
	}
	return 0;
}

// failed_ops lists the ops of the encoder that failed, as far as the driver knows.
static NSString *failed_ops(NSError *e) {
	NSMutableString *text = [NSMutableString string];
	for (id<MTLCommandBufferEncoderInfo> info in [[e userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey]) {
		if (info.errorState != MTLCommandEncoderErrorStateFaulted) continue;
		[text appendFormat:@" in %@", [info.debugSignposts componentsJoinedByString:@", "]];
	}
	return text;
}

// cure says what a failure of a command buffer means and what to do, "" if that is
// unknown. The names are those that the driver puts into its messages; the code of
// an error need not be the number in its name.
static NSString *cure(NSError *e) {
	static const struct {
		NSInteger code; // of MTLCommandBufferErrorDomain, 0: known by name only
		const char *name, *text;
	} known[] = {
	    {MTLCommandBufferErrorTimeout, "CallbackErrorTimeout",
	     "the GPU's watchdog ended it, as it does after about 5 s without progress; use a smaller --max-batch, and close other programs that use the GPU"},
	    {0, "ImpactingInteractivity",
	     "macOS ended it because the display had to wait for the GPU; use a smaller --max-batch, or let the display sleep"},
	    {0, "SubmissionsIgnored", "macOS ignores this process after earlier failures; restart the program"},
	    {MTLCommandBufferErrorOutOfMemory, "OutOfMemory",
	     "the GPU may not use more memory; use a smaller --ctx or --max-batch, or raise the limit with sudo sysctl iogpu.wired_limit_mb=N"},
	};
	const char *message = [[e localizedDescription] UTF8String];
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if ((message != NULL && strstr(message, known[i].name) != NULL) || (known[i].code != 0 && e.code == known[i].code)) {
			return [NSString stringWithFormat:@" (%s)", known[i].text];
		}
	}
	return @"";
}

static int wait_for_all(rmg_device *d, rmg_wait_policy policy, char *error, size_t size) {
	rmm_device *m = (rmm_device *)d;
	@autoreleasepool {
		if ([m->running count] == 0) return 0;
		if (wait_for_last(m, policy) != 0) {
			set_error(error, size, [NSString stringWithFormat:@"the device did not finish command buffer \"%@\" in %u ms, and its watchdog, which ends one after about 5 s without progress, did not either", ((id<MTLCommandBuffer>)[m->running lastObject]).label, policy.deadline_ms], nil);
			return -2;
		}
		int failed = 0;
		NSMutableArray *unknown = [NSMutableArray arrayWithCapacity:1]; // their results are there, a later call looks at them again
		for (id<MTLCommandBuffer> c in m->running) {
			if (!finished(c)) {
				[unknown addObject:c];
				continue;
			}
			if (c.status == MTLCommandBufferStatusCompleted) m->busy += c.GPUEndTime - c.GPUStartTime;
			// Later ones fail as a consequence: report the first.
			if (c.status != MTLCommandBufferStatusCompleted && !failed) {
				failed = 1;
				set_error(error, size, [NSString stringWithFormat:@"command buffer \"%@\" failed%@%@", c.label, failed_ops(c.error), cure(c.error)], c.error);
			}
		}
		[m->running removeAllObjects];
		for (id<MTLCommandBuffer> c in unknown) [m->running addObject:c];
		return failed ? -1 : 0;
	}
}

static int busy(rmg_device *d, uint64_t *ns) {
	*ns = (uint64_t)(((rmm_device *)d)->busy * 1e9);
	return 1;
}
