//go:build linux && cgo

// A device opened and closed, and its table for package gpu.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static rmg_buffer driver_alloc(rmg_device *d, uint64_t n, int host) {
	return rmvk_alloc((rmvk_device *)d, host ? RMV_HOST : RMV_SHARED, n);
}
static rmg_buffer driver_wrap(rmg_device *d, void *memory, uint64_t n) { return rmvk_wrap((rmvk_device *)d, memory, n); }
static void driver_release(rmg_device *d, rmg_buffer b) { rmvk_release((rmvk_device *)d, b); }
static int driver_encode(rmg_device *d, const rmg_command *list, const uint32_t *order, size_t n, const char *label, char *error, size_t size) {
	return rmvk_encode((rmvk_device *)d, list, order, n, label, error, size);
}
static int driver_commit(rmg_device *device, char *error, size_t size) {
	rmvk_device *d = (rmvk_device *)device;
	rmvk_slot *slot = d->encoded;
	d->encoded = NULL;
	return rmvk_commit(d, slot, error, size);
}
static void driver_drop(rmg_device *device) {
	rmvk_device *d = (rmvk_device *)device;
	d->f.vkEndCommandBuffer(d->encoded->commands); // it is reset when it is used again
	d->encoded = NULL;
}
static int driver_wait(rmg_device *d, rmg_wait_policy policy, char *error, size_t size) {
	return rmvk_wait((rmvk_device *)d, policy, error, size);
}
static const char *driver_why(rmg_device *d) { return ((rmvk_device *)d)->why; }
static const rmg_driver driver = {driver_alloc, driver_wrap, driver_release, driver_encode, driver_commit, driver_drop, driver_wait, driver_why, NULL};

// compute_family is the first family of queues that computes; one without graphics is
// preferred, because a desktop uses the other. -1: none.
static int compute_family(rmvk_device *d) {
	VkQueueFamilyProperties families[32];
	uint32_t n = sizeof families / sizeof *families;
	d->f.vkGetPhysicalDeviceQueueFamilyProperties(d->physical, &n, families);
	int found = -1;
	for (uint32_t i = 0; i < n; i++) {
		if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
		if (!(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) return (int)i;
		if (found < 0) found = (int)i;
	}
	return found;
}

// create makes the device with the features that the kernels use. What optional features
// there are was asked before, by rmvk_inspect.
static int create(rmvk_device *d, char *error, size_t size) {
	const rmvk_info *info = &d->info;
	int at13 = info->api >= VK_API_VERSION_1_3;
	const char *extensions[4];
	uint32_t n = 0;
	VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES, .shaderIntegerDotProduct = 1};
	VkPhysicalDeviceSubgroupSizeControlFeatures sizes = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, .subgroupSizeControl = 1, .computeFullSubgroups = 1};
	VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .storageBuffer8BitAccess = 1, .shaderInt8 = 1, .scalarBlockLayout = 1, .timelineSemaphore = 1, .bufferDeviceAddress = 1};
	VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12, .storageBuffer16BitAccess = 1};
	VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f11, .features = {.shaderInt64 = 1, .shaderInt16 = 1}};
	if (info->subgroups) {
		f12.pNext = &sizes;
		if (!at13) extensions[n++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
	}
	if (info->dot8) {
		dot.pNext = f12.pNext;
		f12.pNext = &dot;
		if (!at13) extensions[n++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
	}
	if (info->imports) extensions[n++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
	float priority = 1;
	VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = d->family, .queueCount = 1, .pQueuePriorities = &priority};
	VkDeviceCreateInfo c = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &f, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue, .enabledExtensionCount = n, .ppEnabledExtensionNames = extensions};
	VkResult r = d->f.vkCreateDevice(d->physical, &c, NULL, &d->device);
	if (r != VK_SUCCESS) {
		snprintf(error, size, "the GPU \"%s\" cannot be opened (vkCreateDevice: %s)", info->name, rmvk_result(r));
		return -1;
	}
	return rmvk_device_functions(&d->f, d->device, error, size);
}

