// rejected: virtual is not MSL
#include <metal_stdlib>
using namespace metal;
struct S {
    virtual void g() {}
};
kernel void k(device int *a [[buffer(0)]]) { a[0] = 1; }
