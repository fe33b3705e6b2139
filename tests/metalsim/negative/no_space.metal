// rejected: needs an address space
#include <metal_stdlib>
using namespace metal;
void f(float *p) { *p = 1; }
kernel void k(device float *a [[buffer(0)]]) {
    float x;
    f(&x);
    a[0] = x;
}
