// rejected: there is no std
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) { a[0] = std::exp(a[0]); }
