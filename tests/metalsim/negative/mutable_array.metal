// rejected: a variable of the program must be constant
#include <metal_stdlib>
using namespace metal;
const float table[2] = {1, 2};
kernel void k(device float *a [[buffer(0)]]) { a[0] = table[1]; }
