// driver CASE: runs one case. A case that must abort but returns exits with 4.
#include "driver.h"

id<MTLDevice> dev;
id<MTLCommandQueue> queue;

id<MTLLibrary> library(void) {
    static id<MTLLibrary> l;
    if (l) return l;
    NSString *text = [NSString stringWithContentsOfFile:[NSString stringWithUTF8String:getenv("DRIVER_SOURCE")] encoding:NSUTF8StringEncoding error:NULL];
    NSError *e = nil;
    l = [dev newLibraryWithSource:text options:nil error:&e];
    if (!l) fprintf(stderr, "%s\n", [[e localizedDescription] UTF8String]);
    CHECK(l);
    return l;
}

id<MTLComputePipelineState> pipeline(NSString *name) {
    id<MTLFunction> f = [library() newFunctionWithName:name];
    CHECK(f);
    id<MTLComputePipelineState> p = [dev newComputePipelineStateWithFunction:f error:NULL];
    [f release];
    return p;
}

id<MTLBuffer> floats(NSUInteger n, float value) {
    id<MTLBuffer> b = [dev newBufferWithLength:n * 4 options:MTLResourceStorageModeShared];
    for (NSUInteger i = 0; i < n; i++) at(b)[i] = value;
    return b;
}

void put(id<MTLComputeCommandEncoder> e, id<MTLBuffer> out, unsigned n, float value) {
    struct {
        unsigned n;
        float value;
    } s = { n, value };
    static id<MTLComputePipelineState> p;
    if (!p) p = pipeline(@"fill");
    [e setComputePipelineState:p];
    [e setBytes:&s length:sizeof s atIndex:0];
    [e setBuffer:out offset:0 atIndex:1];
    [e dispatchThreads:MTLSizeMake(n, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
}

void add_one(id<MTLComputeCommandEncoder> e, id<MTLBuffer> in, id<MTLBuffer> out, unsigned n) {
    static id<MTLComputePipelineState> p;
    if (!p) p = pipeline(@"copy");
    [e setComputePipelineState:p];
    [e setBuffer:in offset:0 atIndex:0];
    [e setBuffer:out offset:0 atIndex:1];
    [e dispatchThreads:MTLSizeMake(n, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
}

int main(int argc, char **argv) {
    @autoreleasepool {
        if (argc == 1) {
            for (const struct test_case *c = misuses; c->name; c++) printf("misuse %s\n", c->name);
            for (const struct test_case *c = uses; c->name; c++) printf("use %s\n", c->name);
            return 0;
        }
        dev = MTLCreateSystemDefaultDevice();
        if (!dev) return strcmp(argv[1], "no device") ? 2 : 0;
        queue = [dev newCommandQueue];
        for (const struct test_case *c = uses; c->name; c++) {
            if (strcmp(c->name, argv[1])) continue;
            c->run();
            return 0;
        }
        for (const struct test_case *c = misuses; c->name; c++) {
            if (strcmp(c->name, argv[1])) continue;
            c->run();
            return 4;
        }
    }
    return 2;
}
