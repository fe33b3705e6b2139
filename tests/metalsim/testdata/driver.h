// The cases of the driver: the tests run each one in its own process.
#pragma once
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_case {
    const char *name;
    void (*run)(void);
};
extern const struct test_case misuses[], uses[];

extern id<MTLDevice> dev;
extern id<MTLCommandQueue> queue;

#define CHECK(x)                                                         \
    do {                                                                 \
        if (!(x)) {                                                      \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #x); \
            exit(3);                                                     \
        }                                                                \
    } while (0)

id<MTLLibrary> library(void);
id<MTLComputePipelineState> pipeline(NSString *name);
id<MTLBuffer> floats(NSUInteger n, float value);
// put binds fill, which writes value into n floats of out, and dispatches it.
void put(id<MTLComputeCommandEncoder> e, id<MTLBuffer> out, unsigned n, float value);
void add_one(id<MTLComputeCommandEncoder> e, id<MTLBuffer> in, id<MTLBuffer> out, unsigned n);
// run commits a command buffer and waits for it; finish also ends its encoder.
static inline void run(id<MTLCommandBuffer> b) {
    [b commit];
    [b waitUntilCompleted];
}
static inline void finish(id<MTLCommandEncoder> e, id<MTLCommandBuffer> b) {
    [e endEncoding];
    run(b);
}
static inline float *at(id<MTLBuffer> b) { return [b contents]; }
#define ONE MTLSizeMake(1, 1, 1)
