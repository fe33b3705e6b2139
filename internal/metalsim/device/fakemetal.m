// A software Metal device: command buffers run MSL kernels (compiled for the CPU by $MSLSIM_CC) on a worker thread.
// MTLSIM_MODE=async (default) | lazy: nothing runs before somebody waits | sync: runs inside commit.
// MTLSIM_DELAY_US: the worker sleeps before each command buffer. MTLSIM_SEED: schedule seed (0: fixed order).
#import <Metal/Metal.h>
#include <Block.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define DIE(...) do { fprintf(stderr, "metalsim: " __VA_ARGS__); fputc('\n', stderr); abort(); } while (0)
typedef struct { const char *name; int nargs; const struct { int kind, index; } *args; } mslk;
typedef struct { void *buf[31]; unsigned long size[31]; void *tg[31]; unsigned long tgsize[31]; } mslbind;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static const char *envs(const char *k, const char *d) { const char *v = getenv(k); return v && *v ? v : d; }
static NSError *mkerr(NSString *s) { return [NSError errorWithDomain:@"MTLSim" code:1 userInfo:[NSDictionary dictionaryWithObject:s forKey:NSLocalizedDescriptionKey]]; }

@implementation MTLCompileOptions @synthesize fastMathEnabled, preprocessorMacros, mathMode, languageVersion; @end
@implementation MTLCommandBufferDescriptor @synthesize retainedReferences, errorOptions; @end
@implementation MTLResidencySetDescriptor @synthesize label, initialCapacity; @end

@interface FCVal : NSObject { @public NSString *name; int idx; char v[16]; int size; } @end
@implementation FCVal - (void)dealloc { [name release]; [super dealloc]; } @end
@implementation MTLFunctionConstantValues
- (id)init { if ((self = [super init])) values = [[NSMutableArray alloc] init]; return self; }
- (void)dealloc { [values release]; [super dealloc]; }
static FCVal *fcval(const void *v, MTLDataType t) {
    FCVal *f = [[[FCVal alloc] init] autorelease];
    f->size = t == MTLDataTypeBool ? 1 : t == MTLDataTypeShort || t == MTLDataTypeUShort || t == MTLDataTypeHalf ? 2 : 4; memcpy(f->v, v, f->size); return f; }
- (void)setConstantValue:(const void *)v type:(MTLDataType)t atIndex:(NSUInteger)i { FCVal *f = fcval(v, t); f->idx = (int)i; [values addObject:f]; }
- (void)setConstantValue:(const void *)v type:(MTLDataType)t withName:(NSString *)n { FCVal *f = fcval(v, t); f->name = [n copy]; [values addObject:f]; }
@end

@interface SimBuffer : NSObject <MTLBuffer> { @public char *p; NSUInteger length; BOOL own; void (^dealloc_)(void *, NSUInteger); NSString *label; } @end
@implementation SimBuffer @synthesize length, label;
- (void *)contents { return p; }
- (void)dealloc { if (own) { memset(p, 0xdd, length); free(p); } if (dealloc_) { dealloc_(p, length); Block_release(dealloc_); } [label release]; [super dealloc]; } @end

@interface SimLibrary : NSObject <MTLLibrary> { @public void *h; const mslk *(*find)(const char *); const mslk *(*table)(void); int (*dispatch)(const mslk *, mslbind *, const unsigned *, const unsigned *, int, unsigned long, void *); int (*setc)(const char *, int, const void *, unsigned long); void (*clearc)(void); const char *(*err)(void); } @end
@interface SimFunction : NSObject <MTLFunction> { @public SimLibrary *lib; const mslk *k; NSArray *consts; } @end
@implementation SimFunction - (NSString *)name { return [NSString stringWithUTF8String:k->name]; } - (void)dealloc { [lib release]; [consts release]; [super dealloc]; } @end
@interface SimPipeline : NSObject <MTLComputePipelineState> { @public SimFunction *fn; } @end
@implementation SimPipeline - (NSUInteger)maxTotalThreadsPerThreadgroup { return 1024; } - (NSUInteger)threadExecutionWidth { return 32; } - (NSUInteger)staticThreadgroupMemoryLength { return 0; } - (void)dealloc { [fn release]; [super dealloc]; } @end
@implementation SimLibrary
- (NSArray *)functionNames { NSMutableArray *a = [NSMutableArray array]; const char *b = (const char *)table(); for (; *(const char **)b; b += 40) [a addObject:[NSString stringWithUTF8String:*(const char **)b]]; return a; }
- (id<MTLFunction>)newFunctionWithName:(NSString *)n { return [self newFunctionWithName:n constantValues:nil error:NULL]; }
- (id<MTLFunction>)newFunctionWithName:(NSString *)n constantValues:(MTLFunctionConstantValues *)v error:(NSError **)e {
    const mslk *k = find([n UTF8String]);
    if (!k) { if (e) *e = mkerr([NSString stringWithFormat:@"no function %@", n]); return nil; }
    SimFunction *f = [[SimFunction alloc] init]; f->lib = [self retain]; f->k = k; if (v) f->consts = [v->values copy]; return f; }
