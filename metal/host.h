// The interface between the Go side of package metal and the host code, the only
// part that calls Metal. One thread at a time calls these functions. Those that
// can fail write a NUL-terminated message to `error`, of `size` bytes.
#ifndef RMM_HOST_H
#define RMM_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "device.h"

// The device. It begins with an rmg_device, whose driver allocates in shared storage.
typedef struct rmm_device rmm_device;

// How the memory that the GPU uses is kept wired: see residency.h.
typedef struct {
	uint32_t renew_ms;
	uint64_t keep_ms;
} rmm_keep;

// Limits of the device.
typedef struct {
	char name[128];
	int32_t unsuitable;       // rmm_open: the host has no GPU or system for the kernels
	uint64_t max_buffer;      // bytes of the largest buffer
	uint64_t working_set;     // recommended maximum of bytes in use
	uint64_t page;            // alignment of the memory of no-copy buffers
	uint32_t threadgroup_max; // bytes of threadgroup memory
} rmm_info;

// rmm_open opens the system's device. It fails, with info->unsuitable set, where the
// kernels cannot run: without a device, on an older GPU than Apple's M1, or on an
// older system than macOS 14.
rmm_device *rmm_open(rmm_info *info, rmm_keep keep, char *error, size_t size);
// rmm_close releases everything but the buffers, which the caller has released
// before. No submitted command buffer may be running.
void rmm_close(rmm_device *m);

// rmm_library compiles source. It returns the library's index, or -1.
int rmm_library(rmm_device *m, const char *name, const char *source, char *error, size_t size);
// rmm_pipeline makes a pipeline of a kernel of a library. It returns its index, or
// -1; *threads is the maximum number of threads per threadgroup.
int rmm_pipeline(rmm_device *m, int library, const char *kernel, uint32_t *threads, char *error, size_t size);

// rmm_renewed reports whether a thread keeps the memory of the GPU wired.
int rmm_renewed(rmm_device *m);

#endif
