// rejected: a variable of the program must be constant
#include <metal_stdlib>
using namespace metal;
int g = 3;
kernel void k(device int *a [[buffer(0)]]) { a[0] = g; }