@end

typedef struct { int op; SimPipeline *ps; SimBuffer *buf[31]; NSUInteger off[31]; char *bytes[31]; NSUInteger blen[31]; NSUInteger tgl[31]; MTLSize grid, tg; int exact; int conc; SimBuffer *a, *b; NSUInteger ao, bo, n; int val; id ev; uint64_t evv; } Cmd;
enum { C_DISPATCH, C_FILL, C_COPY, C_SIGNAL, C_WAIT, C_BARRIER };
@interface SimEvent : NSObject <MTLSharedEvent> { @public uint64_t v; } @end
static void pump(void);
@implementation SimEvent
- (uint64_t)signaledValue { pthread_mutex_lock(&mu); uint64_t x = v; pthread_mutex_unlock(&mu); return x; }
- (void)setSignaledValue:(uint64_t)x { pthread_mutex_lock(&mu); v = x; pthread_cond_broadcast(&cv); pthread_mutex_unlock(&mu); }
- (BOOL)waitUntilSignaledValue:(uint64_t)x timeoutMS:(uint64_t)ms { pump(); struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += ms / 1000; t.tv_nsec += ms % 1000 * 1000000; if (t.tv_nsec >= 1000000000) { t.tv_sec++; t.tv_nsec -= 1000000000; }
    pthread_mutex_lock(&mu); int rc = 0; while (v < x && !rc) rc = pthread_cond_timedwait(&cv, &mu, &t); BOOL ok = v >= x; pthread_mutex_unlock(&mu); return ok; } @end

@interface SimCB : NSObject <MTLCommandBuffer> { @public Cmd *cmds; int n, cap; NSMutableArray *keep, *handlers; MTLCommandBufferStatus status; NSError *error; BOOL open; BOOL unretained; SimCB *next; } @end
@interface SimEnc : NSObject <MTLComputeCommandEncoder, MTLBlitCommandEncoder> { @public SimCB *cb; Cmd cur; BOOL ended; } @end
static SimCB *qhead, *qtail; static int lazy, syncm, go; static pthread_t worker; static int have_worker;
static Cmd *push(SimCB *cb) { if (cb->n == cb->cap) { cb->cap = cb->cap ? cb->cap * 2 : 64; cb->cmds = realloc(cb->cmds, cb->cap * sizeof(Cmd)); } Cmd *c = &cb->cmds[cb->n++]; memset(c, 0, sizeof *c); return c; }

static NSString *run(SimCB *cb) {
    unsigned long seed = strtoul(envs("MTLSIM_SEED", "0"), 0, 10);
    for (int i = 0; i < cb->n; i++) {
        int at = i; Cmd *c = &cb->cmds[i];
        if (seed && c->op == C_DISPATCH && c->conc) { // concurrent encoder: run the stretch up to the next barrier backwards
            int e = i; while (e < cb->n && cb->cmds[e].op == C_DISPATCH && cb->cmds[e].conc) e++;
            for (int q = i; q < (i + e) / 2; q++) { Cmd t = cb->cmds[q]; cb->cmds[q] = cb->cmds[i + e - 1 - q]; cb->cmds[i + e - 1 - q] = t; }
            for (int q = i; q < e; q++) cb->cmds[q].conc = 0; c = &cb->cmds[at]; }
        switch (c->op) {
        case C_FILL: memset(c->a->p + c->ao, c->val, c->n); break;
        case C_COPY: memmove(c->b->p + c->bo, c->a->p + c->ao, c->n); break;
        case C_SIGNAL: [(SimEvent *)c->ev setSignaledValue:c->evv]; break;
        case C_WAIT: pthread_mutex_lock(&mu); while (((SimEvent *)c->ev)->v < c->evv) pthread_cond_wait(&cv, &mu); pthread_mutex_unlock(&mu); break;
        case C_DISPATCH: {
            mslbind b; memset(&b, 0, sizeof b); SimFunction *f = c->ps->fn;
            for (int k = 0; k < 31; k++) { if (c->bytes[k]) { b.buf[k] = c->bytes[k]; b.size[k] = c->blen[k]; } else if (c->buf[k]) { b.buf[k] = c->buf[k]->p + c->off[k]; b.size[k] = c->buf[k]->length - c->off[k]; } b.tgsize[k] = c->tgl[k]; }
            for (int k = 0; k < f->k->nargs; k++) if (f->k->args[k].kind == 0 && !b.buf[f->k->args[k].index]) return [NSString stringWithFormat:@"%s: no buffer bound at index %d", f->k->name, f->k->args[k].index];
            f->lib->clearc(); for (NSUInteger q = 0; q < [f->consts count]; q++) { FCVal *v = [f->consts objectAtIndex:q]; f->lib->setc(v->name ? [v->name UTF8String] : 0, v->idx, v->v, v->size); }
            unsigned g[3] = { c->grid.width, c->grid.height, c->grid.depth }, t[3] = { c->tg.width, c->tg.height, c->tg.depth };
            if (f->lib->dispatch(f->k, &b, g, t, c->exact, seed ? seed + i : 0, 0)) return [NSString stringWithUTF8String:f->lib->err()];
        } } }
    return nil; }
