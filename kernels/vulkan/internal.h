// What the files of the host code share.
#ifndef RMV_INTERNAL_H
#define RMV_INTERNAL_H

#include "host.h"
#include "loader.h"

// The kinds of memory.
enum rmvk_kind {
	RMV_LOCAL,  // the device's own, which the host need not see: weights
	RMV_SHARED, // the device reads it fast, the host sees it
	RMV_HOST,   // the host reads it fast, the device sees it
	RMV_KINDS,
};

typedef struct rmvk_arena rmvk_arena;

// An object of rmg_buffer: a part of an arena, or all of an imported one.
typedef struct {
	rmvk_arena *arena;
	uint64_t offset, bytes;
	uint64_t address; // on the device
} rmvk_part;

// A pipeline of a kernel for a number of threads and a size of shared memory.
typedef struct {
	uint32_t threads, shared;
	VkPipeline pipeline;
} rmvk_variant;

typedef struct {
	char name[64];
	int module;
	uint32_t *constants;
	uint32_t first, count;
	rmvk_variant *variants;
	uint32_t variant_count;
} rmvk_compute;

// A command buffer, which is free again when the timeline has reached value.
typedef struct {
	VkCommandPool pool;
	VkCommandBuffer commands;
	uint64_t value;
	rmg_buffer args; // of its dispatches
	char label[128];
} rmvk_slot;

enum { RMV_SLOTS = 32 };

struct rmvk_device {
	rmg_device head;
	rmvk_functions f;
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	VkQueue queue;
	uint32_t family;
	rmvk_info info;
	VkPhysicalDeviceMemoryProperties memory;
	int type[RMV_KINDS]; // memory type of each kind
	rmvk_arena *arenas[RMV_KINDS];
	uint64_t used[RMV_KINDS]; // bytes
	rmg_buffer staging;       // for copies to RMV_LOCAL, made when first needed
	char why[1024];           // the last alloc or wrap failed

	VkShaderModule *modules;
	int module_count;
	rmvk_compute *kernels;
	int kernel_count;
	uint32_t pipelines;
	uint32_t fused;
	VkPipelineLayout layout;

	VkSemaphore timeline;
	uint64_t submitted, waited; // values of the timeline: of the last submit, and known to be reached
	rmvk_slot slots[RMV_SLOTS];
	rmvk_slot *encoded; // recorded and not submitted, NULL if there is none
	int failed;         // a submit or a wait has failed
	char failure[1024]; // the first one
};

// rmvk_inspect fills info of a physical device.
void rmvk_inspect(const rmvk_functions *f, VkPhysicalDevice p, rmvk_info *info);
// rmvk_choose_types chooses the memory types of the kinds. It returns 0 or -1.
int rmvk_choose_types(rmvk_device *d, char *error, size_t size);

rmg_buffer rmvk_alloc(rmvk_device *d, enum rmvk_kind kind, uint64_t n);
rmg_buffer rmvk_wrap(rmvk_device *d, void *memory, uint64_t n);
void rmvk_release(rmvk_device *d, rmg_buffer b);
// rmvk_free_staging releases what rmvk_wrap keeps.
void rmvk_free_staging(rmvk_device *d);

// rmvk_variant_of returns the pipeline of a kernel for a command, NULL with an error.
VkPipeline rmvk_variant_of(rmvk_device *d, int kernel, uint32_t threads, uint32_t shared, char *error, size_t size);
void rmvk_free_kernels(rmvk_device *d);

// rmvk_note records the first failure of what was done with a command buffer.
void rmvk_note(rmvk_device *d, const char *what, const char *label, VkResult r);
// rmvk_encode records a command buffer, d->encoded.
int rmvk_encode(rmvk_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size);
int rmvk_wait(rmvk_device *d, rmg_wait_policy policy, char *error, size_t size);
// rmvk_begin waits for a free command buffer and begins it; NULL with an error.
rmvk_slot *rmvk_begin(rmvk_device *d, char *error, size_t size);
// rmvk_commit ends and submits it. It returns 0 or -1.
int rmvk_commit(rmvk_device *d, rmvk_slot *slot, char *error, size_t size);
// rmvk_reach waits until the timeline has reached value. It returns VK_SUCCESS, VK_TIMEOUT
// or a failure.
VkResult rmvk_reach(rmvk_device *d, uint64_t value, uint32_t spin_us, uint64_t deadline_ms);
void rmvk_free_slots(rmvk_device *d);

#endif
