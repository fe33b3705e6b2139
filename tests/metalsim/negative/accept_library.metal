// accepted
#include <metal_stdlib>
using namespace metal;
template <typename T, short N>
kernel void t(device T *a [[buffer(0)]], uint3 p [[thread_position_in_grid]], ushort l [[thread_index_in_simdgroup]]) {
    threadgroup T s[N];
    s[l] = a[p.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    a[p.x] = s[N - 1 - l];
}
typedef decltype(t<half, 32>) t_half;
template [[host_name("t_half")]] kernel t_half t<half, 32>;
template [[host_name("t_bfloat")]] kernel decltype(t<bfloat, 32>) t<bfloat, 32>;
template [[host_name("t_float")]] kernel void t<float, 32>(device float *a, uint3 p, ushort l);
