// The table of kernels: how a kernel is called with the arguments that a dispatch binds.
// mslgen writes the entries.
#pragma once

template <class T> struct msl_isconst {
    static constexpr bool v = false;
};
template <class T> struct msl_isconst<const T> {
    static constexpr bool v = true;
};
#ifdef MSL_AS
template <class T> struct msl_isconst<const device T> {
    static constexpr bool v = true;
};
template <class T> struct msl_isconst<constant T> {
    static constexpr bool v = true;
};
#endif
template <class P> struct msl_isptr {
    static constexpr int v = 0;
};
template <class T> struct msl_isptr<T *> {
    static constexpr int v = 1;
    using t = T;
};
template <class T> struct msl_isptr<T &> {
    static constexpr int v = 2;
    using t = T;
};
template <class P> MSL_INL P msl_from3(uint3 v) {
    if constexpr (msl_tr<P>::N == 1)
        return (P)v.x;
    else {
        P r;
        for (int i = 0; i < msl_tr<P>::N; i++) r[i] = (typename msl_tr<P>::E)v[i];
        return r;
    }
}
template <class P> MSL_INL P msl_fetch(const msl_arg &a, const msl_bind *b) {
    if constexpr (msl_isptr<P>::v == 1)
        return (P)(uintptr_t)(a.kind == MK_TGMEM ? b->tg[a.index] : b->buf[a.index]);
    else if constexpr (msl_isptr<P>::v == 2)
        return *(typename msl_isptr<P>::t *)(uintptr_t)(a.kind == MK_TGMEM ? b->tg[a.index] : b->buf[a.index]);
    else {
        msl_lane *l = msl_cur;
        msl_group *g = l->g;
        switch (a.kind) {
        case MK_TPIG:
            return msl_from3<P>(g->tg_pos * g->tg_size + l->tid);
        case MK_TGPIG:
            return msl_from3<P>(g->tg_pos);
        case MK_TPITG:
            return msl_from3<P>(l->tid);
        case MK_TPTG:
            return msl_from3<P>(g->tg_size);
        case MK_TPG:
            return msl_from3<P>(g->grid_threads);
        case MK_TGPG:
            return msl_from3<P>(g->grid_tgs);
        case MK_TIITG:
            return msl_from3<P>((uint3)l->flat);
        case MK_SGITG:
            return msl_from3<P>((uint3)l->sg);
        case MK_TIISG:
            return msl_from3<P>((uint3)l->lane);
        case MK_SGPTG:
            return msl_from3<P>((uint3)g->nsg);
        default:
            return msl_from3<P>((uint3)g->width);
        }
    }
}
template <class F> struct msl_caller;
template <class... P> struct msl_caller<void (*)(P...)> {
    static constexpr int n = sizeof...(P);
    template <int... I> static void go(void (*f)(P...), const msl_arg *a, const msl_bind *b, msl_seq<I...>) { f(msl_fetch<P>(a[I], b)...); }
    static ulong minsize(int i) {
        ulong s[] = {msz<P>()..., 0};
        return s[i];
    } // the smallest buffer that the parameter accepts
    static int writable(int i) {
        int w[] = {mwr<P>()..., 0};
        return w[i];
    }
    template <class Q> static constexpr int mwr() {
        if constexpr (msl_isptr<Q>::v != 0)
            return !msl_isconst<typename msl_isptr<Q>::t>::v;
        else
            return 0;
    }
    template <class Q> static constexpr ulong msz() {
        if constexpr (msl_isptr<Q>::v == 2)
            return sizeof(typename msl_isptr<Q>::t);
        else
            return 0;
    }
};
template <auto F> void msl_invoke(const msl_arg *a, const msl_bind *b) {
    using C = msl_caller<decltype(F)>;
    C::go(F, a, b, typename msl_mkseq<C::n>::t{});
}
#define MSL_KERNEL(NAME, NARGS, ARGS, NEEDS, ...)                                                                                          \
    {NAME,                                                                                                                                 \
     NARGS,                                                                                                                                \
     ARGS,                                                                                                                                 \
     &msl_invoke<__VA_ARGS__>,                                                                                                             \
     &msl_caller<decltype(&__VA_ARGS__)>::minsize,                                                                                         \
     &msl_caller<decltype(&__VA_ARGS__)>::writable,                                                                                        \
     NEEDS}
// The API's number for a type, and a function constant of that type.
template <class T> constexpr int msl_dtype() {
    static_assert(sizeof(T) == 0, "type of a function constant");
    return 0;
}
template <> constexpr int msl_dtype<float>() { return 3; }
template <> constexpr int msl_dtype<half>() { return 16; }
template <> constexpr int msl_dtype<int>() { return 29; }
template <> constexpr int msl_dtype<uint>() { return 33; }
template <> constexpr int msl_dtype<short>() { return 37; }
template <> constexpr int msl_dtype<ushort>() { return 41; }
template <> constexpr int msl_dtype<char>() { return 45; }
template <> constexpr int msl_dtype<uchar>() { return 49; }
template <> constexpr int msl_dtype<bool>() { return 53; }
#define MSL_FCONST(NAME, ID)                                                                                                               \
    {#NAME, ID, msl_dtype<decltype(NAME)>(), (void *)&NAME, sizeof(NAME)}, {#NAME, -1 - (ID), 53, (void *)&NAME##_msl_def, 1}
