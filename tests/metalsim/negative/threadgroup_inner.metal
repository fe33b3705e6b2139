// rejected: outermost block of a kernel
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) {
    if (a[0] > 0) {
        threadgroup float t[4];
        t[0] = 1;
        a[0] = t[0];
    }
}
