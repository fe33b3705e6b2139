// rejected: undeclared identifier 'erf'
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]]) { a[0] = erf(a[0]); }
