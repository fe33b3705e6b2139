// Runs the commands of a command buffer.
#import "sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static SimBuffer *alive(SimBuffer *b, unsigned long serial, const char *what) {
    if (sim_serial(b) != serial) sim_die("%s: a buffer was released while a command buffer without references used it", what);
    return b;
}

// MTLSIM_FAIL=label:n[:code] makes the nth command buffer with the text in its label
// fail half way through.
static BOOL shall_fail(SimCommandBuffer *cb, NSInteger *code) {
    static char seen[256];
    static unsigned long hits;
    const char *rule = sim_env("MTLSIM_FAIL", NULL);
    if (!rule) return NO;
    if (strcmp(rule, seen)) {
        snprintf(seen, sizeof seen, "%s", rule);
        hits = 0;
    }
    char text[256];
    snprintf(text, sizeof text, "%s", rule);
    unsigned long nth = 1, number = MTLCommandBufferErrorTimeout;
    char *colon = strchr(text, ':');
    if (colon) {
        *colon = 0;
        nth = strtoul(colon + 1, &colon, 10);
        if (*colon == ':') number = strtoul(colon + 1, NULL, 10);
    }
    if (!strstr([cb->label UTF8String] ?: "", text) || ++hits != nth) return NO;
    *code = (NSInteger)number;
    return YES;
}

// text_of is the message of a failure. Apple's driver names the cause: two of its
// names are known from reports (github.com/jundot/omlx/issues/2029 and 1387). The code that
// comes with the second is not known.
static NSString *text_of(NSInteger code) {
	switch (code) {
	case MTLCommandBufferErrorTimeout: return @"Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)";
	case 14: return @"Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)";
	}
	return @"Internal Error (MTLSIM_FAIL)";
}

static BOOL shares(const sim_cmd *a, const sim_cmd *b, NSArray *resources) {
    for (NSValue *v in resources) {
        SimBuffer *r = [v pointerValue];
        BOOL inA = NO, inB = NO;
        for (int i = 0; i < MSL_BUFFERS; i++) {
            inA = inA || a->buf[i] == r;
            inB = inB || b->buf[i] == r;
        }
        if (inA && inB) return YES;
    }
    return NO;
}

// order_stretch permutes commands that no full barrier separates. A barrier for
// resources holds back only a dispatch that shares one of them.
static void order_stretch(sim_cmd *c, int n, unsigned long seed) {
    sim_cmd *out = malloc((size_t)n * sizeof *out);
    char *done = calloc((size_t)n, 1);
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (c[i].op != OP_DISPATCH) done[i] = 1;
    }
    for (;;) {
        int pick = -1;
        unsigned ready = 0;
        for (int j = 0; j < n; j++) {
            if (done[j]) continue;
            BOOL held = NO;
            for (int b = 0; b < j && !held; b++) {
                if (c[b].op != OP_BARRIER_RESOURCES) continue;
                for (int i = 0; i < b && !held; i++) held = !done[i] && shares(&c[i], &c[j], c[b].resources);
            }
            if (held) continue;
            ready++;
            // Seed 1 reverses the order, so that any two that no barrier orders
            // do change places. Other seeds: any order.
            seed = seed > 1 ? seed * 6364136223846793005ul + 1442695040888963407ul : seed;
            if (seed == 1 || (seed >> 33) % ready == 0) pick = j;
        }
        if (pick < 0) break;
        done[pick] = 1;
        out[m++] = c[pick];
    }
    for (int i = 0; i < m; i++) c[i] = out[i];
    for (int i = m; i < n; i++) c[i].op = OP_BARRIER;
    free(out);
    free(done);
}

void sim_order(SimCommandBuffer *cb) {
    unsigned long seed = sim_seed();
    if (!seed) return;
    for (int i = 0; i < cb->count;) {
        sim_cmd *c = &cb->cmds[i];
        if (c->op != OP_DISPATCH || !c->concurrent) {
            i++;
            continue;
        }
        int e = i;
        while (e < cb->count && cb->cmds[e].encoder == c->encoder && cb->cmds[e].op != OP_BARRIER) e++;
        if (e - i > 1) order_stretch(c, e - i, seed == 1 ? 1 : seed * 0x9e3779b97f4a7c15ul + (unsigned long)i);
        i = e;
    }
}

