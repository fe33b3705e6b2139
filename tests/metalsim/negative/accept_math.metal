// accepted
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]], device atomic_uint *n [[buffer(1)]], device atomic_int *m [[buffer(2)]]) {
    float c;
    float s = sincos(a[0], c);
    a[1] = s + c + precise::exp(a[2]) + fast::log(a[3]) + rsqrt(a[4]) + as_type<float>(as_type<uint>(a[5]) & 0x7fffffffu);
    atomic_fetch_or_explicit(n, 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);
    atomic_fetch_max_explicit(m, -1, memory_order_relaxed);
    atomic_store_explicit(n, 0u, memory_order_relaxed);
    a[6] = (float)simd_prefix_exclusive_sum(popcount(3u)) + simd_shuffle_xor(a[7], 1) + simd_shuffle_and_fill_up(a[8], 0.0f, 1);
    a[9] = float(ulong(1) << 40) + min(uchar(1), uchar(2)) + max3(a[1], a[2], a[3]) + powr(2.0f, a[1]) + dot(float4(a[1]), float4(1));
}
