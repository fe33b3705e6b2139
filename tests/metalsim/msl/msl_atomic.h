// Atomics. Threads of one dispatch never run simultaneously here; the functions are
// real atomics all the same, for race detectors.
#pragma once

namespace metal {
enum memory_order { memory_order_relaxed };
template <class T> struct msl_atomic {
    T v;
};
typedef msl_atomic<int> atomic_int;
typedef msl_atomic<uint> atomic_uint;
typedef msl_atomic<float> atomic_float;
typedef msl_atomic<bool> atomic_bool;
typedef msl_atomic<ulong> atomic_ulong;
template <class T> using atomic = msl_atomic<T>;
template <class P> using msl_at = typename msl_rmcv<typename msl_rmref<decltype((((P)0)->v))>::t>::t;
// through generic pointers: the address space is dropped on purpose (same code on x86)
#define MSL_APTR(p) ((msl_aval_t<decltype((p)->v)> *)(uintptr_t)(p))
template <class T> struct msl_aval {
    using t = T;
};
#ifdef MSL_AS
template <class T> struct msl_aval<device T> {
    using t = T;
};
template <class T> struct msl_aval<threadgroup T> {
    using t = T;
};
#endif
template <class T> using msl_aval_t = typename msl_aval<T>::t;
template <class P> MSL_INL auto atomic_load_explicit(P p, memory_order) { return __atomic_load_n(MSL_APTR(p), 0); }
template <class P, class U> MSL_INL void atomic_store_explicit(P p, U x, memory_order) {
    msl_aval_t<decltype(p->v)> t = x;
    __atomic_store(MSL_APTR(p), &t, 0);
}
template <class P, class U> MSL_INL auto atomic_exchange_explicit(P p, U x, memory_order) { return __atomic_exchange_n(MSL_APTR(p), x, 0); }
template <class P, class U, class V> MSL_INL bool atomic_compare_exchange_weak_explicit(P p, U *e, V x, memory_order, memory_order) {
    return __atomic_compare_exchange_n(MSL_APTR(p), e, x, true, 0, 0);
}
template <class P, class U, class F> MSL_INL auto msl_rmw(P p, U x, F f) {
    auto *q = MSL_APTR(p);
    auto o = *q, n = o;
    __atomic_load(q, &o, 0);
    do n = f(o, (decltype(o))x);
    while (!__atomic_compare_exchange(q, &o, &n, true, 0, 0));
    return o;
}
template <class P, class U> MSL_INL auto atomic_fetch_add_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return a + b; });
}
template <class P, class U> MSL_INL auto atomic_fetch_sub_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return a - b; });
}
template <class P, class U> MSL_INL auto atomic_fetch_max_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return max(a, b); });
}
template <class P, class U> MSL_INL auto atomic_fetch_min_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return min(a, b); });
}
template <class P, class U> MSL_INL auto atomic_fetch_or_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return a | b; });
}
template <class P, class U> MSL_INL auto atomic_fetch_xor_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return a ^ b; });
}
template <class P, class U> MSL_INL auto atomic_fetch_and_explicit(P p, U x, memory_order) {
    return msl_rmw(p, x, [](auto a, auto b) { return a & b; });
}
} // namespace metal
