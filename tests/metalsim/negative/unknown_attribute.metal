// rejected: [[thread_position_in_gird]] is not known
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]], uint i [[thread_position_in_gird]]) { a[i] = 1; }
