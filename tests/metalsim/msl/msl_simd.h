// Functions over the lanes of a simdgroup.
#pragma once

namespace metal {
template <class T> struct msl_slot {
    T v;
    uint arg;
};
template <class T> T msl_undef() {
    T r;
    __builtin_memset(&r, 0xff, sizeof r);
    return r;
} // NaN / -1: "value is undefined"
#define MSL_EACH(i)                                                                                                                        \
    for (int i = 0; i < 64; i++)                                                                                                           \
        if ((mask >> i) & 1)
template <class T, class F> MSL_INL T msl_reduce(T x, F f, const char *fl, int ln) {
    msl_slot<T> s{x, 0};
    msl_rt_simd(
        [](void *, msl_lane **l, unsigned long mask) MSL_RT { // butterfly tree over the active lanes
            T v[64];
            int n = 0;
            MSL_EACH(i) v[n++] = ((msl_slot<T> *)l[i]->slot)->v;
            for (int st = 1; st < n; st <<= 1)
                for (int i = 0; i + st < n; i += 2 * st) v[i] = F{}(v[i], v[i + st]);
            MSL_EACH(i)((msl_slot<T> *)l[i]->slot)->v = v[0];
        },
        nullptr, &s, fl, ln);
    return s.v;
}
struct msl_add {
    template <class T> T operator()(T a, T b) const { return a + b; }
};
struct msl_mul {
    template <class T> T operator()(T a, T b) const { return a * b; }
};
struct msl_max_ {
    template <class T> T operator()(T a, T b) const { return max(a, b); }
};
struct msl_min_ {
    template <class T> T operator()(T a, T b) const { return min(a, b); }
};
struct msl_and_ {
    template <class T> T operator()(T a, T b) const { return a & b; }
};
struct msl_or_ {
    template <class T> T operator()(T a, T b) const { return a | b; }
};
struct msl_xor_ {
    template <class T> T operator()(T a, T b) const { return a ^ b; }
};
template <class T> MSL_INL T simd_sum(T x, MSL_SITE) { return msl_reduce(x, msl_add{}, file_, line_); }
template <class T> MSL_INL T simd_product(T x, MSL_SITE) { return msl_reduce(x, msl_mul{}, file_, line_); }
template <class T> MSL_INL T simd_max(T x, MSL_SITE) { return msl_reduce(x, msl_max_{}, file_, line_); }
template <class T> MSL_INL T simd_min(T x, MSL_SITE) { return msl_reduce(x, msl_min_{}, file_, line_); }
template <class T> MSL_INL T simd_and(T x, MSL_SITE) { return msl_reduce(x, msl_and_{}, file_, line_); }
template <class T> MSL_INL T simd_or(T x, MSL_SITE) { return msl_reduce(x, msl_or_{}, file_, line_); }
template <class T> MSL_INL T simd_xor(T x, MSL_SITE) { return msl_reduce(x, msl_xor_{}, file_, line_); }
MSL_INL bool simd_all(bool x, MSL_SITE) { return msl_reduce((uint)x, msl_and_{}, file_, line_); }
MSL_INL bool simd_any(bool x, MSL_SITE) { return msl_reduce((uint)x, msl_or_{}, file_, line_); }
// gather: every lane names a source lane; inactive or out of range -> undefined (poison)
template <class T> MSL_INL T msl_gather(T x, uint src, const char *fl, int ln) {
    msl_slot<T> s{x, src};
    msl_rt_simd(
        [](void *, msl_lane **l, unsigned long mask) MSL_RT {
            T v[64];
            MSL_EACH(i) v[i] = ((msl_slot<T> *)l[i]->slot)->v;
            MSL_EACH(i) {
                auto *p = (msl_slot<T> *)l[i]->slot;
                p->v = (p->arg < 64 && ((mask >> p->arg) & 1)) ? v[p->arg] : msl_undef<T>();
            }
        },
        nullptr, &s, fl, ln);
    return s.v;
}
template <class T> MSL_INL T simd_shuffle(T x, ushort i, MSL_SITE) { return msl_gather(x, i, file_, line_); }
template <class T> MSL_INL T simd_broadcast(T x, ushort i, MSL_SITE) { return msl_gather(x, i, file_, line_); }
template <class T> MSL_INL T simd_shuffle_xor(T x, ushort m, MSL_SITE) { return msl_gather(x, msl_cur->lane ^ m, file_, line_); }
template <class T> MSL_INL T simd_shuffle_down(T x, ushort d, MSL_SITE) { return msl_gather(x, msl_cur->lane + d, file_, line_); }
template <class T> MSL_INL T simd_shuffle_up(T x, ushort d, MSL_SITE) { return msl_gather(x, msl_cur->lane - d, file_, line_); }
template <class T> MSL_INL T simd_shuffle_rotate_down(T x, ushort d, MSL_SITE) {
    return msl_gather(x, (msl_cur->lane + d) % 32, file_, line_);
}
template <class T> MSL_INL T simd_shuffle_rotate_up(T x, ushort d, MSL_SITE) {
    return msl_gather(x, (msl_cur->lane + 32 - d % 32) % 32, file_, line_);
}
template <class T> MSL_INL T simd_shuffle_and_fill_down(T x, T f, ushort d, MSL_SITE) {
    T v = msl_gather(x, msl_cur->lane + d, file_, line_), w = msl_gather(f, (msl_cur->lane + d) % 32, file_, line_);
    return msl_cur->lane + d < 32 ? v : w;
}
template <class T> MSL_INL T simd_shuffle_and_fill_up(T x, T f, ushort d, MSL_SITE) {
    T v = msl_gather(x, msl_cur->lane - d, file_, line_), w = msl_gather(f, (msl_cur->lane + 32 - d) % 32, file_, line_);
    return msl_cur->lane >= d ? v : w;
}
template <class T> MSL_INL T quad_shuffle_xor(T x, ushort m, MSL_SITE) { return msl_gather(x, msl_cur->lane ^ (m & 3), file_, line_); }
template <class T> MSL_INL T quad_broadcast(T x, ushort i, MSL_SITE) { return msl_gather(x, (msl_cur->lane & ~3u) | i, file_, line_); }
template <class T> MSL_INL T quad_sum(T x, MSL_SITE) {
    x += msl_gather(x, msl_cur->lane ^ 1, file_, line_);
    return x + msl_gather(x, msl_cur->lane ^ 2, file_, line_);
}
template <class T> MSL_INL T msl_scan(T x, bool excl, const char *fl, int ln) {
    msl_slot<T> s{x, excl};
    msl_rt_simd(
        [](void *, msl_lane **l, unsigned long mask) MSL_RT {
            T a = (T)0;
            MSL_EACH(i) {
                auto *p = (msl_slot<T> *)l[i]->slot;
                T v = p->v;
                p->v = p->arg ? a : a + v;
                a += v;
            }
        },
        nullptr, &s, fl, ln);
    return s.v;
}
template <class T> MSL_INL T simd_prefix_inclusive_sum(T x, MSL_SITE) { return msl_scan(x, false, file_, line_); }
template <class T> MSL_INL T simd_prefix_exclusive_sum(T x, MSL_SITE) { return msl_scan(x, true, file_, line_); }
struct simd_vote {
    ulong m;
    explicit operator ulong() const { return m; }
    bool all() const { return m == 0xffffffffu; }
    bool any() const { return m != 0; }
};
MSL_INL simd_vote simd_ballot(bool x, MSL_SITE) {
    return simd_vote{msl_reduce<ulong>(x ? 1ul << msl_cur->lane : 0ul, msl_or_{}, file_, line_)};
}
MSL_INL simd_vote simd_active_threads_mask(MSL_SITE) { return simd_vote{msl_reduce<ulong>(1ul << msl_cur->lane, msl_or_{}, file_, line_)}; }
MSL_INL bool simd_is_first(MSL_SITE) {
    ulong m = msl_reduce<ulong>(1ul << msl_cur->lane, msl_or_{}, file_, line_);
    return (uint)__builtin_ctzl(m) == msl_cur->lane;
}
template <class T> MSL_INL T simd_broadcast_first(T x, MSL_SITE) {
    ulong m = msl_reduce<ulong>(1ul << msl_cur->lane, msl_or_{}, file_, line_);
    return msl_gather(x, (uint)__builtin_ctzl(m), file_, line_);
}
} // namespace metal
