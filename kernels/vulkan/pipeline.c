//go:build linux && cgo

// Modules, kernels and their pipelines.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

int rmvk_module(rmvk_device *d, const uint32_t *code, size_t bytes, char *error, size_t size) {
	VkShaderModule *modules = realloc(d->modules, (size_t)(d->module_count + 1) * sizeof *modules);
	if (modules == NULL) {
		snprintf(error, size, "no memory");
		return -1;
	}
	d->modules = modules;
	VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
	VkResult r = d->f.vkCreateShaderModule(d->device, &info, NULL, &modules[d->module_count]);
	if (r != VK_SUCCESS) {
		snprintf(error, size, "vkCreateShaderModule: %s", rmvk_result(r));
		return -1;
	}
	return d->module_count++;
}

int rmvk_kernel(rmvk_device *d, const char *name, int module, const uint32_t *constants, uint32_t first, uint32_t count) {
	rmvk_compute *kernels = realloc(d->kernels, (size_t)(d->kernel_count + 1) * sizeof *kernels);
	if (kernels == NULL) return -1;
	d->kernels = kernels;
	rmvk_compute *k = &kernels[d->kernel_count];
	*k = (rmvk_compute){.module = module, .first = first, .count = count};
	snprintf(k->name, sizeof k->name, "%s", name);
	if (count > 0) {
		if ((k->constants = malloc(count * sizeof *constants)) == NULL) return -1;
		memcpy(k->constants, constants, count * sizeof *constants);
	}
	return d->kernel_count++;
}

// The numbers of the constants that the device sets: see prelude.glsl.
enum { CONSTANT_THREADS,
	   CONSTANT_SHARED,
	   CONSTANT_SUBGROUPS,
	   CONSTANT_FUSED,
	   CONSTANTS };
enum { MOST_CONSTANTS = 16 };

VkPipeline rmvk_variant_of(rmvk_device *d, int kernel, uint32_t threads, uint32_t shared, char *error, size_t size) {
	if (kernel < 0 || kernel >= d->kernel_count) {
		snprintf(error, size, "there is no kernel %d", kernel);
		return VK_NULL_HANDLE;
	}
	rmvk_compute *k = &d->kernels[kernel];
	for (uint32_t i = 0; i < k->variant_count; i++)
		if (k->variants[i].threads == threads && k->variants[i].shared == shared) return k->variants[i].pipeline;
	if (k->module < 0 || k->count + CONSTANTS > MOST_CONSTANTS) {
		snprintf(error, size, "there is no kernel %s for Vulkan", k->name);
		return VK_NULL_HANDLE;
	}
	rmvk_variant *variants = realloc(k->variants, (k->variant_count + 1) * sizeof *variants);
	if (variants == NULL) {
		snprintf(error, size, "no memory");
		return VK_NULL_HANDLE;
	}
	k->variants = variants;
	uint32_t values[MOST_CONSTANTS] = {threads, shared / 4, (uint32_t)d->info.subgroups, d->fused};
	VkSpecializationMapEntry entries[MOST_CONSTANTS];
	for (uint32_t i = 0; i < CONSTANTS + k->count; i++) {
		entries[i] = (VkSpecializationMapEntry){i < CONSTANTS ? i : k->first + i - CONSTANTS, 4 * i, 4};
		if (i >= CONSTANTS) values[i] = k->constants[i - CONSTANTS];
	}
	VkSpecializationInfo special = {CONSTANTS + k->count, entries, 4 * (CONSTANTS + k->count), values};
	VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, .requiredSubgroupSize = 32};
	VkComputePipelineCreateInfo info = {
	    .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
	    .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT, .module = d->modules[k->module], .pName = "main", .pSpecializationInfo = &special},
	    .layout = d->layout,
	};
	if (d->info.subgroups) {
		info.stage.pNext = &subgroup;
		info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
	}
	VkPipeline pipeline = VK_NULL_HANDLE;
	VkResult r = d->f.vkCreateComputePipelines(d->device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline);
	if (r != VK_SUCCESS) {
		snprintf(error, size, "the driver cannot compile kernel %s for %u threads: %s", k->name, threads, rmvk_result(r));
		return VK_NULL_HANDLE;
	}
	k->variants[k->variant_count++] = (rmvk_variant){threads, shared, pipeline};
	d->pipelines++;
	return pipeline;
}

void rmvk_free_kernels(rmvk_device *d) {
	for (int i = 0; i < d->kernel_count; i++) {
		rmvk_compute *k = &d->kernels[i];
		for (uint32_t v = 0; v < k->variant_count; v++) d->f.vkDestroyPipeline(d->device, k->variants[v].pipeline, NULL);
		free(k->variants);
		free(k->constants);
	}
	for (int i = 0; i < d->module_count; i++) d->f.vkDestroyShaderModule(d->device, d->modules[i], NULL);
	free(d->kernels);
	free(d->modules);
}
