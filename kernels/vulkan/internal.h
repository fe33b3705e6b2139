// What the files of the host code share.
#ifndef RMV_INTERNAL_H
#define RMV_INTERNAL_H

#include "host.h"
#include "loader.h"

// The kinds of memory.
enum rmv_kind {
	RMV_LOCAL,  // the device's own, which the host need not see: weights
	RMV_SHARED, // the device reads it fast, the host sees it
	RMV_HOST,   // the host reads it fast, the device sees it
	RMV_KINDS,
};

typedef struct rmv_arena rmv_arena;

// An object of rmg_buffer: a part of an arena, or all of an imported one.
typedef struct {
	rmv_arena *arena;
	uint64_t offset, bytes;
	uint64_t address; // on the device
} rmv_part;

// A pipeline of a kernel for a number of threads and a size of shared memory.
typedef struct {
	uint32_t threads, shared;
	VkPipeline pipeline;
} rmv_variant;

typedef struct {
	char name[64];
	int module;
	uint32_t *constants;
	uint32_t first, count;
	rmv_variant *variants;
	uint32_t variant_count;
} rmv_compute;

// A command buffer, which is free again when the timeline has reached value.
typedef struct {
	VkCommandPool pool;
	VkCommandBuffer commands;
	uint64_t value;
	rmg_buffer args; // of its dispatches
	char label[128];
} rmv_slot;

enum { RMV_SLOTS = 32 };

struct rmv_device {
	rmg_device head;
	rmv_functions f;
	VkInstance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	VkQueue queue;
	uint32_t family;
	rmv_info info;
	VkPhysicalDeviceMemoryProperties memory;
	int type[RMV_KINDS]; // memory type of each kind
	rmv_arena *arenas[RMV_KINDS];
	uint64_t used[RMV_KINDS]; // bytes
	rmg_buffer staging;       // for copies to RMV_LOCAL, made when first needed
	char why[512];            // the last alloc or wrap failed

	VkShaderModule *modules;
	int module_count;
	rmv_compute *kernels;
	int kernel_count;
	uint32_t pipelines;
	uint32_t fused;
	VkPipelineLayout layout;

	VkSemaphore timeline;
	uint64_t submitted, waited; // values of the timeline: of the last submit, and known to be reached
	rmv_slot slots[RMV_SLOTS];
	int failed;         // a submit or a wait has failed
	char failure[1024]; // the first one
};

// rmv_inspect fills info of a physical device.
void rmv_inspect(const rmv_functions *f, VkPhysicalDevice p, rmv_info *info);
// rmv_choose_types chooses the memory types of the kinds. It returns 0 or -1.
int rmv_choose_types(rmv_device *d, char *error, size_t size);

rmg_buffer rmv_alloc(rmv_device *d, enum rmv_kind kind, uint64_t n);
rmg_buffer rmv_wrap(rmv_device *d, void *memory, uint64_t n);
void rmv_release(rmv_device *d, rmg_buffer b);
// rmv_free_staging releases what rmv_wrap keeps.
void rmv_free_staging(rmv_device *d);

// rmv_variant_of returns the pipeline of a kernel for a command, NULL with an error.
VkPipeline rmv_variant_of(rmv_device *d, int kernel, uint32_t threads, uint32_t shared, char *error, size_t size);
void rmv_free_kernels(rmv_device *d);

int rmv_submit(rmv_device *d, const rmg_command *list, size_t n, const char *label, char *error, size_t size);
int rmv_wait(rmv_device *d, rmg_wait_policy policy, char *error, size_t size);
// rmv_begin waits for a free command buffer and begins it; NULL with an error.
rmv_slot *rmv_begin(rmv_device *d, char *error, size_t size);
// rmv_commit ends and submits it. It returns 0 or -1.
int rmv_commit(rmv_device *d, rmv_slot *slot, char *error, size_t size);
// rmv_reach waits until the timeline has reached value. It returns VK_SUCCESS, VK_TIMEOUT
// or a failure.
VkResult rmv_reach(rmv_device *d, uint64_t value, uint32_t spin_us, uint64_t deadline_ms);
void rmv_free_slots(rmv_device *d);

#endif
