// The interface between package gpu and a device: a table of functions that every device
// has at its beginning. One thread at a time calls them. Those that can fail write a
// NUL-terminated message to `error`, of `size` bytes.
#ifndef RMG_DEVICE_H
#define RMG_DEVICE_H

#include <stddef.h>
#include <stdint.h>

// A buffer of the device.
typedef struct {
	void *object;   // the device's own, NULL if there is none
	void *contents; // its memory as the host sees it, NULL if the host does not see it
	uint64_t length;
} rmg_buffer;

// A buffer argument of a kernel.
typedef struct {
	void *object;    // of an rmg_buffer
	uint64_t offset; // bytes into it, a multiple of 4
} rmg_binding;

// Maximum number of buffers, and maximum bytes of arguments, per dispatch. 15 addresses and that
// of the arguments are the 128 bytes of push constants that every Vulkan device has.
enum { RMG_BINDINGS = 15,
	   RMG_ARGS = 192 };

// One dispatch.
typedef struct {
	int32_t pipeline; // its number
	int32_t barrier;  // nonzero: wait for all dispatches before it in the order
	const char *op;   // for messages; not copied
	uint32_t bindings, args_bytes;
	uint32_t threadgroup_bytes;     // of dynamic threadgroup memory; a multiple of 16
	uint32_t groups[3], threads[3]; // threadgroups, and threads per threadgroup
	rmg_binding binding[RMG_BINDINGS]; // the kernel's buffers from 1 on
	uint8_t args[RMG_ARGS];            // its buffer 0
} rmg_command;

// How wait waits: it polls for up to spin_us microseconds, then sleeps until deadline_ms
// have passed. With block set it waits in the driver instead, without a deadline. With
// results set it returns as soon as the results are there, and a later wait may report the
// failure; otherwise it also waits for the driver's word that nothing has failed.
typedef struct {
	uint32_t spin_us;
	uint32_t deadline_ms;
	int32_t block, results;
} rmg_wait_policy;

typedef struct rmg_device rmg_device;

// rmg_driver is what a device can do.
typedef struct {
	// alloc allocates n zeroed bytes that host and device see. With host set the host reads
	// them fast (they are in its caches), else the device does.
	rmg_buffer (*alloc)(rmg_device *, uint64_t n, int host);
	// wrap makes a buffer of the caller's memory, aligned to pages at both ends, which
	// stays as it is: without a copy where the device can.
	rmg_buffer (*wrap)(rmg_device *, void *memory, uint64_t n);
	// release releases a buffer, which no running command may use.
	void (*release)(rmg_device *, rmg_buffer);
	// encode encodes n dispatches in the given order, list[order[0]] first; commit starts
	// them. It returns 0, or -1 with an error. Nothing else is encoded before commit or drop.
	int (*encode)(rmg_device *, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size);
	// commit starts what was encoded. It returns 0, or -1 with an error.
	int (*commit)(rmg_device *, char *error, size_t size);
	// drop forgets what was encoded.
	void (*drop)(rmg_device *);
	// wait waits for all that was committed. It returns 0; -1 if something has failed since
	// the last call, with the first failure in error; -2 if the device did not finish before
	// the deadline.
	int (*wait)(rmg_device *, rmg_wait_policy, char *error, size_t size);
	// why is the reason of the last alloc or wrap that failed, with the cure; may be NULL.
	const char *(*why)(rmg_device *);
	// busy is how many nanoseconds the device has computed, by its own clock, in all that was
	// waited for. It returns 0 if the device does not tell; may be NULL.
	int (*busy)(rmg_device *, uint64_t *ns);
} rmg_driver;

struct rmg_device {
	const rmg_driver *driver;
};

// Go cannot call pointers of functions.
static inline rmg_buffer rmg_alloc(rmg_device *d, uint64_t n, int host) { return d->driver->alloc(d, n, host); }
static inline rmg_buffer rmg_wrap(rmg_device *d, void *memory, uint64_t n) { return d->driver->wrap(d, memory, n); }
static inline void rmg_release(rmg_device *d, rmg_buffer b) { d->driver->release(d, b); }
static inline int rmg_encode(rmg_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size) {
	return d->driver->encode(d, list, order, n, label, error, size);
}
static inline int rmg_commit(rmg_device *d, char *error, size_t size) { return d->driver->commit(d, error, size); }
static inline void rmg_drop(rmg_device *d) { d->driver->drop(d); }
static inline int rmg_wait(rmg_device *d, rmg_wait_policy policy, char *error, size_t size) {
	return d->driver->wait(d, policy, error, size);
}
static inline const char *rmg_why(rmg_device *d) { return d->driver->why == NULL ? "" : d->driver->why(d); }
static inline int rmg_busy(rmg_device *d, uint64_t *ns) { return d->driver->busy == NULL ? 0 : d->driver->busy(d, ns); }

#endif
