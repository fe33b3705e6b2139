//go:build linux && cgo

// Memory of the device. Drivers allow few allocations (4096 in all), so small buffers
// share arenas; a large buffer has an arena of its own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { ARENA = 64 << 20, // bytes of a shared arena
	   GRAIN = 256 };    // alignment of parts: a line of caches, and more than 64

// A gap of an arena.
typedef struct {
	uint64_t offset, bytes;
} gap;

struct rmvk_arena {
	rmvk_arena *next;
	enum rmvk_kind kind;
	VkDeviceMemory memory;
	VkBuffer buffer;
	uint64_t bytes, address;
	uint8_t *contents; // NULL: the host does not see it
	uint32_t parts;
	gap *gaps; // ascending, never adjacent
	uint32_t gap_count, gap_room;
};

// find_type is the first memory type with all of the flags, -1 if there is none. Drivers
// list the faster ones first. Types of heaps smaller than `least` bytes do not count.
static int find_type(const VkPhysicalDeviceMemoryProperties *m, VkMemoryPropertyFlags flags, uint64_t least) {
	for (uint32_t i = 0; i < m->memoryTypeCount; i++)
		if ((m->memoryTypes[i].propertyFlags & flags) == flags && m->memoryHeaps[m->memoryTypes[i].heapIndex].size >= least) return (int)i;
	return -1;
}

int rmvk_choose_types(rmvk_device *d, char *error, size_t size) {
	const VkPhysicalDeviceMemoryProperties *m = &d->memory;
	const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
	const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	d->type[RMV_LOCAL] = find_type(m, local, d->info.heap);
	if (d->info.unified && find_type(m, local | host, d->info.heap) >= 0) d->type[RMV_LOCAL] = find_type(m, local | host, d->info.heap);
	d->type[RMV_HOST] = find_type(m, host | cached, 0);
	if (d->type[RMV_HOST] < 0) d->type[RMV_HOST] = find_type(m, host, 0);
	// Of a device whose memory the host sees in a window of 256 MiB only, buffers are in the
	// host's memory.
	const uint64_t window = (uint64_t)256 << 20;
	d->type[RMV_SHARED] = d->info.unified ? find_type(m, local | host | cached, d->info.heap) : -1;
	if (d->type[RMV_SHARED] < 0) d->type[RMV_SHARED] = find_type(m, local | host, d->info.unified ? d->info.heap : window + 1);
	if (d->type[RMV_SHARED] < 0) d->type[RMV_SHARED] = d->type[RMV_HOST];
	if (d->type[RMV_LOCAL] < 0 || d->type[RMV_HOST] < 0) {
		snprintf(error, size, "the GPU \"%s\" has no memory that the host sees", d->info.name);
		return -1;
	}
	return 0;
}

// free_arena returns the memory of an arena that has no parts.
static void free_arena(rmvk_device *d, rmvk_arena *a) {
	for (rmvk_arena **at = &d->arenas[a->kind]; *at != NULL; at = &(*at)->next) {
		if (*at == a) {
			*at = a->next;
			d->used[a->kind] -= a->bytes;
			break;
		}
	}
	if (a->buffer != VK_NULL_HANDLE) d->f.vkDestroyBuffer(d->device, a->buffer, NULL);
	if (a->memory != VK_NULL_HANDLE) d->f.vkFreeMemory(d->device, a->memory, NULL);
	free(a->gaps);
	free(a);
}

// new_arena makes an arena of n bytes, of the caller's memory if that is not NULL. NULL
// with the reason in d->why.
static rmvk_arena *new_arena(rmvk_device *d, enum rmvk_kind kind, uint64_t n, void *import) {
	static const char *const names[RMV_KINDS] = {"its own memory", "memory that it shares with the host", "the host's memory"};
	rmvk_arena *a = calloc(1, sizeof *a);
	if (a == NULL) {
		snprintf(d->why, sizeof d->why, "no memory");
		return NULL;
	}
	a->kind = kind;
	a->bytes = n;
	VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
	VkBufferCreateInfo buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .pNext = import ? &external : NULL, .size = n,
	                             .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
	VkImportMemoryHostPointerInfoEXT pointer = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, .pHostPointer = import};
	VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, .pNext = import ? &pointer : NULL, .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
	VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags};
	VkMemoryHostPointerPropertiesEXT properties = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
	VkMemoryRequirements needs;
	int type = d->type[kind];
	VkResult r = d->f.vkCreateBuffer(d->device, &buffer, NULL, &a->buffer);
	if (r != VK_SUCCESS) goto failed;
	d->f.vkGetBufferMemoryRequirements(d->device, a->buffer, &needs);
	if (import != NULL) {
		r = d->f.vkGetMemoryHostPointerPropertiesEXT(d->device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, import, &properties);
		if (r != VK_SUCCESS) goto failed;
		type = -1;
		for (uint32_t i = 0; i < d->memory.memoryTypeCount && type < 0; i++)
			if (properties.memoryTypeBits >> i & needs.memoryTypeBits >> i & 1) type = (int)i;
	}
	if (type < 0 || !(needs.memoryTypeBits >> type & 1)) {
		r = VK_ERROR_FEATURE_NOT_PRESENT;
		goto failed;
	}
	memory.allocationSize = import ? n : needs.size;
	memory.memoryTypeIndex = (uint32_t)type;
	r = d->f.vkAllocateMemory(d->device, &memory, NULL, &a->memory);
	if (r == VK_SUCCESS) r = d->f.vkBindBufferMemory(d->device, a->buffer, a->memory, 0);
	if (r == VK_SUCCESS && import == NULL && (d->memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)) {
		void *p = NULL;
		r = d->f.vkMapMemory(d->device, a->memory, 0, VK_WHOLE_SIZE, 0, &p);
		a->contents = p;
	}
	if (r != VK_SUCCESS) goto failed;
	a->address = d->f.vkGetBufferDeviceAddress(d->device, &(VkBufferDeviceAddressInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = a->buffer});
	a->next = d->arenas[kind];
	d->arenas[kind] = a;
	d->used[kind] += n;
	return a;
