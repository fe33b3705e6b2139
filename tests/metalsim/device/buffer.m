// Buffers. New memory is filled with 0xAA and freed memory with 0xDD: on a real
// device it is often zero, and no code may rely on that.
#define _GNU_SOURCE
#import "sim.h"
#include <Block.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

@implementation SimBuffer
@synthesize length, label;

- (void *)contents {
    return (options & MTLResourceStorageModePrivate) ? NULL : bytes;
}

- (id<MTLDevice>)device {
    return device;
}

- (MTLStorageMode)storageMode {
    return (MTLStorageMode)(options >> 4 & 15);
}

- (MTLResourceOptions)resourceOptions {
    return options;
}

- (NSUInteger)allocatedSize {
    return (length + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
}

- (void)checkGuard:(const char *)who {
    for (int i = 0; i < guard; i++) {
        if ((unsigned char)bytes[length + i] != 0xA5)
            sim_die("%s: buffer '%s' of %lu bytes was written %d bytes behind its end", who, [label UTF8String] ?: "", (unsigned long)length, i);
    }
}

- (void)dealloc {
    if (residencySets) sim_die("buffer '%s' is released while a residency set holds it", [label UTF8String] ?: "");
    sim_died(self);
    if (own) {
        [self checkGuard:"release"];
        memset(bytes, 0xdd, length);
        free(bytes);
    }
    if (deallocator) {
        deallocator(bytes, length);
        Block_release(deallocator);
    }
    pthread_mutex_lock(&sim_mu);
    device->allocated -= [self allocatedSize];
    pthread_mutex_unlock(&sim_mu);
    [label release];
    [super dealloc];
}
@end

SimBuffer *sim_buffer(SimDevice *device, void *memory, NSUInteger n, MTLResourceOptions o) {
    MTLResourceOptions mode = o & 0xf0, hazard = o & 0x300;
    if (mode != MTLResourceStorageModeShared && mode != MTLResourceStorageModePrivate)
        sim_die("newBuffer: storage mode %lu is neither shared nor private", (unsigned long)mode >> 4);
    if (hazard == 0x300 || (o & ~0x3fful) || (o & 15) > 1) sim_die("newBuffer: options %lx", (unsigned long)o);
    if (n == 0 || n > [device maxBufferLength]) return nil;
    SimBuffer *b = [[SimBuffer alloc] init];
    b->length = n;
    b->options = o;
    b->device = device;
    b->bytes = memory;
    if (!memory) {
        // Under AddressSanitizer the allocation ends where the buffer ends.
        b->guard = dlsym(RTLD_DEFAULT, "__asan_init") ? 0 : SIM_GUARD;
        b->own = YES;
        if (posix_memalign((void **)&b->bytes, SIM_PAGE, n + b->guard)) {
            b->bytes = NULL;
            sim_die("newBuffer: no memory for %lu bytes", (unsigned long)n);
        }
        memset(b->bytes, 0xaa, n);
        memset(b->bytes + n, 0xa5, b->guard);
    }
    pthread_mutex_lock(&sim_mu);
    device->allocated += [b allocatedSize];
    pthread_mutex_unlock(&sim_mu);
    sim_born(b);
    return b;
}
