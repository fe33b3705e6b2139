//go:build linux && cgo

// What a physical device is and can do.
#include <stdio.h>
#include <string.h>

#include "internal.h"

static int has(const VkExtensionProperties *list, uint32_t n, const char *name) {
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(list[i].extensionName, name) == 0) return 1;
	return 0;
}

static void add_missing(rmvk_info *info, const char *what) {
	size_t n = strlen(info->missing);
	snprintf(info->missing + n, sizeof info->missing - n, "%s%s", n > 0 ? ", " : "", what);
}

// inspect_memory fills what is said of heaps.
static void inspect_memory(const rmvk_functions *f, VkPhysicalDevice p, int budget, rmvk_info *info) {
	VkPhysicalDeviceMemoryBudgetPropertiesEXT b = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
	VkPhysicalDeviceMemoryProperties2 m = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = budget ? &b : NULL};
	f->vkGetPhysicalDeviceMemoryProperties2(p, &m);
	const VkPhysicalDeviceMemoryProperties *mp = &m.memoryProperties;
	info->budget_known = budget;
	for (uint32_t i = 0; i < mp->memoryHeapCount && i < RMV_HEAPS; i++) {
		rmvk_heap *h = &info->heaps[info->heap_count++];
		uint64_t used = b.heapUsage[i];
		h->bytes = mp->memoryHeaps[i].size;
		h->local = (mp->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
		// Without the driver's word a tenth is left to others.
		h->budget = budget ? (b.heapBudget[i] > used ? b.heapBudget[i] - used : 0) : h->bytes / 10 * 9;
		if (!h->local || h->bytes <= info->heap) continue;
		info->heap = h->bytes;
		info->budget = h->budget;
	}
	for (uint32_t i = 0; i < mp->memoryTypeCount && !info->unified; i++) {
		VkMemoryPropertyFlags want = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
		uint64_t bytes = mp->memoryHeaps[mp->memoryTypes[i].heapIndex].size;
		if ((mp->memoryTypes[i].propertyFlags & want) == want && bytes > info->visible) info->visible = bytes;
	}
}

