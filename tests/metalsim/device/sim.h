// Shared by the parts of the software Metal device.
#pragma once
#import <Metal/Metal.h>
#include <pthread.h>
#include "../msl/msl_abi.h"

// MTLSIM_MODE. async: a worker runs what is committed. lazy: nothing runs
// before something waits. sync: commit returns when the work is done.
enum sim_mode { SIM_ASYNC, SIM_LAZY, SIM_SYNC };

extern pthread_mutex_t sim_mu; // guards queues, statuses, events
extern pthread_cond_t sim_cv;

enum sim_mode sim_mode(void);
unsigned long sim_seed(void); // MTLSIM_SEED, 0: fixed order
const char *sim_env(const char *name, const char *otherwise);
unsigned long sim_env_size(const char *name, unsigned long otherwise);
double sim_now(void); // seconds
// What MTLSIM_LATENCY charges for. sim_charge lets its microseconds pass, on the thread
// that calls, without sim_mu; a device without latency returns at once.
enum sim_cost { SIM_WAKE, SIM_COMMIT, SIM_DISPATCH };
void sim_charge(enum sim_cost cost);
NSInteger sim_macos(void); // the major version of the system, of MTLSIM_MACOS
void sim_since(NSInteger macos, const char *call); // aborts on an older system
NSError *sim_error(NSString *domain, NSInteger code, NSString *text, NSDictionary *more);
// sim_die reports a use of the API that Apple's validation layer rejects or that has
// an undefined result, and aborts.
void sim_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

// Every object of the device is registered with a serial number, so that an object
// released too early is not mistaken for a new one at the same address.
void sim_born(id object);
void sim_died(id object);
unsigned long sim_serial(id object); // 0: not alive

@class SimDevice, SimQueue, SimCommandBuffer, SimLibrary;

enum { SIM_GUARD = 64, SIM_PAGE = 16384 };

@interface SimBuffer : NSObject <MTLBuffer> {
  @public
    char *bytes;
    NSUInteger length;
    MTLResourceOptions options;
    BOOL own;
    int guard; // bytes past the end that must not be overwritten
    int residencySets;
    void (^deallocator)(void *, NSUInteger);
    NSString *label;
    SimDevice *device;
}
- (void)checkGuard:(const char *)who;
@end

// sim_buffer makes a buffer of the given memory, or allocates it if memory is NULL.
SimBuffer *sim_buffer(SimDevice *device, void *memory, NSUInteger length, MTLResourceOptions options);

@interface SimConstant : NSObject {
  @public
    NSString *name; // or nil: by index
    NSUInteger index;
    MTLDataType type;
    char value[16];
    unsigned long size;
}
@end

@interface SimLibrary : NSObject <MTLLibrary> {
  @public
    NSString *label, *path; // path of the library without its suffix
    void *handle;
    const msl_kernel *(*find)(const char *);
    const msl_kernel *(*table)(void);
    const msl_fconst *(*constants)(void);
    int (*setConstant)(const char *name, int id, const void *value, unsigned long size);
    void (*clearConstants)(void);
    int (*dispatch)(const msl_kernel *, msl_bind *, const unsigned grid[3], const unsigned threadgroup[3], int exact, unsigned long seed,
                    msl_stats *);
    unsigned long (*staticThreadgroup)(const msl_kernel *);
    const char *(*errorText)(void);
}
@end

@interface SimFunction : NSObject <MTLFunction> {
  @public
    SimLibrary *library;
    const msl_kernel *kernel;
    NSArray *constants;
    NSString *label;
}
@end

@interface SimPipeline : NSObject <MTLComputePipelineState> {
  @public
    SimFunction *function;
    NSUInteger maxThreads;
}
@end

@interface SimEvent : NSObject <MTLSharedEvent> {
  @public
    uint64_t value;
    NSString *label;
}
@end

@interface SimResidencySet : NSObject <MTLResidencySet> {
  @public
    NSMutableArray *members, *pending;
    NSString *label;
    SimDevice *device;
    int requested;
	BOOL wired;   // its memory is
	BOOL touched; // requested or used since the last sim_idle
}
// use: a command buffer needs the memory. With sim_mu held.
- (void)use;
@end

enum sim_op { OP_DISPATCH, OP_FILL, OP_COPY, OP_SIGNAL, OP_WAIT, OP_BARRIER, OP_BARRIER_RESOURCES };

