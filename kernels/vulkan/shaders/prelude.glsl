// Included first by every kernel. A kernel is a file NAME.comp with one main.
//
// A dispatch has no descriptors. Its push constants are addresses: of the arguments, a
// struct of kernels/gpu/args, and of up to 14 buffers, with the numbers of Metal's
// [[buffer(n)]]. A kernel reads them so:
//
//	#include "prelude.glsl"
//	#include "../../gpu/args/norms.h"
//	ARGUMENTS(rmg_rms_norm)
//	void main() {
//		Floats x = Floats(push.at[2]); // "const" is not allowed here
//		if (thread_in_grid() < args.cols) x.at[thread_in_grid()] *= args.eps;
//	}
//
// The layer chooses the numbers of workgroups and threads of a dispatch as for Metal:
// gl_WorkGroupID is Metal's threadgroup_position_in_grid, and threads are along x only.

#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int32 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

// Constants that the device sets when it makes a pipeline.
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
#define THREADS gl_WorkGroupSize.x                // of a workgroup, a multiple of 32: constant 0
layout(constant_id = 1) const uint SHARED = 0;    // 4-byte words of shared memory that the dispatch asked for
layout(constant_id = 2) const uint SUBGROUPS = 0; // 1: subgroups have 32 invocations, 0: see lanes.glsl
layout(constant_id = 3) const uint FUSED = 0;     // 1: fma() rounds once
// From 10 on they are the kernel's own, and the table of kernels has their values.

// Types of buffers. Of In ones the compiler may assume that the dispatch does not write
// them: use these for weights and wherever no output may be the same memory.
#define BUFFER_TYPE(Name, T, bytes)                                                         \
	layout(buffer_reference, scalar, buffer_reference_align = bytes) buffer Name { T at[]; }; \
	layout(buffer_reference, scalar, buffer_reference_align = bytes) readonly buffer In##Name { T at[]; };
BUFFER_TYPE(Floats, float, 4)
BUFFER_TYPE(Ints, int32_t, 4)
BUFFER_TYPE(Uints, uint32_t, 4)
BUFFER_TYPE(Longs, int64_t, 8)
BUFFER_TYPE(Bytes, uint8_t, 1)
BUFFER_TYPE(Chars, int8_t, 1)
BUFFER_TYPE(Shorts, uint16_t, 2)
BUFFER_TYPE(Float4s, vec4, 16)
BUFFER_TYPE(Uint2s, uvec2, 8)
BUFFER_TYPE(Uint4s, uvec4, 16)

// at[0]: the arguments; from 1 on: the buffers.
layout(push_constant, scalar) uniform Push { uint64_t at[15]; } push;

// ARGUMENTS declares args, a struct of type T.
#define ARGUMENTS(T) \
	layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Arguments { T value; };
#define args (Arguments(push.at[0]).value)

// after is the address `bytes` behind a buffer's: Floats(after(push.at[1], 4 * i)).
uint64_t after(uint64_t address, uint64_t bytes) { return address + bytes; }

// thread_in_grid is Metal's thread_position_in_grid along x. Kernels that use lanes.glsl
// take thread() from there.
uint thread_in_grid() { return gl_WorkGroupID.x * THREADS + gl_LocalInvocationIndex; }

// Faults that a kernel reports; the numbers are those of kernels/gpu.
#define FAULT_ROW 1u

// report records the first fault in buffer n; the next Flush returns it as an error.
#define report(n, code) atomicCompSwap(Uints(push.at[n]).at[0], 0u, code)
