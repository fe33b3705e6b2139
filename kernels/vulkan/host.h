// The interface between the Go side of package vulkan and the host code in C, the only
// part that calls Vulkan. A device is used by one thread at a time. Functions that can fail
// write a NUL-terminated message to `error`, of `size` bytes.
#ifndef RMV_HOST_H
#define RMV_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "../gpu/device.h"

// A heap of a device's memory.
typedef struct {
	uint64_t bytes, budget; // as heap and budget below
	int32_t local;          // it is the device's own, not the host's
} rmvk_heap;

enum { RMV_HEAPS = 16 }; // VK_MAX_MEMORY_HEAPS

// What a device is and can do.
typedef struct {
	char name[256];
	char driver[512];       // name and version
	uint8_t cache_uuid[16]; // changes with the driver's build
	uint32_t api;
	int32_t type; // VkPhysicalDeviceType

	int32_t unified; // host and device share one memory
	int32_t imports; // wrap needs no copy: the device reads the host's memory
	// The largest heap of the device and how much of it this process may use now; whether
	// the latter is the driver's word or a guess.
	uint64_t heap, budget;
	int32_t budget_known;
	rmvk_heap heaps[RMV_HEAPS];
	uint32_t heap_count;
	uint64_t visible; // bytes of the device's own memory that the host sees, 0 if unified
	uint64_t max_buffer, page;

	uint32_t shared_max, threads_max;
	uint32_t subgroup_min, subgroup_max;
	int32_t subgroups; // 1: a kernel can have subgroups of 32
	int32_t nan_preserve, denorm_preserve, nearest; // modes that a kernel may ask for, in float32
	int32_t dot8; // products of four bytes are one instruction
	uint32_t groups_max[3]; // workgroups of a dispatch

	char missing[512]; // what the kernels need and it does not have, "" if nothing
} rmvk_info;

typedef struct rmvk_device rmvk_device;

// rmvk_list lists up to `most` devices. It returns their number, or -1 without a loader or
// drivers.
int rmvk_list(rmvk_info *list, int most, char *error, size_t size);

// rmvk_open opens a device of rmvk_list. The first member of a device is the rmg_device.
rmvk_device *rmvk_open(int number, rmvk_info *info, char *error, size_t size);
// rmvk_close releases everything but the buffers, which the caller has released before.
// Nothing that was submitted may be running.
void rmvk_close(rmvk_device *d);

// rmvk_module loads a SPIR-V module. It returns its number, or -1.
int rmvk_module(rmvk_device *d, const uint32_t *code, size_t bytes, char *error, size_t size);
// rmvk_kernel adds a kernel: a module, and the values of its specialization constants from
// number `first` on. Its pipelines are made when first submitted, one for each number of
// threads and size of shared memory. It returns the kernel's number, or -1. A kernel of
// module -1 fails when it is submitted.
int rmvk_kernel(rmvk_device *d, const char *name, int module, const uint32_t *constants, uint32_t first, uint32_t count);
// rmvk_fused sets the specialization constant FUSED of pipelines that are made from now on.
void rmvk_fused(rmvk_device *d, uint32_t fused);

// rmvk_pipelines is the number of pipelines that were made.
uint32_t rmvk_pipelines(rmvk_device *d);

#endif
