// rejected: a buffer is
#include <metal_stdlib>
using namespace metal;
kernel void k(device int *a [[buffer(0)]], uint n [[buffer(1)]]) { a[0] = n; }
