// rejected: components
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]], uint3 i [[thread_position_in_grid]], uint n [[threads_per_threadgroup]]) { a[i.x] = n; }