// One command of a command buffer. It does not retain its objects: the command
// buffer's list does, unless the buffer was made without retained references.
typedef struct sim_cmd {
    enum sim_op op;
    int encoder; // index in the command buffer's list of encoders, -1 for none
    BOOL concurrent, exact;
    SimPipeline *pipeline;
    unsigned long pipelineSerial;
    SimBuffer *buf[MSL_BUFFERS];
    unsigned long bufSerial[MSL_BUFFERS];
    NSUInteger offset[MSL_BUFFERS];
    NSData *data[MSL_BUFFERS]; // setBytes
    NSUInteger tgLength[MSL_BUFFERS];
    MTLSize grid, threadgroup;
    SimBuffer *from, *to; // of a blit; a fill has only a destination
    unsigned long fromSerial, toSerial;
    NSUInteger fromOffset, toOffset, size;
    uint8_t fill;
    SimEvent *event;
    uint64_t eventValue;
    NSArray *resources; // of a barrier
} sim_cmd;

// What the error of a failed command buffer says about an encoder.
@interface SimEncoderInfo : NSObject <MTLCommandBufferEncoderInfo> {
  @public
    NSString *label;
    NSMutableArray *signposts;
    MTLCommandEncoderErrorState state;
    int open; // debug groups
}
@end

@interface SimCommandBuffer : NSObject <MTLCommandBuffer> {
  @public
    SimQueue *queue;
    sim_cmd *cmds;
    int count, room;
    int next; // the command that runs next
    NSMutableArray *keep, *encoders, *scheduled, *completed;
	NSArray *sets; // residency sets
	NSString *label;
    NSError *error;
    MTLCommandBufferStatus status;
    MTLCommandBufferErrorOption errorOptions;
    BOOL encoding, unretained, finished; // finished: the handlers have run too
    BOOL blocked; // waiting for an event
    int groups; // debug groups
	uint64_t work; // basic blocks that its kernels have executed, with a watchdog
	double start, end;
}
- (sim_cmd *)push:(enum sim_op)op encoder:(int)encoder;
- (void)hold:(id)object;
@end

@interface SimEncoder : NSObject <MTLCommandEncoder> {
  @public
    SimCommandBuffer *cb;
    SimEncoderInfo *info;
    int index;
    BOOL ended;
}
- (id)initFor:(SimCommandBuffer *)buffer;
- (void)live:(const char *)call; // aborts after endEncoding
- (SimBuffer *)use:(id<MTLBuffer>)buffer in:(const char *)call;
@end

@interface SimComputeEncoder : SimEncoder <MTLComputeCommandEncoder> {
  @public
    sim_cmd now; // the state that the next dispatch captures
}
@end

@interface SimBlitEncoder : SimEncoder <MTLBlitCommandEncoder>
@end

@interface SimQueue : NSObject <MTLCommandQueue> {
  @public
    NSString *label;
    SimDevice *device;
    NSMutableArray *order; // enqueued and not finished, in order of execution
    NSMutableArray *sets;
    NSUInteger limit; // command buffers that may be unfinished
    int alive; // unfinished command buffers
}
@end

@interface SimDevice : NSObject <MTLDevice> {
  @public
    NSUInteger allocated;
}
@end

// schedule.m
void sim_queue_born(SimQueue *queue);
void sim_queue_died(SimQueue *queue);
void sim_wait_begin(const char *call); // with sim_mu held: a thread waits, so lazy work may run
void sim_wait_end(void);
void sim_poll(void); // with sim_mu held: a thread polls; many polls count as a wait
BOOL sim_blocked(SimCommandBuffer *cb); // with sim_mu held: its next command waits for an event

// execute.m
void sim_order(SimCommandBuffer *cb); // permutes the dispatches that a concurrent encoder does not order
// sim_run runs commands from cb->next on, until all are done or one waits for an
// event. It returns nil or the error message, and sets *code.
NSString *sim_run(SimCommandBuffer *cb, NSInteger *code);

// control.m: what a test may ask of the device and do to it.
void sim_counted(const char *what, uint64_t n); // adds to sim_count; with sim_mu held
void sim_counted_most(const char *what, uint64_t n); // raises sim_count; with sim_mu held
uint64_t sim_count(const char *what);
void sim_idle(void);
void sim_set_born(SimResidencySet *set); // with sim_mu held
void sim_set_died(SimResidencySet *set);

// library.m, compile.m
SimLibrary *sim_compile(NSString *source, MTLCompileOptions *options, NSError **error);

// sim_watchdog is how many basic blocks a command buffer may execute, of
// MTLSIM_WATCHDOG; 0: any number, and they are not counted.
uint64_t sim_watchdog(void);

// dump.m: writes a dispatch to MTLSIM_DUMP for the runner.
void sim_dump(const sim_cmd *c, const msl_bind *bind);
