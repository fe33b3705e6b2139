// rejected: cannot have an initial value
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) {
    threadgroup float t = 0;
    a[0] = t;
}
