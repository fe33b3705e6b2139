// rejected: cannot initialize a variable
#include <metal_stdlib>
using namespace metal;
kernel void k(device float4 *a [[buffer(0)]]) {
    half4 h = a[0];
    a[0] = float4(h);
}
