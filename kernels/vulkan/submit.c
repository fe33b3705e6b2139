//go:build linux && cgo

// Dispatches recorded and submitted, and waiting for them.
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "internal.h"

static uint64_t microseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

// No command buffer takes longer: the layer divides work.
enum { SLOT_MS = 5 * 60 * 1000 };

VkResult rmvk_reach(rmvk_device *d, uint64_t value, uint32_t spin_us, uint64_t deadline_ms) {
	if (value <= d->waited) return VK_SUCCESS;
	uint64_t start = microseconds(), spent = 0, at = 0;
	do {
		VkResult r = d->f.vkGetSemaphoreCounterValue(d->device, d->timeline, &at);
		if (r != VK_SUCCESS) return r;
		if (at == UINT64_MAX) return VK_ERROR_DEVICE_LOST; // what lost devices report
		if (at >= value) {
			d->waited = at;
			return VK_SUCCESS;
		}
		sched_yield();
		spent = microseconds() - start;
	} while (spent < spin_us);
	uint64_t left = deadline_ms * 1000 > spent ? deadline_ms * 1000 - spent : 0;
	VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1, .pSemaphores = &d->timeline, .pValues = &value};
	VkResult r = d->f.vkWaitSemaphores(d->device, &wait, left * 1000);
	if (r == VK_SUCCESS) d->waited = value;
	return r;
}

void rmvk_note(rmvk_device *d, const char *what, const char *label, VkResult r) {
	if (d->failed) return;
	d->failed = 1;
	const char *cure = "";
	if (r == VK_ERROR_DEVICE_LOST) cure = "; the GPU was reset, by its watchdog or after an error of the driver: restart the program, use a smaller --max-batch, and look at the system's log (dmesg)";
	if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY) cure = "; use a smaller --ctx or --max-batch, and close other programs that use the GPU";
	snprintf(d->failure, sizeof d->failure, "%s of command buffer \"%s\" failed on %s: %s%s", what, label, d->info.name, rmvk_result(r), cure);
}

rmvk_slot *rmvk_begin(rmvk_device *d, char *error, size_t size) {
	rmvk_slot *slot = &d->slots[d->submitted % RMV_SLOTS];
	VkResult r = rmvk_reach(d, slot->value, 0, SLOT_MS);
	if (r == VK_SUCCESS) r = d->f.vkResetCommandPool(d->device, slot->pool, 0);
	VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
	if (r == VK_SUCCESS) r = d->f.vkBeginCommandBuffer(slot->commands, &begin);
	if (r != VK_SUCCESS) {
		rmvk_note(d, "the beginning", "the next", r);
		snprintf(error, size, "%s", d->failure);
		return NULL;
	}
	// What earlier command buffers wrote is visible to this one.
	VkMemoryBarrier before = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT, .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
	VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
	d->f.vkCmdPipelineBarrier(slot->commands, stages, stages, 0, 1, &before, 0, NULL, 0, NULL);
	return slot;
}

int rmvk_commit(rmvk_device *d, rmvk_slot *slot, char *error, size_t size) {
	VkMemoryBarrier host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT};
	d->f.vkCmdPipelineBarrier(slot->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &host, 0, NULL, 0, NULL);
	VkResult r = d->f.vkEndCommandBuffer(slot->commands);
	uint64_t value = d->submitted + 1;
	VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, .signalSemaphoreValueCount = 1, .pSignalSemaphoreValues = &value};
	VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .pNext = &timeline, .commandBufferCount = 1, .pCommandBuffers = &slot->commands, .signalSemaphoreCount = 1, .pSignalSemaphores = &d->timeline};
	if (r == VK_SUCCESS) r = d->f.vkQueueSubmit(d->queue, 1, &submit, VK_NULL_HANDLE);
	if (r != VK_SUCCESS) {
		rmvk_note(d, "the submission", slot->label, r);
		snprintf(error, size, "%s", d->failure);
		return -1;
	}
	slot->value = d->submitted = value;
	return 0;
}

// Bytes between the arguments of two dispatches.
enum { ARGS = (RMG_ARGS + 63) / 64 * 64 };

