// rejected: fast math
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) { a[0] = isnan(a[1]) ? 0 : 1; }
