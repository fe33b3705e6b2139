// The contract between the Go side of package metal and the host code, the only
// part that talks to Metal. Calls come from one thread at a time. Functions that
// can fail fill `error`, of `size` bytes, with text that ends in a zero.
#ifndef RM_METAL_HOST_H
#define RM_METAL_HOST_H

#include <stddef.h>
#include <stdint.h>

typedef struct rm_metal rm_metal;

// A buffer in shared storage.
typedef struct {
	void *object;   // the MTLBuffer, retained; NULL if there is none
	void *contents; // its memory
	uint64_t length;
} rm_metal_buffer;

// What a kernel finds at an index of its buffers.
typedef struct {
	void *object;    // the MTLBuffer
	uint64_t offset; // bytes into it, a multiple of 4
} rm_metal_binding;

// The most buffers and the most bytes of arguments that a dispatch may have.
enum { RM_METAL_BINDINGS = 14, RM_METAL_ARGS = 192 };

// One dispatch.
typedef struct {
	int32_t pipeline; // as rm_metal_pipeline gave it
	int32_t barrier;  // not 0: it waits for all dispatches of the list before it
	const char *op;   // for messages; static
	uint32_t bindings, args_bytes;
	uint32_t threadgroup_bytes;     // at threadgroup index 0; a multiple of 16
	uint32_t groups[3], threads[3]; // threadgroups, and threads of each
	rm_metal_binding binding[RM_METAL_BINDINGS]; // at buffer index 1 and on
	uint8_t args[RM_METAL_ARGS];                 // at buffer index 0
} rm_metal_command;

// What the device can do.
typedef struct {
	char name[128];
	uint64_t max_buffer;      // bytes of the largest buffer
	uint64_t working_set;     // bytes that it recommends to use at most
	uint64_t page;            // to which memory of buffers without copy is aligned
	uint32_t threadgroup_max; // bytes of threadgroup memory
} rm_metal_info;

// rm_metal_open opens the system's device.
rm_metal *rm_metal_open(rm_metal_info *info, char *error, size_t size);
// rm_metal_close gives everything back but buffers, which the caller releases
// before. Nothing submitted may be running.
void rm_metal_close(rm_metal *m);

// rm_metal_library compiles source. It returns its number, or -1.
int rm_metal_library(rm_metal *m, const char *name, const char *source, char *error, size_t size);
// rm_metal_pipeline makes a pipeline of a kernel of a library. It returns its
// number, or -1, and how many threads a threadgroup of it may have.
int rm_metal_pipeline(rm_metal *m, int library, const char *kernel, uint32_t *threads, char *error, size_t size);

// rm_metal_alloc makes a buffer of n bytes of zeros.
rm_metal_buffer rm_metal_alloc(rm_metal *m, uint64_t n);
// rm_metal_wrap makes a buffer of memory that stays the caller's, page-aligned
// at both ends.
rm_metal_buffer rm_metal_wrap(rm_metal *m, void *memory, uint64_t n);
// rm_metal_release gives a buffer back. Nothing submitted may use it.
void rm_metal_release(rm_metal *m, rm_metal_buffer b);

// rm_metal_submit encodes n dispatches into a command buffer and commits it.
int rm_metal_submit(rm_metal *m, const rm_metal_command *list, size_t n, const char *label, char *error, size_t size);
// How rm_metal_wait waits for the device: it looks at the event that the last
// command buffer signals, for spin_us microseconds at most, and then sleeps.
// With block set it calls waitUntilCompleted at once, which knows no deadline.
typedef struct {
	uint32_t spin_us;
	uint32_t deadline_ms;
	int32_t block;
} rm_metal_patience;

// rm_metal_wait waits for all that was submitted. It returns 0; -1 if a command
// buffer failed since the last call, error tells of the first; -2 if the device
// did not finish in time.
int rm_metal_wait(rm_metal *m, rm_metal_patience patience, char *error, size_t size);

#endif