static void finish(SimCB *cb) {
    @autoreleasepool { int d = atoi(envs("MTLSIM_DELAY_US", "0")); if (d) usleep(d);
        NSString *e = run(cb); if (e) { fprintf(stderr, "metalsim: command buffer failed: %s\n", [e UTF8String]); cb->error = [mkerr(e) retain]; }
        for (NSUInteger i = 0; i < [cb->handlers count]; i++) { MTLCommandBufferHandler h = (MTLCommandBufferHandler)[[cb->handlers objectAtIndex:i] pointerValue]; h(cb); Block_release(h); }
        pthread_mutex_lock(&mu); cb->status = e ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted; pthread_cond_broadcast(&cv); pthread_mutex_unlock(&mu);
        [cb release]; } }
static void *work(void *x) { (void)x; [NSThread currentThread];
    for (;;) { pthread_mutex_lock(&mu); while (!qhead || (lazy && !go)) pthread_cond_wait(&cv, &mu); SimCB *cb = qhead; qhead = cb->next; if (!qhead) { qtail = nil; go = 0; } pthread_mutex_unlock(&mu); finish(cb); } return 0; }
static void pump(void) { pthread_mutex_lock(&mu); if (qhead) go = 1; pthread_cond_broadcast(&cv); pthread_mutex_unlock(&mu); }

@implementation SimEnc
#define LIVE if (ended) DIE("encoder used after endEncoding")
- (void)setComputePipelineState:(id<MTLComputePipelineState>)s { LIVE; cur.ps = (SimPipeline *)s; [cb->keep addObject:s]; }
- (void)setBuffer:(id<MTLBuffer>)b offset:(NSUInteger)o atIndex:(NSUInteger)i { LIVE; if (i >= 31) DIE("buffer index %lu", (unsigned long)i); SimBuffer *s = (SimBuffer *)b; if (s && o >= s->length) DIE("setBuffer: offset %lu of %lu", (unsigned long)o, (unsigned long)s->length); if (o % 4) DIE("setBuffer: offset %lu not a multiple of 4", (unsigned long)o); cur.buf[i] = s; cur.off[i] = o; cur.bytes[i] = 0; if (s && !cb->unretained) [cb->keep addObject:s]; }
- (void)setBytes:(const void *)p length:(NSUInteger)n atIndex:(NSUInteger)i { LIVE; if (n > 4096) DIE("setBytes: %lu bytes, the limit is 4096", (unsigned long)n); NSData *d = [NSData dataWithBytes:p length:n]; [cb->keep addObject:d]; cur.bytes[i] = (char *)[d bytes]; cur.blen[i] = n; cur.buf[i] = 0; }
- (void)setThreadgroupMemoryLength:(NSUInteger)n atIndex:(NSUInteger)i { LIVE; cur.tgl[i] = n; }
- (void)add:(MTLSize)g tg:(MTLSize)t exact:(int)x { LIVE; if (!cur.ps) DIE("dispatch without pipeline state"); Cmd *c = push(cb); *c = cur; c->op = C_DISPATCH; c->grid = g; c->tg = t; c->exact = x; }
- (void)dispatchThreadgroups:(MTLSize)g threadsPerThreadgroup:(MTLSize)t { [self add:g tg:t exact:0]; }
- (void)dispatchThreads:(MTLSize)g threadsPerThreadgroup:(MTLSize)t { [self add:g tg:t exact:1]; }
- (void)memoryBarrierWithScope:(MTLBarrierScope)s { LIVE; (void)s; push(cb)->op = C_BARRIER; }
- (void)fillBuffer:(id<MTLBuffer>)b range:(NSRange)r value:(uint8_t)v { LIVE; SimBuffer *s = (SimBuffer *)b; if (NSMaxRange(r) > s->length) DIE("fillBuffer out of range"); [cb->keep addObject:s]; Cmd *c = push(cb); c->op = C_FILL; c->a = s; c->ao = r.location; c->n = r.length; c->val = v; }
- (void)copyFromBuffer:(id<MTLBuffer>)s sourceOffset:(NSUInteger)so toBuffer:(id<MTLBuffer>)d destinationOffset:(NSUInteger)o size:(NSUInteger)n { LIVE; SimBuffer *a = (SimBuffer *)s, *b = (SimBuffer *)d; if (so + n > a->length || o + n > b->length) DIE("copyFromBuffer out of range"); [cb->keep addObject:a]; [cb->keep addObject:b]; Cmd *c = push(cb); c->op = C_COPY; c->a = a; c->b = b; c->ao = so; c->bo = o; c->n = n; }
- (void)endEncoding { LIVE; ended = YES; cb->open = NO; }
- (void)dealloc { if (!ended) DIE("encoder released before endEncoding"); [cb release]; [super dealloc]; } @end

