// rejected: index 31, the last one is 30
#include <metal_stdlib>
using namespace metal;
kernel void k(device int *a [[buffer(31)]]) { a[0] = 1; }
