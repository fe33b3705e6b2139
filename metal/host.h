// The contract between the Go side of package metal and the host code, the only
// part that talks to Metal. Calls come from one thread at a time. Functions that
// can fail fill `error`, of `size` bytes, with text that ends in a zero.
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

// What a kernel finds at an index of its buffers.
typedef struct {
	void *object;    // the MTLBuffer
	uint64_t offset; // bytes into it, a multiple of 4
} rmm_binding;

// The most buffers and the most bytes of arguments that a dispatch may have.
enum { RMM_BINDINGS = 14, RMM_ARGS = 192 };

// One dispatch.
typedef struct {
	int32_t pipeline; // as rmm_pipeline gave it
	int32_t barrier;  // not 0: it waits for all dispatches of the list before it
	const char *op;   // for messages; static
	uint32_t bindings, args_bytes;
	uint32_t threadgroup_bytes;     // at threadgroup index 0; a multiple of 16
	uint32_t groups[3], threads[3]; // threadgroups, and threads of each
	rmm_binding binding[RMM_BINDINGS]; // at buffer index 1 and on
	uint8_t args[RMM_ARGS];                 // at buffer index 0
} rmm_command;

// What the device can do.
typedef struct {
	char name[128];
	uint64_t max_buffer;      // bytes of the largest buffer
	uint64_t working_set;     // bytes that it recommends to use at most
	uint64_t page;            // to which memory of buffers without copy is aligned
	uint32_t threadgroup_max; // bytes of threadgroup memory
} rmm_info;

// rmm_open opens the system's device.
rmm_device *rmm_open(rmm_info *info, char *error, size_t size);
// rmm_close gives everything back but buffers, which the caller releases
// before. Nothing submitted may be running.
void rmm_close(rmm_device *m);

// rmm_library compiles source. It returns its number, or -1.
int rmm_library(rmm_device *m, const char *name, const char *source, char *error, size_t size);
// rmm_pipeline makes a pipeline of a kernel of a library. It returns its
// number, or -1, and how many threads a threadgroup of it may have.
int rmm_pipeline(rmm_device *m, int library, const char *kernel, uint32_t *threads, char *error, size_t size);

// rmm_alloc makes a buffer of n bytes of zeros.
rmm_buffer rmm_alloc(rmm_device *m, uint64_t n);
// rmm_wrap makes a buffer of memory that stays the caller's, page-aligned
// at both ends.
rmm_buffer rmm_wrap(rmm_device *m, void *memory, uint64_t n);
// rmm_release gives a buffer back. Nothing submitted may use it.
void rmm_release(rmm_device *m, rmm_buffer b);

// rmm_submit encodes n dispatches into a command buffer and commits it.
int rmm_submit(rmm_device *m, const rmm_command *list, size_t n, const char *label, char *error, size_t size);
// How rmm_wait waits for the device: it looks at the event that the last
// command buffer signals, for spin_us microseconds at most, and then sleeps.
// With block set it calls waitUntilCompleted at once, which knows no deadline.
typedef struct {
	uint32_t spin_us;
	uint32_t deadline_ms;
	int32_t block;
} rmm_wait_policy;

// rmm_wait waits for all that was submitted. It returns 0; -1 if a command
// buffer failed since the last call, error tells of the first; -2 if the device
// did not finish in time.
int rmm_wait(rmm_device *m, rmm_wait_policy patience, char *error, size_t size);

#endif
