// Package vulkan is any GPU with a driver for Vulkan 1.2 as a device of package gpu, on
// Linux. The loader is opened at run time, so a program runs where there is none; the
// kernels are in package shaders.
//
// Every buffer has an address on the device and kernels get addresses, so there are no
// descriptors. Memory is of three kinds: weights are imported where the host's memory is
// the device's too and the driver allows it, else copied once; buffers of ops are where the
// device reads fast and the host can still reach them; what the host reads much is in its
// own memory.
package vulkan
