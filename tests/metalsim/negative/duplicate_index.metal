// rejected: two parameters have index 0
#include <metal_stdlib>
using namespace metal;
kernel void k(device int *a [[buffer(0)]], device int *b [[buffer(0)]]) { a[0] = b[0]; }