int rmvk_encode(rmvk_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size) {
	if (d->failed) {
		snprintf(error, size, "%s", d->failure);
		return -1;
	}
	// Pipelines are made before the recording begins, because that may fail.
	for (size_t i = 0; i < n; i++) {
		const rmg_command *c = &list[i];
		if (c->threads[1] != 1 || c->threads[2] != 1 || c->threads[0] % 32 != 0) {
			snprintf(error, size, "%s: %ux%ux%u threads are not simdgroups along x", c->op, c->threads[0], c->threads[1], c->threads[2]);
			return -1;
		}
		for (int k = 0; k < 3; k++) {
			if (c->groups[k] <= d->info.groups_max[k]) continue;
			snprintf(error, size, "%s: %u workgroups; the GPU \"%s\" takes %u at once: use a smaller --max-batch", c->op, c->groups[k], d->info.name, d->info.groups_max[k]);
			return -1;
		}
		if (rmvk_variant_of(d, c->pipeline, c->threads[0], c->threadgroup_bytes, error, size) == VK_NULL_HANDLE) return -1;
	}
	rmvk_slot *slot = rmvk_begin(d, error, size);
	if (slot == NULL) return -1;
	snprintf(slot->label, sizeof slot->label, "%s", label);
	if (slot->args.length < n * ARGS) {
		rmvk_release(d, slot->args);
		slot->args = rmvk_alloc(d, RMV_SHARED, n * ARGS * 2);
		if (slot->args.object == NULL) {
			d->f.vkEndCommandBuffer(slot->commands);
			snprintf(error, size, "no memory for arguments: %s", d->why);
			return -1;
		}
	}
	uint64_t args = ((rmvk_part *)slot->args.object)->address;
	VkPipeline bound = VK_NULL_HANDLE;
	for (size_t i = 0; i < n; i++) {
		const rmg_command *c = &list[order[i]];
		if (c->barrier) {
			VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT, .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
			d->f.vkCmdPipelineBarrier(slot->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
		}
		VkPipeline p = rmvk_variant_of(d, c->pipeline, c->threads[0], c->threadgroup_bytes, error, size);
		if (p != bound) d->f.vkCmdBindPipeline(slot->commands, VK_PIPELINE_BIND_POINT_COMPUTE, p);
		bound = p;
		memcpy((uint8_t *)slot->args.contents + i * ARGS, c->args, c->args_bytes);
		uint64_t push[1 + RMG_BINDINGS] = {args + i * ARGS};
		for (uint32_t k = 0; k < c->bindings; k++) push[k + 1] = ((rmvk_part *)c->binding[k].object)->address + c->binding[k].offset;
		d->f.vkCmdPushConstants(slot->commands, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 8 * (1 + c->bindings), push);
		d->f.vkCmdDispatch(slot->commands, c->groups[0], c->groups[1], c->groups[2]);
	}
	d->encoded = slot;
	return 0;
}

int rmvk_wait(rmvk_device *d, rmg_wait_policy policy, char *error, size_t size) {
	const char *last = d->submitted == 0 ? "" : d->slots[(d->submitted - 1) % RMV_SLOTS].label;
	VkResult r = rmvk_reach(d, d->submitted, policy.spin_us, policy.block ? SLOT_MS : policy.deadline_ms);
	if (r == VK_TIMEOUT) {
		snprintf(error, size, "the device %s did not finish command buffer \"%s\" in %u ms", d->info.name, last, policy.block ? (unsigned)SLOT_MS : policy.deadline_ms);
		return -2;
	}
	if (r != VK_SUCCESS) rmvk_note(d, "the execution", last, r);
	if (d->failed) {
		snprintf(error, size, "%s", d->failure);
		return -1;
	}
	return 0;
}

void rmvk_free_slots(rmvk_device *d) {
	for (int i = 0; i < RMV_SLOTS; i++) {
		rmvk_release(d, d->slots[i].args);
		if (d->slots[i].pool != VK_NULL_HANDLE) d->f.vkDestroyCommandPool(d->device, d->slots[i].pool, NULL);
	}
}
