// rejected: does not return void
#include <metal_stdlib>
using namespace metal;
kernel int k(device float *a [[buffer(0)]]) { return 0; }
