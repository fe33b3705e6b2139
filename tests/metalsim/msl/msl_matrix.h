// simdgroup_matrix of 8 by 8: each lane owns two elements of one row, as on Apple's
// hardware.
#pragma once

namespace metal {
template <class T, int C, int R> struct simdgroup_matrix {
    vec<T, 2> e_;
    simdgroup_matrix() { e_ = msl_undef<vec<T, 2>>(); }
    explicit simdgroup_matrix(T d) {
        uint r, c;
        pos(msl_cur->lane, r, c);
        e_[0] = c == r ? d : (T)0;
        e_[1] = c + 1 == r ? d : (T)0;
    }
    thread vec<T, 2> &thread_elements() thread { return e_; }
    static MSL_INL void pos(uint lane, uint &row, uint &col) {
        uint q = lane / 4;
        row = (q & 4) + ((lane / 2) % 4);
        col = (q & 2) * 2 + (lane % 2) * 2;
    }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int C, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, C, R> m;
    m.e_ = (vec<T, 2>)v;
    return m;
}
template <class T, class P>
MSL_INL void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &d, P p, ulong ld = 8, ulong2 org = (ulong2)0ul, bool tr = false) {
    static_assert(sizeof(*p) == sizeof(T), "simdgroup_load: element type");
    uint r, c;
    d.pos(msl_cur->lane, r, c);
    for (uint k = 0; k < 2; k++) d.e_[k] = tr ? p[(org.y + c + k) * ld + org.x + r] : p[(org.y + r) * ld + org.x + c + k];
}
template <class T, class P>
MSL_INL void simdgroup_store(simdgroup_matrix<T, 8, 8> d, P p, ulong ld = 8, ulong2 org = (ulong2)0ul, bool tr = false) {
    static_assert(sizeof(*p) == sizeof(T), "simdgroup_store: element type");
    uint r, c;
    d.pos(msl_cur->lane, r, c);
    for (uint k = 0; k < 2; k++) (tr ? p[(org.y + c + k) * ld + org.x + r] : p[(org.y + r) * ld + org.x + c + k]) = d.e_[k];
}
template <class D, class A, class B, class C> struct msl_mma {
    vec<A, 2> a;
    vec<B, 2> b;
    vec<C, 2> c;
    vec<D, 2> d;
};
template <class D, class A, class B, class C>
MSL_INL void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                           simdgroup_matrix<C, 8, 8> c, MSL_SITE) {
    typedef msl_mma<D, A, B, C> S;
    S s{a.e_, b.e_, c.e_, {}};
    msl_rt_simd(
        [](void *, msl_lane **l, unsigned long mask) MSL_RT {
            if (mask != 0xffffffffu) {
                msl_rt_trap("simdgroup_multiply_accumulate with inactive lanes", 0, 0);
                return;
            }
            float ma[8][8], mb[8][8], mc[8][8];
            uint r, q;
            for (int i = 0; i < 32; i++) {
                S *p = (S *)l[i]->slot;
                simdgroup_matrix<A, 8, 8>::pos(i, r, q);
                for (int k = 0; k < 2; k++) {
                    ma[r][q + k] = (float)p->a[k];
                    mb[r][q + k] = (float)p->b[k];
                    mc[r][q + k] = (float)p->c[k];
                }
            }
            for (int i = 0; i < 8; i++)
                for (int k = 0; k < 8; k++)
                    for (int j = 0; j < 8; j++) mc[i][j] += ma[i][k] * mb[k][j];
            for (int i = 0; i < 32; i++) {
                S *p = (S *)l[i]->slot;
                simdgroup_matrix<A, 8, 8>::pos(i, r, q);
                for (int k = 0; k < 2; k++) p->d[k] = (D)mc[r][q + k];
            }
        },
        nullptr, &s, file_, line_);
    d.e_ = s.d;
}
template <class D, class A, class B>
MSL_INL void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b, MSL_SITE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8>((D)0), file_, line_);
}
} // namespace metal
