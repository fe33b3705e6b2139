// rejected: lambdas are not MSL
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) {
    auto f = [&](float x) { return x; };
    a[0] = f(a[0]);
}
