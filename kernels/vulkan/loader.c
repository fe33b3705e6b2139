//go:build linux && cgo

#include "loader.h"

#include <dlfcn.h>
#include <stdio.h>

static const char *const LOADER = "libvulkan.so.1";

int rmvk_instance(rmvk_functions *f, VkInstance *instance, char *error, size_t size) {
	// The loader stays: drivers do not like to be unloaded, and a program opens few devices.
	void *lib = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		snprintf(error, size, "the Vulkan loader %s cannot be loaded (%s); install the package of the loader (libvulkan1 or vulkan-loader) and the driver of the GPU", LOADER, dlerror());
		return -1;
	}
	f->vkGetInstanceProcAddr = (PFN_vkGetInstanceProcAddr)dlsym(lib, "vkGetInstanceProcAddr");
	PFN_vkCreateInstance create = f->vkGetInstanceProcAddr == NULL ? NULL : (PFN_vkCreateInstance)f->vkGetInstanceProcAddr(NULL, "vkCreateInstance");
	if (create == NULL) {
		snprintf(error, size, "%s is not a Vulkan loader", LOADER);
		return -1;
	}
	VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "ringmaster", .apiVersion = VK_API_VERSION_1_3}; // the highest that is used: 1.2 is enough
	VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
	VkResult r = create(&info, NULL, instance);
	if (r != VK_SUCCESS) {
		snprintf(error, size, "Vulkan has no usable driver (vkCreateInstance: %s); install the driver of the GPU, or name its file in VK_DRIVER_FILES or VK_ICD_FILENAMES", rmvk_result(r));
		return -1;
	}
#define GET(name)                                                                        \
	f->name = (PFN_##name)f->vkGetInstanceProcAddr(*instance, #name);                    \
	if (f->name == NULL) {                                                               \
		snprintf(error, size, "the Vulkan loader is older than 1.2 (it has no " #name "); install a newer one"); \
		return -1;                                                                       \
	}
	RMV_INSTANCE_FUNCTIONS(GET)
#undef GET
	return 0;
}

int rmvk_device_functions(rmvk_functions *f, VkDevice device, char *error, size_t size) {
#define GET(name)                                                   \
	f->name = (PFN_##name)f->vkGetDeviceProcAddr(device, #name);    \
	if (f->name == NULL) {                                          \
		snprintf(error, size, "the Vulkan driver has no " #name);   \
		return -1;                                                  \
	}
	RMV_DEVICE_FUNCTIONS(GET)
#undef GET
	f->vkGetMemoryHostPointerPropertiesEXT = (PFN_vkGetMemoryHostPointerPropertiesEXT)f->vkGetDeviceProcAddr(device, "vkGetMemoryHostPointerPropertiesEXT");
	return 0;
}

const char *rmvk_result(VkResult r) {
	switch (r) {
#define NAME(x) \
	case x: return #x;
		NAME(VK_SUCCESS)
		NAME(VK_NOT_READY)
		NAME(VK_TIMEOUT)
		NAME(VK_INCOMPLETE)
		NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
		NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
		NAME(VK_ERROR_INITIALIZATION_FAILED)
		NAME(VK_ERROR_DEVICE_LOST)
		NAME(VK_ERROR_MEMORY_MAP_FAILED)
		NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
		NAME(VK_ERROR_FEATURE_NOT_PRESENT)
		NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
		NAME(VK_ERROR_TOO_MANY_OBJECTS)
		NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
#undef NAME
	default: return "an error without a name here";
	}
}
