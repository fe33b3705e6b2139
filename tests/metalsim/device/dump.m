// Writes dispatches for the runner that replays them under a race detector:
// MTLSIM_DUMP names a folder, MTLSIM_DUMP_EACH how many dispatches of a kernel
// are kept (4), MTLSIM_DUMP_BYTES the size of memory above which a dispatch is
// skipped.
#import "sim.h"
#include "../runner/dump.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void word(FILE *f, uint32_t v) { fwrite(&v, 4, 1, f); }
static void wide(FILE *f, uint64_t v) { fwrite(&v, 8, 1, f); }
static void text(FILE *f, const char *s) {
    uint32_t n = s ? (uint32_t)strlen(s) : 0;
    word(f, n);
    fwrite(s, 1, n, f);
}

// written returns how often this kernel was written; only the worker calls it.
static unsigned long *written(NSString *path, const char *kernel) {
    static NSMutableDictionary *counts;
    if (!counts) counts = [[NSMutableDictionary alloc] init];
    NSString *key = [NSString stringWithFormat:@"%@/%s", path, kernel];
    NSMutableData *n = [counts objectForKey:key];
    if (!n) {
        n = [NSMutableData dataWithLength:sizeof(unsigned long)];
        [counts setObject:n forKey:key];
    }
    return [n mutableBytes];
}

void sim_dump(const sim_cmd *c, const msl_bind *bind) {
    const char *folder = sim_env("MTLSIM_DUMP", NULL);
    if (!folder) return;
    SimFunction *fn = c->pipeline->function;
    unsigned long *n = written(fn->library->path, fn->kernel->name);
    if (*n >= sim_env_size("MTLSIM_DUMP_EACH", 4)) return;

    // A buffer that is bound twice is one region: the kernel may compare
    // pointers.
    struct {
        char *at;
        unsigned long size;
    } regions[MSL_BUFFERS];
    int count = 0, of[MSL_BUFFERS];
    unsigned long total = 0;
    for (int i = 0; i < MSL_BUFFERS; i++) {
        of[i] = -1;
        if (!bind->buf[i]) continue;
        char *at = c->data[i] ? bind->buf[i] : c->buf[i]->bytes;
        for (int r = 0; r < count; r++) {
            if (regions[r].at == at) of[i] = r;
        }
        if (of[i] >= 0) continue;
        of[i] = count;
        regions[count].at = at;
        regions[count].size = c->data[i] ? bind->size[i] : c->buf[i]->length;
        total += regions[count++].size;
    }
    if (total > sim_env_size("MTLSIM_DUMP_BYTES", 16ul << 20)) return;

    NSString *path = [NSString stringWithFormat:@"%s/%s-%d-%lu.dump", folder, fn->kernel->name, (int)getpid(), ++*n];
    FILE *f = fopen([path UTF8String], "wb");
    if (!f) sim_die("MTLSIM_DUMP: cannot write %s", [path UTF8String]);
    fwrite(MSL_DUMP_MAGIC, 1, 8, f);
    text(f, [fn->library->path UTF8String]);
    text(f, fn->kernel->name);
    word(f, (uint32_t)[fn->constants count]);
    for (SimConstant *v in fn->constants) {
        text(f, [v->name UTF8String]);
        word(f, (uint32_t)v->index);
        word(f, (uint32_t)v->size);
        fwrite(v->value, 1, 16, f);
    }
    const MTLSize sizes[2] = { c->grid, c->threadgroup };
    for (int i = 0; i < 2; i++) {
        word(f, (uint32_t)sizes[i].width);
        word(f, (uint32_t)sizes[i].height);
        word(f, (uint32_t)sizes[i].depth);
    }
    word(f, c->exact);
    word(f, (uint32_t)count);
    for (int r = 0; r < count; r++) {
        wide(f, regions[r].size);
        fwrite(regions[r].at, 1, regions[r].size, f);
    }
    for (int i = 0; i < MSL_BUFFERS; i++) {
        word(f, (uint32_t)of[i]);
        wide(f, of[i] < 0 ? 0 : (uint64_t)((char *)bind->buf[i] - regions[of[i]].at));
        wide(f, bind->tgsize[i]);
    }
    if (fclose(f)) sim_die("MTLSIM_DUMP: cannot write %s", [path UTF8String]);
}