@implementation SimCB @synthesize error;
- (id)init { if ((self = [super init])) { keep = [[NSMutableArray alloc] init]; handlers = [[NSMutableArray alloc] init]; } return self; }
- (void)dealloc { free(cmds); [keep release]; [handlers release]; [error release]; [super dealloc]; }
- (MTLCommandBufferStatus)status { pthread_mutex_lock(&mu); MTLCommandBufferStatus s = status; pthread_mutex_unlock(&mu); return s; }
- (SimEnc *)enc:(int)conc { if (open) DIE("a second encoder while one is open"); if (status) DIE("encoder on a committed command buffer"); open = YES; SimEnc *e = [[[SimEnc alloc] init] autorelease]; e->cb = [self retain]; e->cur.conc = conc; return e; }
- (id<MTLComputeCommandEncoder>)computeCommandEncoder { return [self enc:0]; }
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)t { return [self enc:t == MTLDispatchTypeConcurrent]; }
- (id<MTLBlitCommandEncoder>)blitCommandEncoder { return [self enc:0]; }
- (void)addCompletedHandler:(MTLCommandBufferHandler)b { [handlers addObject:[NSValue valueWithPointer:Block_copy(b)]]; }
- (void)encodeSignalEvent:(id<MTLEvent>)e value:(uint64_t)v { Cmd *c = push(self); c->op = C_SIGNAL; c->ev = e; c->evv = v; [keep addObject:e]; }
- (void)encodeWaitForEvent:(id<MTLEvent>)e value:(uint64_t)v { Cmd *c = push(self); c->op = C_WAIT; c->ev = e; c->evv = v; [keep addObject:e]; }
- (void)commit { if (open) DIE("commit with an open encoder"); if (status) DIE("commit twice"); [self retain]; status = MTLCommandBufferStatusCommitted;
    if (syncm) { finish(self); return; }
    pthread_mutex_lock(&mu); if (qtail) qtail->next = self; else qhead = self; qtail = self; pthread_cond_broadcast(&cv); pthread_mutex_unlock(&mu); }
