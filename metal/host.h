// The interface between the Go side of package metal and the host code, the only
// part that calls Metal. One thread at a time calls these functions. Those that
// can fail write a NUL-terminated message to `error`, of `size` bytes.
#ifndef RMM_HOST_H
#define RMM_HOST_H

#include <stddef.h>
#include <stdint.h>

typedef struct rmm_device rmm_device;

// A buffer in shared storage.
typedef struct {
	void *object;   // the MTLBuffer, retained; NULL if there is none
	void *contents; // its memory
	uint64_t length;
} rmm_buffer;

// A buffer argument of a kernel.
typedef struct {
	void *object;    // the MTLBuffer
	uint64_t offset; // bytes into it, a multiple of 4
} rmm_binding;

// Maximum number of buffers, and maximum bytes of arguments, per dispatch.
enum { RMM_BINDINGS = 14, RMM_ARGS = 192 };

// One dispatch.
typedef struct {
	int32_t pipeline; // from rmm_pipeline
	int32_t barrier;  // nonzero: wait for all earlier dispatches of the list
	const char *op;   // for messages; not copied
	uint32_t bindings, args_bytes;
	uint32_t threadgroup_bytes;     // at threadgroup index 0; a multiple of 16
	uint32_t groups[3], threads[3]; // threadgroups, and threads per threadgroup
	rmm_binding binding[RMM_BINDINGS]; // from buffer index 1 on
	uint8_t args[RMM_ARGS];                 // at buffer index 0
} rmm_command;

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

// rmm_alloc allocates a buffer of n zeroed bytes.
rmm_buffer rmm_alloc(rmm_device *m, uint64_t n);
// rmm_wrap makes a no-copy buffer of the caller's memory, page-aligned at both
// ends.
rmm_buffer rmm_wrap(rmm_device *m, void *memory, uint64_t n);
// rmm_release releases a buffer, which no running command buffer may use.
void rmm_release(rmm_device *m, rmm_buffer b);

// rmm_submit encodes n dispatches into a command buffer and commits it.
int rmm_submit(rmm_device *m, const rmm_command *list, size_t n, const char *label, char *error, size_t size);
// How rmm_wait waits: it polls the event that the last command buffer signals for
// up to spin_us microseconds, then sleeps until deadline_ms have passed. With block
// set it calls waitUntilCompleted instead, which has no deadline.
typedef struct {
	uint32_t spin_us;
	uint32_t deadline_ms;
	int32_t block;
} rmm_wait_policy;

// rmm_renewed reports whether a thread keeps the memory of the GPU wired.
int rmm_renewed(rmm_device *m);

// rmm_wait waits for all submitted command buffers. It returns 0; -1 if one has
// failed since the last call, with the first failure in error; -2 if the device did
// not finish before the deadline.
int rmm_wait(rmm_device *m, rmm_wait_policy policy, char *error, size_t size);

#endif
