// The functions of Vulkan, from the loader that the system has.
#ifndef RMV_LOADER_H
#define RMV_LOADER_H

#include "vk.h"

#define RMV_INSTANCE_FUNCTIONS(X)              \
	X(vkDestroyInstance)                       \
	X(vkEnumeratePhysicalDevices)              \
	X(vkEnumerateDeviceExtensionProperties)    \
	X(vkGetPhysicalDeviceProperties2)          \
	X(vkGetPhysicalDeviceFeatures2)            \
	X(vkGetPhysicalDeviceMemoryProperties2)    \
	X(vkGetPhysicalDeviceQueueFamilyProperties) \
	X(vkCreateDevice)                          \
	X(vkGetDeviceProcAddr)

#define RMV_DEVICE_FUNCTIONS(X)     \
	X(vkDestroyDevice)              \
	X(vkGetDeviceQueue)             \
	X(vkCreateBuffer)               \
	X(vkDestroyBuffer)              \
	X(vkGetBufferMemoryRequirements) \
	X(vkAllocateMemory)             \
	X(vkFreeMemory)                 \
	X(vkBindBufferMemory)           \
	X(vkMapMemory)                  \
	X(vkGetBufferDeviceAddress)     \
	X(vkCreateShaderModule)         \
	X(vkDestroyShaderModule)        \
	X(vkCreatePipelineLayout)       \
	X(vkDestroyPipelineLayout)      \
	X(vkCreateComputePipelines)     \
	X(vkDestroyPipeline)            \
	X(vkCreateCommandPool)          \
	X(vkDestroyCommandPool)         \
	X(vkResetCommandPool)           \
	X(vkAllocateCommandBuffers)     \
	X(vkBeginCommandBuffer)         \
	X(vkEndCommandBuffer)           \
	X(vkCmdBindPipeline)            \
	X(vkCmdPushConstants)           \
	X(vkCmdDispatch)                \
	X(vkCmdPipelineBarrier)         \
	X(vkCmdCopyBuffer)              \
	X(vkQueueSubmit)                \
	X(vkCreateSemaphore)            \
	X(vkDestroySemaphore)           \
	X(vkGetSemaphoreCounterValue)   \
	X(vkWaitSemaphores)

// The functions of an instance, and of a device of it.
typedef struct {
	PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
#define RMV_MEMBER(f) PFN_##f f;
	RMV_INSTANCE_FUNCTIONS(RMV_MEMBER)
	RMV_DEVICE_FUNCTIONS(RMV_MEMBER)
#undef RMV_MEMBER
	PFN_vkGetMemoryHostPointerPropertiesEXT vkGetMemoryHostPointerPropertiesEXT; // NULL without the extension
} rmvk_functions;

// rmvk_instance loads the loader and makes an instance. It returns 0 or -1.
int rmvk_instance(rmvk_functions *f, VkInstance *instance, char *error, size_t size);
// rmvk_device_functions gets the functions of a device. It returns 0 or -1.
int rmvk_device_functions(rmvk_functions *f, VkDevice device, char *error, size_t size);
// rmvk_result is the name of a result.
const char *rmvk_result(VkResult r);

#endif
