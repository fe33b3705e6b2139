#include <metal_stdlib>
using namespace metal;

struct span { uint n; float value; };
constant bool twice [[function_constant(0)]];
constant int more [[function_constant(1)]];
constant int extra = is_function_constant_defined(more) ? more : 5;

kernel void fill(constant span &s [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    if (i < s.n) out[i] = s.value;
}

kernel void copy(device const float *in [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = in[i] + 1.0f;
}

kernel void scale(device const float *in [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = twice ? 2.0f * in[i] : in[i];
}

kernel void constants(device int *out [[buffer(0)]]) { out[0] = extra; }

// reverses a threadgroup's floats through its memory
kernel void reverse(device float *x [[buffer(0)]], threadgroup float *t [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                    uint n [[threads_per_threadgroup]]) {
    t[i] = x[i];
#ifndef NO_BARRIER
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    x[i] = t[n - 1 - i];
}

kernel void fixed(device float *x [[buffer(0)]], threadgroup float *t [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float s[4096];
    s[i] = x[i];
    t[i] = s[i];
    x[i] = t[i];
}

kernel void some_barrier(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    if (i < 5) threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = 0;
}

kernel void two_barriers(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    if (i < 5) threadgroup_barrier(mem_flags::mem_threadgroup);
    else
        threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = 0;
}

kernel void divergent(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    float v = 1;
    if (i & 1) v = simd_sum(v);
    x[i] = simd_max(v);
}

kernel void beyond(device float *x [[buffer(0)]], constant uint &n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    if (i == 0) x[n] = 1;
}
