// rejected: cannot initialize a variable
#include <metal_stdlib>
using namespace metal;
kernel void k(device uint4 *a [[buffer(0)]]) {
    int4 h = a[0];
    a[0] = uint4(h);
}