failed:
	snprintf(d->why, sizeof d->why, "the GPU \"%s\" refuses %llu bytes of %s beside the %llu that this program has of it (%s); the heap has %llu bytes, and %llu were free at the start: use a smaller --ctx or --max-batch, or end other programs that use the GPU",
	         d->info.name, (unsigned long long)n, import ? "the host's mapped memory" : names[kind], (unsigned long long)d->used[kind], rmvk_result(r),
	         (unsigned long long)d->memory.memoryHeaps[d->memory.memoryTypes[type < 0 ? 0 : type].heapIndex].size, (unsigned long long)d->info.budget);
	free_arena(d, a);
	return NULL;
}

// take takes n bytes, a multiple of GRAIN, of an arena's first gap that holds them. It
// returns 0 or -1.
static int take(rmvk_arena *a, uint64_t n, uint64_t *offset) {
	for (uint32_t i = 0; i < a->gap_count; i++) {
		gap *g = &a->gaps[i];
		if (g->bytes < n) continue;
		*offset = g->offset;
		g->offset += n;
		g->bytes -= n;
		if (g->bytes == 0) memmove(g, g + 1, (--a->gap_count - i) * sizeof *g);
		return 0;
	}
	return -1;
}

// give returns n bytes to an arena, whose room for gaps is enough: see part_of.
static void give(rmvk_arena *a, uint64_t offset, uint64_t n) {
	uint32_t i = 0;
	while (i < a->gap_count && a->gaps[i].offset < offset) i++;
	int before = i > 0 && a->gaps[i - 1].offset + a->gaps[i - 1].bytes == offset;
	int behind = i < a->gap_count && offset + n == a->gaps[i].offset;
	if (before && behind) {
		a->gaps[i - 1].bytes += n + a->gaps[i].bytes;
		memmove(&a->gaps[i], &a->gaps[i + 1], (--a->gap_count - i) * sizeof *a->gaps);
	} else if (before) {
		a->gaps[i - 1].bytes += n;
	} else if (behind) {
		a->gaps[i].offset = offset;
		a->gaps[i].bytes += n;
	} else {
		memmove(&a->gaps[i + 1], &a->gaps[i], (a->gap_count++ - i) * sizeof *a->gaps);
		a->gaps[i] = (gap){offset, n};
	}
}

// part_of makes a part of n bytes of an arena with room for it, at offset.
static rmg_buffer part_of(rmvk_device *d, rmvk_arena *a, uint64_t offset, uint64_t taken, uint64_t n) {
	rmg_buffer none = {NULL, NULL, 0};
	rmvk_part *p = malloc(sizeof *p);
	// n parts leave at most n+1 gaps.
	if (p != NULL && a->parts + 2 > a->gap_room) {
		uint32_t room = 2 * (a->parts + 2);
		gap *gaps = realloc(a->gaps, room * sizeof *gaps);
		if (gaps != NULL) {
			a->gaps = gaps;
			a->gap_room = room;
		} else {
			free(p);
			p = NULL;
		}
	}
	if (p == NULL) {
		snprintf(d->why, sizeof d->why, "no memory");
		return none;
	}
	a->parts++;
	*p = (rmvk_part){a, offset, taken, a->address + offset};
	return (rmg_buffer){p, a->contents == NULL ? NULL : a->contents + offset, n};
}

