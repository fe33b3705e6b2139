// The residency set of all buffers: memory that the system keeps wired for the GPU
// while it is wanted. Idle memory is unwired even so, and wiring many gigabytes
// again takes seconds; so a thread renews the request. One thread at a time calls
// these functions.
#ifndef RMM_RESIDENCY_H
#define RMM_RESIDENCY_H

#import <Metal/Metal.h>

#include <stdint.h>

// Residency sets exist since macOS 15.
#define RMM_MACOS15 __attribute__((availability(macos, introduced = 15.0)))

typedef struct rmm_residency rmm_residency;

// rmm_residency_open makes the set of a queue and the thread that renews the request
// every renew_ms milliseconds, until keep_ms have passed since the last use (0: until
// the set is closed). It returns NULL if there is no memory or thread for them.
rmm_residency *rmm_residency_open(id<MTLDevice> device, id<MTLCommandQueue> queue, uint32_t renew_ms, uint64_t keep_ms) RMM_MACOS15;
// rmm_residency_close ends the thread and the request.
void rmm_residency_close(rmm_residency *r) RMM_MACOS15;

// rmm_residency_add adds a buffer. The next use requests it.
void rmm_residency_add(rmm_residency *r, id<MTLBuffer> b) RMM_MACOS15;
// rmm_residency_remove removes a buffer, which may then be released.
void rmm_residency_remove(rmm_residency *r, id<MTLBuffer> b) RMM_MACOS15;

// rmm_residency_use precedes each command buffer. It requests residency if the set
// has changed, or if the request is not renewed any more.
void rmm_residency_use(rmm_residency *r) RMM_MACOS15;
// rmm_residency_renewed reports whether the thread is renewing the request.
int rmm_residency_renewed(rmm_residency *r) RMM_MACOS15;

#endif
