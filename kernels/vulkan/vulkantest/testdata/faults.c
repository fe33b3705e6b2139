// A layer of Vulkan between the loader and the driver that makes calls of a device fail. What
// fails is said by the file that RINGMASTER_TEST_VULKAN_FAULTS names, which every call reads:
//
//	submit     vkQueueSubmit loses the device
//	wait       vkWaitSemaphores loses the device, and no counter has reached its value before
//	memory N   vkAllocateMemory has memory for N allocations of a device and no more
//	buffer N   a buffer has at most N bytes, which vkGetPhysicalDeviceProperties2 says
//
// The declarations are the parts of Vulkan's headers that a layer of these calls needs.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_DEVICE_MEMORY = -2,
	   INITIALIZATION_FAILED = -3,
	   DEVICE_LOST = -4 };
enum { INSTANCE_LINK = 47,
	   DEVICE_LINK = 48 }; // VK_STRUCTURE_TYPE_LOADER_..._CREATE_INFO

typedef void (*function)(void);
typedef function (*lookup)(void *object, const char *name);

// A link of the chain of layers: of an instance the second function is not used.
struct link {
	struct link *next;
	lookup instance, device;
};

// The head of every structure that may follow a create info.
struct chained {
	int32_t type;
	struct chained *next;
	int32_t what; // of the loader's: 0 is a link
	struct link *link;
};

static lookup next_instance, next_device;
static function next_properties2; // taken when the instance is made; later the loader's leads back here
static int allocations;

static int faulty(const char *name, int *number) {
	const char *path = getenv("RINGMASTER_TEST_VULKAN_FAULTS");
	FILE *f = path == NULL ? NULL : fopen(path, "r");
	char word[16] = "";
	if (f == NULL) return 0;
	if (fscanf(f, "%15s %d", word, number) < 1) word[0] = 0;
	fclose(f);
	return strcmp(word, name) == 0;
}

// take_link returns the layer's link of a create info, and leaves the next one there.
static struct link *take_link(const void *info, int32_t type) {
	for (struct chained *c = ((const struct chained *)info)->next; c != NULL; c = c->next) {
		if (c->type != type || c->what != 0) continue;
		struct link *l = c->link;
		c->link = l->next;
		return l;
	}
	return NULL;
}

static int create_instance(const void *info, const void *allocator, void **instance) {
	struct link *l = take_link(info, INSTANCE_LINK);
	if (l == NULL) return INITIALIZATION_FAILED;
	next_instance = l->instance;
	int r = ((int (*)(const void *, const void *, void **))next_instance(NULL, "vkCreateInstance"))(info, allocator, instance);
	if (r == 0) next_properties2 = next_instance(*instance, "vkGetPhysicalDeviceProperties2");
	return r;
}

static int create_device(void *physical, const void *info, const void *allocator, void **device) {
	struct link *l = take_link(info, DEVICE_LINK);
	if (l == NULL) return INITIALIZATION_FAILED;
	next_device = l->device;
	allocations = 0;
	return ((int (*)(void *, const void *, const void *, void **))l->instance(NULL, "vkCreateDevice"))(physical, info, allocator, device);
}

enum { MAINTENANCE_4_PROPERTIES = 1000413001 };

struct maintenance4_properties {
	int32_t type;
	struct chained *next;
	uint64_t most; // bytes of a buffer
};

static void properties2(void *physical, void *properties) {
	((void (*)(void *, void *))next_properties2)(physical, properties);
	int most = 0;
	if (!faulty("buffer", &most)) return;
	for (struct chained *c = ((struct chained *)properties)->next; c != NULL; c = c->next)
		if (c->type == MAINTENANCE_4_PROPERTIES) ((struct maintenance4_properties *)(void *)c)->most = (uint64_t)most;
}

static void *a_device; // the functions of all devices are one driver's

static int queue_submit(void *queue, uint32_t n, const void *submits, uint64_t fence) {
	if (faulty("submit", &(int){0})) return DEVICE_LOST;
	return ((int (*)(void *, uint32_t, const void *, uint64_t))next_device(a_device, "vkQueueSubmit"))(queue, n, submits, fence);
}

// A device that is lost has ended its work, so that its memory may be freed.
static int wait_semaphores(void *device, const void *info, uint64_t timeout) {
	int r = ((int (*)(void *, const void *, uint64_t))next_device(device, "vkWaitSemaphores"))(device, info, timeout);
	return faulty("wait", &(int){0}) ? DEVICE_LOST : r;
}

static int counter_value(void *device, uint64_t semaphore, uint64_t *value) {
	int r = ((int (*)(void *, uint64_t, uint64_t *))next_device(device, "vkGetSemaphoreCounterValue"))(device, semaphore, value);
	if (faulty("wait", &(int){0})) *value = 0;
	return r;
}

static int allocate_memory(void *device, const void *info, const void *allocator, uint64_t *memory) {
	int most = 0;
	if (faulty("memory", &most) && allocations >= most) return OUT_OF_DEVICE_MEMORY;
	allocations++;
	return ((int (*)(void *, const void *, const void *, uint64_t *))next_device(device, "vkAllocateMemory"))(device, info, allocator, memory);
}

function vkGetInstanceProcAddr(void *instance, const char *name);
function vkGetDeviceProcAddr(void *device, const char *name);

static function own(const char *name) {
	static const struct {
		const char *name;
		function f;
	} all[] = {
	    {"vkGetInstanceProcAddr", (function)vkGetInstanceProcAddr},
	    {"vkGetDeviceProcAddr", (function)vkGetDeviceProcAddr},
	    {"vkCreateInstance", (function)create_instance},
	    {"vkCreateDevice", (function)create_device},
	    {"vkGetPhysicalDeviceProperties2", (function)properties2},
	    {"vkQueueSubmit", (function)queue_submit},
	    {"vkWaitSemaphores", (function)wait_semaphores},
	    {"vkGetSemaphoreCounterValue", (function)counter_value},
	    {"vkAllocateMemory", (function)allocate_memory},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].name, name) == 0) return all[i].f;
	return NULL;
}

function vkGetInstanceProcAddr(void *instance, const char *name) {
	function f = own(name);
	return f != NULL || next_instance == NULL ? f : next_instance(instance, name);
}

function vkGetDeviceProcAddr(void *device, const char *name) {
	a_device = device;
	function f = own(name);
	return f != NULL || next_device == NULL ? f : next_device(device, name);
}