void rmvk_inspect(const rmvk_functions *f, VkPhysicalDevice p, rmvk_info *info) {
	memset(info, 0, sizeof *info);
	VkExtensionProperties extensions[512];
	uint32_t n = sizeof extensions / sizeof *extensions;
	if (f->vkEnumerateDeviceExtensionProperties(p, NULL, &n, extensions) < 0) n = 0;

	VkPhysicalDeviceMaintenance4Properties sizes4 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
	VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
	VkPhysicalDeviceSubgroupSizeControlProperties control = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES, .pNext = &host};
	VkPhysicalDeviceVulkan12Properties p12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &control};
	VkPhysicalDeviceVulkan11Properties p11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &p12};
	VkPhysicalDeviceProperties2 pp = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &p11};
	VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
	VkPhysicalDeviceSubgroupSizeControlFeatures sizes = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, .pNext = &dot};
	VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &sizes};
	VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12};
	VkPhysicalDeviceFeatures2 ff = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f11};

	// Structs that a device does not know must not be asked for.
	VkPhysicalDeviceProperties2 first = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
	f->vkGetPhysicalDeviceProperties2(p, &first);
	info->api = first.properties.apiVersion;
	snprintf(info->name, sizeof info->name, "%s", first.properties.deviceName);
	info->type = (int32_t)first.properties.deviceType;
	if (info->api < VK_API_VERSION_1_2) {
		add_missing(info, "Vulkan 1.2");
		return;
	}
	int imports = has(extensions, n, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
	int at13 = info->api >= VK_API_VERSION_1_3;
	int has_sizes = at13 || has(extensions, n, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
	int has_dot = at13 || has(extensions, n, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
	int has_sizes4 = at13 || has(extensions, n, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
	host.pNext = has_sizes4 ? &sizes4 : NULL;
	control.pNext = imports ? (void *)&host : host.pNext;
	p12.pNext = has_sizes ? (void *)&control : control.pNext;
	sizes.pNext = has_dot ? &dot : NULL;
	f12.pNext = has_sizes ? (void *)&sizes : sizes.pNext;
	f->vkGetPhysicalDeviceProperties2(p, &pp);
	f->vkGetPhysicalDeviceFeatures2(p, &ff);

	snprintf(info->driver, sizeof info->driver, "%s %s", p12.driverName, p12.driverInfo);
	memcpy(info->cache_uuid, pp.properties.pipelineCacheUUID, 16);
	info->unified = info->type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU || info->type == VK_PHYSICAL_DEVICE_TYPE_CPU;
	info->imports = imports && info->unified;
	info->page = info->imports && host.minImportedHostPointerAlignment > 4096 ? host.minImportedHostPointerAlignment : 4096;
	info->max_buffer = p11.maxMemoryAllocationSize;
	if (has_sizes4 && sizes4.maxBufferSize < info->max_buffer) info->max_buffer = sizes4.maxBufferSize;
	const VkPhysicalDeviceLimits *l = &pp.properties.limits;
	info->shared_max = l->maxComputeSharedMemorySize;
	info->threads_max = l->maxComputeWorkGroupInvocations < l->maxComputeWorkGroupSize[0] ? l->maxComputeWorkGroupInvocations : l->maxComputeWorkGroupSize[0];
	memcpy(info->groups_max, l->maxComputeWorkGroupCount, sizeof info->groups_max);
	info->subgroup_min = info->subgroup_max = p11.subgroupSize;
	if (has_sizes) {
		info->subgroup_min = control.minSubgroupSize;
		info->subgroup_max = control.maxSubgroupSize;
	}
	int set = has_sizes && sizes.subgroupSizeControl && sizes.computeFullSubgroups && (control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
	          info->subgroup_min <= 32 && info->subgroup_max >= 32;
	info->subgroups = set;
	int controls = p12.denormBehaviorIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
	info->nan_preserve = (int32_t)p12.shaderSignedZeroInfNanPreserveFloat32;
	info->denorm_preserve = controls && p12.shaderDenormPreserveFloat32;
	info->nearest = p12.roundingModeIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE && p12.shaderRoundingModeRTEFloat32;
	info->dot8 = has_dot && dot.shaderIntegerDotProduct;

	const struct {
		int have;
		const char *name;
	} needs[] = {
	    {f12.bufferDeviceAddress, "bufferDeviceAddress"},
	    {f12.timelineSemaphore, "timelineSemaphore"},
	    {f12.scalarBlockLayout, "scalarBlockLayout"},
	    {f12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
	    {f11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
	    {f12.shaderInt8, "shaderInt8"},
	    {ff.features.shaderInt16, "shaderInt16"},
	    {ff.features.shaderInt64, "shaderInt64"},
	    {info->dot8, "shaderIntegerDotProduct"},
	    {(p11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0, "subgroup operations in kernels"},
	    {(p11.subgroupSupportedOperations & (VK_SUBGROUP_FEATURE_VOTE_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT)) ==
	         (VK_SUBGROUP_FEATURE_VOTE_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT),
	     "subgroup vote, arithmetic and shuffle"},
	    {l->maxPushConstantsSize >= 120, "120 bytes of push constants"},
	    {info->threads_max >= 256, "workgroups of 256"},
	    {info->shared_max >= 32768, "32 KiB of shared memory"},
	};
	for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
		if (!needs[i].have) add_missing(info, needs[i].name);
	inspect_memory(f, p, has(extensions, n, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME), info);
}

int rmvk_list(rmvk_info *list, int most, char *error, size_t size) {
	rmvk_functions f = {0};
	VkInstance instance = NULL;
	if (rmvk_instance(&f, &instance, error, size) != 0) {
		if (instance != NULL && f.vkDestroyInstance != NULL) f.vkDestroyInstance(instance, NULL);
		return -1;
	}
	VkPhysicalDevice devices[64];
	uint32_t n = most < 64 ? (uint32_t)most : 64;
	VkResult r = f.vkEnumeratePhysicalDevices(instance, &n, devices);
	if (r < 0) {
		snprintf(error, size, "Vulkan's devices cannot be listed: %s", rmvk_result(r));
		f.vkDestroyInstance(instance, NULL);
		return -1;
	}
	for (uint32_t i = 0; i < n; i++) rmvk_inspect(&f, devices[i], &list[i]);
	f.vkDestroyInstance(instance, NULL);
	return (int)n;
}
