// rejected: a static variable must be constant
#include <metal_stdlib>
using namespace metal;
kernel void k(device int *a [[buffer(0)]]) {
    static int n = 0;
    a[0] = n++;
}
