// accepted
#include <metal_stdlib>
using namespace metal;
typedef half4 short_vector;
kernel void k(device float *a [[buffer(0)]]) {
    int4 v = int4(1, 2, 3, 4);
    float4 w = (float4)v;
    float3 u(1, 2, 3);
    short_vector s = (short_vector)w;
    vec<float, 2> p = vec<float, 2>(v.xy);
    a[0] = w.x + u.x + (float)s.x + p.x;
}