- (void)waitUntilCompleted { if (!status) DIE("waitUntilCompleted before commit"); pump(); pthread_mutex_lock(&mu); while (status < MTLCommandBufferStatusCompleted) { if (lazy) go = 1; pthread_cond_wait(&cv, &mu); } pthread_mutex_unlock(&mu); } @end
@interface SimQueue : NSObject <MTLCommandQueue> @end
@implementation SimQueue - (id<MTLCommandBuffer>)commandBuffer { return [[[SimCB alloc] init] autorelease]; } - (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences { SimCB *c = [[[SimCB alloc] init] autorelease]; c->unretained = YES; return c; } @end
@interface SimDevice : NSObject <MTLDevice> @end
@implementation SimDevice
- (NSString *)name { return @"metalsim"; } - (BOOL)hasUnifiedMemory { return YES; } - (NSUInteger)maxThreadgroupMemoryLength { return 32768; } - (NSUInteger)maxBufferLength { return (NSUInteger)1 << 37; } - (uint64_t)recommendedMaxWorkingSetSize { return 96ull << 30; } - (BOOL)supportsFamily:(MTLGPUFamily)f { return f <= MTLGPUFamilyApple8 || f == MTLGPUFamilyMetal3; }
- (id<MTLCommandQueue>)newCommandQueue { return [[SimQueue alloc] init]; }
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)n options:(MTLResourceOptions)o { (void)o; SimBuffer *b = [[SimBuffer alloc] init]; b->p = aligned_alloc(16384, (n + 16383) & ~16383ul); memset(b->p, 0xaa, n); b->length = n; b->own = YES; return b; }
- (id<MTLBuffer>)newBufferWithBytes:(const void *)p length:(NSUInteger)n options:(MTLResourceOptions)o { SimBuffer *b = (SimBuffer *)[self newBufferWithLength:n options:o]; memcpy(b->p, p, n); return b; }
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)p length:(NSUInteger)n options:(MTLResourceOptions)o deallocator:(void (^)(void *, NSUInteger))d { (void)o; if ((uintptr_t)p % 16384 || n % 16384) return nil; /* Apple silicon pages */ SimBuffer *b = [[SimBuffer alloc] init]; b->p = p; b->length = n; if (d) b->dealloc_ = Block_copy(d); return b; }
- (id<MTLSharedEvent>)newSharedEvent { return [[SimEvent alloc] init]; }
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)f error:(NSError **)e { (void)e; SimPipeline *p = [[SimPipeline alloc] init]; p->fn = (SimFunction *)[f retain]; return p; }
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)src options:(MTLCompileOptions *)opt error:(NSError **)e {
    const char *s = [src UTF8String]; const char *cc = getenv("MSLSIM_CC"); if (!cc) DIE("MSLSIM_CC is not set"); const char *flags = envs("MSLSIM_FLAGS", "");
    uint64_t h = 1469598103934665603ull; for (const char *q = s; *q; q++) h = (h ^ (unsigned char)*q) * 1099511628211ull; for (const char *q = flags; *q; q++) h = (h ^ (unsigned char)*q) * 1099511628211ull;
    NSString *defs = @""; for (NSString *k in [[opt preprocessorMacros] allKeys]) defs = [defs stringByAppendingFormat:@"-D%@=%@ ", k, [[opt preprocessorMacros] objectForKey:k]]; for (const char *q = [defs UTF8String]; *q; q++) h = (h ^ (unsigned char)*q) * 1099511628211ull;
    char dir[512], so[600], in[600], lg[600], cmd[3000]; snprintf(dir, sizeof dir, "%s/metalsim-%d", envs("TMPDIR", "/tmp"), (int)getuid()); mkdir(dir, 0700);
    snprintf(so, sizeof so, "%s/%016lx.so", dir, h); snprintf(in, sizeof in, "%s/%016lx.metal", dir, h); snprintf(lg, sizeof lg, "%s/%016lx.log", dir, h);
    if (access(so, R_OK)) { FILE *f = fopen(in, "w"); fputs(s, f); fclose(f); snprintf(cmd, sizeof cmd, "MSL_DEFS='%s' %s %s.tmp.so %s %s >%s 2>&1 && mv %s.tmp.so %s", [defs UTF8String], cc, so, in, flags, lg, so, so);
        if (system(cmd)) { if (e) *e = mkerr([NSString stringWithContentsOfFile:[NSString stringWithUTF8String:lg]]); return nil; } }
    SimLibrary *l = [[SimLibrary alloc] init]; l->h = dlopen(so, RTLD_NOW | RTLD_LOCAL); if (!l->h) { if (e) *e = mkerr([NSString stringWithUTF8String:dlerror()]); [l release]; return nil; }
    *(void **)&l->find = dlsym(l->h, "msl_find"); *(void **)&l->table = dlsym(l->h, "msl_table"); *(void **)&l->dispatch = dlsym(l->h, "msl_dispatch"); *(void **)&l->setc = dlsym(l->h, "msl_set_const"); *(void **)&l->clearc = dlsym(l->h, "msl_clear_consts"); *(void **)&l->err = dlsym(l->h, "msl_error"); return l; }
@end
id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
    static SimDevice *d; if (!d) { d = [[SimDevice alloc] init]; const char *m = envs("MTLSIM_MODE", "async"); lazy = !strcmp(m, "lazy"); syncm = !strcmp(m, "sync"); if (!have_worker++ && !syncm) pthread_create(&worker, 0, work, 0); }
    return [d retain]; }
