// accepted
#include <metal_stdlib>
using namespace metal;
struct row { packed_float4 v; half d; };
kernel void k(device row *r [[buffer(0)]], constant packed_uchar2 *c [[buffer(1)]], device float *a [[buffer(2)]]) {
    float4 v = r[1].v;
    r[0].v = v * 2.0f;
    a[0] = v.x + r[0].v.y + (float)c[1].x;
}
