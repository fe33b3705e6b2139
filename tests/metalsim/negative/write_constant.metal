// rejected: read-only variable is not assignable
#include <metal_stdlib>
using namespace metal;
kernel void k(constant float *a [[buffer(0)]]) { a[0] = 1; }
