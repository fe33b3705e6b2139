// rejected: two kernels are called k
#include <metal_stdlib>
using namespace metal;
[[host_name("k")]] kernel void a(device float *x [[buffer(0)]]) { x[0] = 1; }
kernel void k(device float *x [[buffer(0)]]) { x[0] = 1; }
