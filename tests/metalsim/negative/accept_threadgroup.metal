// accepted
#include <metal_stdlib>
using namespace metal;
struct pair { float a, b; };
kernel void k(device uint *a [[buffer(0)]], ushort i [[thread_index_in_threadgroup]]) {
    threadgroup atomic_uint n;
    threadgroup atomic_int m[4];
    threadgroup pair p[32];
    threadgroup float x[8], y[8];
    atomic_store_explicit(&n, 0u, memory_order_relaxed);
    p[i].a = 1;
    x[i & 7] = y[i & 7] = p[i].a;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);
    atomic_fetch_max_explicit(&m[1], 2, memory_order_relaxed);
    a[0] = atomic_load_explicit(&n, memory_order_relaxed) + (uint)x[0];
}
