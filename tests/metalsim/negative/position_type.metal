// rejected: it is made of uint or ushort
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]], int i [[thread_position_in_grid]]) { a[i] = 1; }