// reserve is alloc without zeros.
static rmg_buffer reserve(rmvk_device *d, enum rmvk_kind kind, uint64_t n) {
	rmg_buffer none = {NULL, NULL, 0};
	if (n > d->info.max_buffer - GRAIN) {
		snprintf(d->why, sizeof d->why, "the largest buffer of the GPU \"%s\" has %llu bytes, not %llu", d->info.name, (unsigned long long)d->info.max_buffer, (unsigned long long)n);
		return none;
	}
	uint64_t bytes = (n + GRAIN - 1) / GRAIN * GRAIN, offset = 0;
	if (bytes == 0) bytes = GRAIN;
	rmvk_arena *a = NULL;
	if (bytes <= ARENA / 4) {
		for (a = d->arenas[kind]; a != NULL; a = a->next)
			if (take(a, bytes, &offset) == 0) break;
	}
	if (a == NULL) {
		uint64_t whole = bytes <= ARENA / 4 ? ARENA : bytes;
		if ((a = new_arena(d, kind, whole, NULL)) == NULL) return none;
		if (whole > bytes) {
			if ((a->gaps = malloc(4 * sizeof *a->gaps)) == NULL) {
				snprintf(d->why, sizeof d->why, "no memory");
				free_arena(d, a);
				return none;
			}
			a->gap_room = 4;
			a->gap_count = 1;
			a->gaps[0] = (gap){bytes, whole - bytes};
		}
	}
	rmg_buffer b = part_of(d, a, offset, bytes, n);
	if (b.object == NULL) {
		if (a->parts == 0) free_arena(d, a);
		else give(a, offset, bytes); // room: the part that it was has made none
	}
	return b;
}

rmg_buffer rmvk_alloc(rmvk_device *d, enum rmvk_kind kind, uint64_t n) {
	rmg_buffer b = reserve(d, kind, n);
	if (b.contents != NULL) memset(b.contents, 0, n);
	return b;
}

void rmvk_release(rmvk_device *d, rmg_buffer b) {
	rmvk_part *p = b.object;
	if (p == NULL) return;
	rmvk_arena *a = p->arena;
	if (--a->parts == 0) free_arena(d, a);
	else give(a, p->offset, p->bytes);
	free(p);
}

// Bytes of each half of the staging buffer.
static const uint64_t HALF = 16 << 20;

static int copy_failed(rmvk_device *d, VkResult r) {
	rmvk_note(d, "the execution", "copy of weights", r);
	snprintf(d->why, sizeof d->why, "%s", d->failure);
	return -1;
}

// copy_in copies the host's memory to a buffer that the host does not see, in halves of a
// staging buffer: while the device reads one, the host fills the other. It returns 0 or -1.
static int copy_in(rmvk_device *d, rmvk_part *to, const uint8_t *memory, uint64_t n) {
	if (d->staging.object == NULL) d->staging = reserve(d, RMV_HOST, 2 * HALF);
	if (d->staging.object == NULL) return -1;
	rmvk_part *staging = d->staging.object;
	uint64_t busy[2] = {0, 0}; // values of the timeline until which a half is read
	int half = 0;
	for (uint64_t at = 0; at < n; at += HALF, half ^= 1) {
		uint64_t some = n - at < HALF ? n - at : HALF;
		VkResult r = rmvk_reach(d, busy[half], 0, 60000);
		if (r != VK_SUCCESS) return copy_failed(d, r);
		memcpy((uint8_t *)d->staging.contents + (uint64_t)half * HALF, memory + at, some);
		rmvk_slot *slot = rmvk_begin(d, d->why, sizeof d->why);
		if (slot == NULL) return -1;
		snprintf(slot->label, sizeof slot->label, "copy of weights");
		VkBufferCopy region = {staging->offset + (uint64_t)half * HALF, to->offset + at, some};
		d->f.vkCmdCopyBuffer(slot->commands, staging->arena->buffer, to->arena->buffer, 1, &region);
		if (rmvk_commit(d, slot, d->why, sizeof d->why) != 0) return -1;
		busy[half] = d->submitted;
	}
	// The staging buffer may be used again at once.
	VkResult r = rmvk_reach(d, d->submitted, 100, 60000);
	return r == VK_SUCCESS ? 0 : copy_failed(d, r);
}

rmg_buffer rmvk_wrap(rmvk_device *d, void *memory, uint64_t n) {
	rmg_buffer none = {NULL, NULL, 0};
	if (d->info.imports) {
		rmvk_arena *a = new_arena(d, RMV_HOST, n, memory);
		if (a != NULL) {
			rmg_buffer b = part_of(d, a, 0, n, n);
			if (b.object == NULL) free_arena(d, a);
			b.contents = memory;
			return b;
		}
		// A driver may refuse memory that is mapped from a file (amdgpu does); it then
		// refuses every file.
		d->info.imports = 0;
	}
	rmg_buffer b = reserve(d, RMV_LOCAL, n);
	if (b.object == NULL) return none;
	if (b.contents != NULL && d->info.unified) {
		memcpy(b.contents, memory, n);
	} else if (copy_in(d, b.object, memory, n) != 0) {
		rmvk_release(d, b);
		return none;
	}
	return b;
}

void rmvk_free_staging(rmvk_device *d) {
	rmvk_release(d, d->staging);
	d->staging = (rmg_buffer){NULL, NULL, 0};
}