// equip makes what every submit uses.
static int equip(rmvk_device *d, char *error, size_t size) {
	VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 8 * (1 + RMG_BINDINGS)};
	VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .pushConstantRangeCount = 1, .pPushConstantRanges = &range};
	VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
	VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
	VkResult r = d->f.vkCreatePipelineLayout(d->device, &layout, NULL, &d->layout);
	if (r == VK_SUCCESS) r = d->f.vkCreateSemaphore(d->device, &semaphore, NULL, &d->timeline);
	for (int i = 0; i < RMV_SLOTS && r == VK_SUCCESS; i++) {
		VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, .queueFamilyIndex = d->family};
		r = d->f.vkCreateCommandPool(d->device, &pool, NULL, &d->slots[i].pool);
		if (r != VK_SUCCESS) break;
		VkCommandBufferAllocateInfo a = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = d->slots[i].pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1};
		r = d->f.vkAllocateCommandBuffers(d->device, &a, &d->slots[i].commands);
	}
	if (r != VK_SUCCESS) {
		snprintf(error, size, "the GPU \"%s\" has no room for command buffers: %s", d->info.name, rmvk_result(r));
		return -1;
	}
	return 0;
}

rmvk_device *rmvk_open(int number, rmvk_info *info, char *error, size_t size) {
	rmvk_device *d = calloc(1, sizeof *d);
	if (d == NULL) {
		snprintf(error, size, "no memory for a device");
		return NULL;
	}
	d->head.driver = &driver;
	VkPhysicalDevice devices[64];
	uint32_t n = 64;
	if (rmvk_instance(&d->f, &d->instance, error, size) != 0) {
		rmvk_close(d);
		return NULL;
	}
	if (d->f.vkEnumeratePhysicalDevices(d->instance, &n, devices) < 0 || number < 0 || (uint32_t)number >= n) {
		snprintf(error, size, "Vulkan device %d is gone", number);
		rmvk_close(d);
		return NULL;
	}
	d->physical = devices[number];
	rmvk_inspect(&d->f, d->physical, &d->info);
	*info = d->info;
	if (d->info.missing[0] != 0) {
		snprintf(error, size, "the GPU \"%s\" (%s) cannot run the kernels: it has no %s", d->info.name, d->info.driver, d->info.missing);
		rmvk_close(d);
		return NULL;
	}
	int family = compute_family(d);
	if (family < 0) {
		snprintf(error, size, "the GPU \"%s\" has no queue that computes", d->info.name);
		rmvk_close(d);
		return NULL;
	}
	d->family = (uint32_t)family;
	if (create(d, error, size) != 0) {
		rmvk_close(d);
		return NULL;
	}
	d->f.vkGetDeviceQueue(d->device, d->family, 0, &d->queue);
	VkPhysicalDeviceMemoryProperties2 m = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
	d->f.vkGetPhysicalDeviceMemoryProperties2(d->physical, &m);
	d->memory = m.memoryProperties;
	if (rmvk_choose_types(d, error, size) != 0 || equip(d, error, size) != 0) {
		rmvk_close(d);
		return NULL;
	}
	return d;
}

void rmvk_close(rmvk_device *d) {
	if (d->device != NULL && d->f.vkDestroyDevice != NULL) {
		if (d->f.vkWaitSemaphores != NULL) { // all functions are there
			rmvk_free_slots(d);
			rmvk_free_staging(d);
			rmvk_free_kernels(d);
			if (d->timeline != VK_NULL_HANDLE) d->f.vkDestroySemaphore(d->device, d->timeline, NULL);
			if (d->layout != VK_NULL_HANDLE) d->f.vkDestroyPipelineLayout(d->device, d->layout, NULL);
		}
		d->f.vkDestroyDevice(d->device, NULL);
	}
	if (d->instance != NULL && d->f.vkDestroyInstance != NULL) d->f.vkDestroyInstance(d->instance, NULL);
	free(d);
}

void rmvk_fused(rmvk_device *d, uint32_t fused) { d->fused = fused; }
uint32_t rmvk_pipelines(rmvk_device *d) { return d->pipelines; }
