// rejected: outermost block of a kernel
#include <metal_stdlib>
using namespace metal;
void f(device float *a) {
    threadgroup float t[4];
    t[0] = 1;
    a[0] = t[0];
}
kernel void k(device float *a [[buffer(0)]]) { f(a); }