static NSString *dispatch(SimCommandBuffer *cb, sim_cmd *c, int number, NSInteger *code) {
	unsigned long seed = sim_seed();
    if (sim_serial(c->pipeline) != c->pipelineSerial)
        sim_die("dispatch: the pipeline was released while a command buffer without references used it");
    SimFunction *f = c->pipeline->function;
    SimLibrary *lib = f->library;
    const msl_kernel *k = f->kernel;
    msl_bind b;
    memset(&b, 0, sizeof b);
    for (int i = 0; i < MSL_BUFFERS; i++) {
        if (c->data[i]) {
            b.buf[i] = (void *)[c->data[i] bytes];
            b.size[i] = [c->data[i] length];
        } else if (c->buf[i]) {
            SimBuffer *s = alive(c->buf[i], c->bufSerial[i], k->name);
            b.buf[i] = s->bytes + c->offset[i];
            b.size[i] = s->length - c->offset[i];
        }
        b.tgsize[i] = c->tgLength[i];
    }
    for (int a = 0; a < k->nargs; a++) {
        int i = k->args[a].index;
        if (k->args[a].kind != MK_BUF) continue;
        if (!b.buf[i]) {
            *code = MTLCommandBufferErrorInvalidResource;
            return [NSString stringWithFormat:@"%s: no buffer is bound at index %d", k->name, i];
        }
        if (!k->writable(a)) continue;
        if (c->data[i]) sim_die("%s: the parameter at index %d can be written, its argument is from setBytes", k->name, i);
        if (c->buf[i]->options & MTLResourceHazardTrackingModeUntracked)
            sim_die("%s: untracked buffer '%s' is written; fences are not simulated", k->name, [c->buf[i]->label UTF8String] ?: "");
    }
    lib->clearConstants();
    for (SimConstant *v in f->constants) lib->setConstant([v->name UTF8String], (int)v->index, v->value, v->size);
    sim_dump(c, &b);
    unsigned grid[3] = { (unsigned)c->grid.width, (unsigned)c->grid.height, (unsigned)c->grid.depth };
    unsigned tg[3] = { (unsigned)c->threadgroup.width, (unsigned)c->threadgroup.height, (unsigned)c->threadgroup.depth };
	msl_stats stats = {0, 0, 0, 0};
	if (lib->dispatch(k, &b, grid, tg, c->exact, seed ? seed + (unsigned long)number : 0, &stats)) return [NSString stringWithUTF8String:lib->errorText()];
	cb->work += stats.work;
	for (int i = 0; i < MSL_BUFFERS; i++) {
        if (c->buf[i] && c->buf[i]->guard) [c->buf[i] checkGuard:k->name];
    }
    return nil;
}

// The watchdog of a GPU ends a command buffer after about 5 s without progress. Time
// decides nothing here: a command buffer may execute a number of basic blocks.
uint64_t sim_watchdog(void) { return sim_env_size("MTLSIM_WATCHDOG", 0); }

static BOOL bitten(SimCommandBuffer *cb) {
	pthread_mutex_lock(&sim_mu);
	sim_counted_most("longest", cb->work);
	pthread_mutex_unlock(&sim_mu);
	return sim_watchdog() && cb->work > sim_watchdog();
}

static NSString *blit(sim_cmd *c) {
    SimBuffer *to = alive(c->to, c->toSerial, "blit");
    if (to->options & MTLResourceHazardTrackingModeUntracked) sim_die("blit: an untracked buffer is written; fences are not simulated");
    if (c->op == OP_FILL) memset(to->bytes + c->toOffset, c->fill, c->size);
    else memcpy(to->bytes + c->toOffset, alive(c->from, c->fromSerial, "blit")->bytes + c->fromOffset, c->size);
    return nil;
}

static NSString *run_one(SimCommandBuffer *cb, sim_cmd *c, NSInteger *code) {
    switch (c->op) {
	case OP_DISPATCH: return dispatch(cb, c, cb->next, code);
	case OP_FILL:
    case OP_COPY: return blit(c);
    case OP_SIGNAL:
        pthread_mutex_lock(&sim_mu);
        if (c->event->value > c->eventValue)
            sim_die("encodeSignalEvent: the value falls from %lu to %lu", (unsigned long)c->event->value, (unsigned long)c->eventValue);
        c->event->value = c->eventValue;
        pthread_cond_broadcast(&sim_cv);
        pthread_mutex_unlock(&sim_mu);
        return nil;
    case OP_WAIT:
    case OP_BARRIER:
    case OP_BARRIER_RESOURCES: return nil;
    }
    return nil;
}

// what describes the encoder of a command and its debug group for a message.
static NSString *what(SimCommandBuffer *cb, sim_cmd *c) {
    NSString *encoder = c->encoder >= 0 ? ((SimEncoderInfo *)[cb->encoders objectAtIndex:(NSUInteger)c->encoder])->label : nil;
    return [NSString stringWithFormat:@"command buffer '%@', encoder '%@'", cb->label ?: @"", encoder ?: @""];
}

NSString *sim_run(SimCommandBuffer *cb, NSInteger *code) {
    int last = cb->count;
    BOOL fail = cb->next == 0 && shall_fail(cb, code);
    if (fail) last /= 2;
    NSString *problem = nil;
    for (; cb->next < last && !problem; cb->next++) {
        sim_cmd *c = &cb->cmds[cb->next];
        pthread_mutex_lock(&sim_mu);
        BOOL blocked = sim_blocked(cb);
        pthread_mutex_unlock(&sim_mu);
        if (blocked) return nil;
        problem = run_one(cb, c, code);
		if (!problem && bitten(cb)) {
			*code = MTLCommandBufferErrorTimeout;
			problem = text_of(*code);
		}
		if (problem) {
            problem = [NSString stringWithFormat:@"%@: %@", what(cb, c), problem];
            fprintf(stderr, "metalsim: %s\n", [problem UTF8String]);
            cb->next--;
        }
    }
	if (fail && !problem) problem = text_of(*code);
	int at = cb->next < cb->count ? cb->cmds[cb->next].encoder : (int)[cb->encoders count];
    for (int i = 0; i < (int)[cb->encoders count]; i++) {
        SimEncoderInfo *e = [cb->encoders objectAtIndex:(NSUInteger)i];
        if (!problem || (at >= 0 && i < at)) e->state = MTLCommandEncoderErrorStateCompleted;
        else if (i == at) e->state = MTLCommandEncoderErrorStateFaulted;
    }
    return problem;
}
