// Math, comparison and bit functions of the Metal standard library.
#pragma once

namespace metal {
// math: non-template overloads for every scalar and vector type, as in Apple's headers,
// so that overload resolution (and its ambiguities) is close to theirs.
#define MSL_V1(name, T)                                                                                                                    \
    MSL_INL T##2 name(T##2 a) {                                                                                                            \
        T##2 r;                                                                                                                            \
        for (int i = 0; i < 2; i++) r[i] = name(a[i]);                                                                                     \
        return r;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T##3 name(T##3 a) {                                                                                                            \
        T##3 r;                                                                                                                            \
        for (int i = 0; i < 3; i++) r[i] = name(a[i]);                                                                                     \
        return r;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T##4 name(T##4 a) {                                                                                                            \
        T##4 r;                                                                                                                            \
        for (int i = 0; i < 4; i++) r[i] = name(a[i]);                                                                                     \
        return r;                                                                                                                          \
    }
#define MSL_V2(name, T)                                                                                                                    \
    MSL_INL T##2 name(T##2 a, T##2 b) {                                                                                                    \
        T##2 r;                                                                                                                            \
        for (int i = 0; i < 2; i++) r[i] = name(a[i], b[i]);                                                                               \
        return r;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T##3 name(T##3 a, T##3 b) {                                                                                                    \
        T##3 r;                                                                                                                            \
        for (int i = 0; i < 3; i++) r[i] = name(a[i], b[i]);                                                                               \
        return r;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T##4 name(T##4 a, T##4 b) {                                                                                                    \
        T##4 r;                                                                                                                            \
        for (int i = 0; i < 4; i++) r[i] = name(a[i], b[i]);                                                                               \
        return r;                                                                                                                          \
    }
#define MSL_V3(name, T)                                                                                                                    \
    MSL_INL T##2 name(T##2 a, T##2 b, T##2 c) {                                                                                            \
        T##2 r;                                                                                                                            \
        for (int i = 0; i < 2; i++) r[i] = name(a[i], b[i], c[i]);                                                                         \
        return r;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T##3 name(T##3 a, T##3 b, T##3 c) {                                                                                            \
        T##3 r;                                                                                                                            \
        for (int i = 0; i < 3; i++) r[i] = name(a[i], b[i], c[i]);                                                                         \
        return r;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T##4 name(T##4 a, T##4 b, T##4 c) {                                                                                            \
        T##4 r;                                                                                                                            \
        for (int i = 0; i < 4; i++) r[i] = name(a[i], b[i], c[i]);                                                                         \
        return r;                                                                                                                          \
    }
#define MSL_F1(name, expr)                                                                                                                 \
    MSL_INL float name(float x) { return expr; }                                                                                           \
    MSL_INL half name(half h) {                                                                                                            \
        float x = h;                                                                                                                       \
        return (half)(expr);                                                                                                               \
    }                                                                                                                                      \
    MSL_V1(name, float) MSL_V1(name, half)
#define MSL_F2(name, expr)                                                                                                                 \
    MSL_INL float name(float x, float y) { return expr; }                                                                                  \
    MSL_INL half name(half a, half b) {                                                                                                    \
        float x = a, y = b;                                                                                                                \
        return (half)(expr);                                                                                                               \
    }                                                                                                                                      \
    MSL_V2(name, float) MSL_V2(name, half)
#define MSL_F3(name, expr)                                                                                                                 \
    MSL_INL float name(float x, float y, float z) { return expr; }                                                                         \
    MSL_INL half name(half a, half b, half c) {                                                                                            \
        float x = a, y = b, z = c;                                                                                                         \
        return (half)(expr);                                                                                                               \
    }                                                                                                                                      \
    MSL_V3(name, float) MSL_V3(name, half)
#define MSL_TRANS                                                                                                                          \
    MSL_F1(exp, __builtin_expf(x))                                                                                                         \
    MSL_F1(exp2, __builtin_exp2f(x)) MSL_F1(exp10, __builtin_expf(x * 2.302585093f)) MSL_F1(log, __builtin_logf(x))                        \
        MSL_F1(log2, __builtin_log2f(x)) MSL_F1(log10, __builtin_log10f(x)) MSL_F1(sin, __builtin_sinf(x)) MSL_F1(cos, __builtin_cosf(x))  \
            MSL_F1(tan, __builtin_tanf(x)) MSL_F1(tanh, __builtin_tanhf(x)) MSL_F1(sinh, __builtin_sinhf(x))                               \
                MSL_F1(cosh, __builtin_coshf(x)) MSL_F1(asin, __builtin_asinf(x)) MSL_F1(acos, __builtin_acosf(x))                         \
                    MSL_F1(atan, __builtin_atanf(x)) MSL_F2(atan2, __builtin_atan2f(x, y)) MSL_F1(sqrt, __builtin_sqrtf(x))                \
                        MSL_F1(rsqrt, 1.0f / __builtin_sqrtf(x)) MSL_F2(pow, __builtin_powf(x, y)) MSL_F2(powr, __builtin_powf(x, y))      \
                            MSL_F2(fmod, __builtin_fmodf(x, y)) MSL_F2(divide, x / y) MSL_F1(recip, 1.0f / x)
MSL_TRANS
MSL_F1(floor, __builtin_floorf(x))
MSL_F1(ceil, __builtin_ceilf(x)) MSL_F1(round, __builtin_roundf(x)) MSL_F1(rint, __builtin_rintf(x)) MSL_F1(trunc, __builtin_truncf(x))
    MSL_F1(fract, x - __builtin_floorf(x)) MSL_F1(fabs, __builtin_fabsf(x)) MSL_F1(sign, x > 0.f   ? 1.f
                                                                                         : x < 0.f ? -1.f
                                                                                                   : 0.f) MSL_F1(saturate, !(x > 0.f) ? 0.f
                                                                                                                           : x > 1.f  ? 1.f
                                                                                                                                      : x)
        MSL_F2(fmin, __builtin_fminf(x, y)) MSL_F2(fmax, __builtin_fmaxf(x, y)) MSL_F2(step, y < x ? 0.f : 1.f)
            MSL_F2(copysign, __builtin_copysignf(x, y)) MSL_F3(fma, __builtin_fmaf(x, y, z)) MSL_F3(mix, x + (y - x) * z)
                MSL_F3(smoothstep, ({
                           float t_ = (z - x) / (y - x);
                           t_ = !(t_ > 0.f) ? 0.f : t_ > 1.f ? 1.f : t_;
                           t_ *t_ * (3.f - 2.f * t_);
                       }))
#define MSL_MM(T)                                                                                                                          \
    MSL_INL T min(T a, T b) { return b < a ? b : a; }                                                                                      \
    MSL_INL T max(T a, T b) { return a < b ? b : a; }                                                                                      \
    MSL_INL T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }                                                                       \
    MSL_V2(min, T) MSL_V2(max, T) MSL_V3(clamp, T)
                    MSL_MM(float) MSL_MM(half) MSL_MM(char) MSL_MM(uchar) MSL_MM(short) MSL_MM(ushort) MSL_MM(int) MSL_MM(uint) MSL_MM(long)
                        MSL_MM(ulong)
#define MSL_AB(T)                                                                                                                          \
    MSL_INL T abs(T a) { return a < (T)0 ? (T) - a : a; }                                                                                  \
    MSL_V1(abs, T)
                            MSL_AB(char) MSL_AB(short) MSL_AB(int) MSL_AB(long) MSL_INL float abs(float x) {
    return __builtin_fabsf(x);
}
MSL_INL half abs(half x) { return (half)__builtin_fabsf(x); }
MSL_V1(abs, float)
MSL_V1(abs, half)
#define MSL_SINCOS                                                                                                                         \
    MSL_INL float sincos(float x, float &c) {                                                                                              \
        c = __builtin_cosf(x);                                                                                                             \
        return __builtin_sinf(x);                                                                                                          \
    }                                                                                                                                      \
    MSL_INL half sincos(half x, half &c) {                                                                                                 \
        c = (half)__builtin_cosf(x);                                                                                                       \
        return (half)__builtin_sinf(x);                                                                                                    \
    }
    MSL_SINCOS namespace precise {
    MSL_TRANS MSL_SINCOS
}
namespace fast {
MSL_TRANS MSL_SINCOS MSL_MM(float)
}
#define MSL_MM3(T)                                                                                                                         \
    MSL_INL T max3(T a, T b, T c) { return max(a, max(b, c)); }                                                                            \
    MSL_INL T min3(T a, T b, T c) { return min(a, min(b, c)); }                                                                            \
    MSL_INL T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
MSL_MM3(float) MSL_MM3(half) MSL_MM3(int) MSL_MM3(uint) MSL_MM3(short) MSL_MM3(ushort) MSL_INL float ldexp(float x, int n) {
    return __builtin_ldexpf(x, n);
}
MSL_INL float fdim(float x, float y) { return __builtin_fdimf(x, y); }
MSL_INL uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
MSL_INL uint absdiff(uint a, uint b) { return a < b ? b - a : a - b; }
#ifdef __FAST_MATH__ // fast math may assume that there are no NaNs and infinities
#define MSL_CLASSIFY                                                                                                                       \
    __attribute__((unavailable("the library is compiled with fast math, where this may always be false: test the bits of the value, or "   \
                               "set mathMode to MTLMathModeSafe")))
#else
#define MSL_CLASSIFY
#endif
#define MSL_B1(name)                                                                                                                       \
    MSL_CLASSIFY MSL_INL bool name(float x) { return __builtin_##name(x); }                                                                \
    MSL_CLASSIFY MSL_INL bool name(half x) { return __builtin_##name((float)x); }
MSL_B1(isnan)
MSL_B1(isinf) MSL_B1(isfinite)
#define MSL_DOT(T, N)                                                                                                                      \
    MSL_INL T dot(T##N a, T##N b) {                                                                                                        \
        T s = a[0] * b[0];                                                                                                                 \
        for (int i = 1; i < N; i++) s += a[i] * b[i];                                                                                      \
        return s;                                                                                                                          \
    }                                                                                                                                      \
    MSL_INL T length(T##N a) { return (T)__builtin_sqrtf((float)dot(a, a)); }
    MSL_DOT(float, 2) MSL_DOT(float, 3) MSL_DOT(float, 4) MSL_DOT(half, 2) MSL_DOT(half, 3) MSL_DOT(half, 4) MSL_INL
    float dot(float a, float b) {
    return a * b;
}
MSL_INL half dot(half a, half b) { return a * b; } // not in MSL; ggml defines its own
template <class T, class B> MSL_INL T select(T a, T b, B c) {
    if constexpr (msl_tr<T>::N == 1)
        return c ? b : a;
    else {
        T r;
        for (int i = 0; i < msl_tr<T>::N; i++) r[i] = c[i] ? b[i] : a[i];
        return r;
    }
}
template <class B> MSL_INL bool all(B b) {
    if constexpr (msl_tr<B>::N == 1)
        return b;
    else {
        for (int i = 0; i < msl_tr<B>::N; i++)
            if (!b[i]) return false;
        return true;
    }
}
template <class B> MSL_INL bool any(B b) {
    if constexpr (msl_tr<B>::N == 1)
        return b;
    else {
        for (int i = 0; i < msl_tr<B>::N; i++)
            if (b[i]) return true;
        return false;
    }
}
MSL_INL uint popcount(uint x) { return __builtin_popcount(x); }
MSL_INL ulong popcount(ulong x) { return __builtin_popcountl(x); }
MSL_INL uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
MSL_INL uint ctz(uint x) { return x ? __builtin_ctz(x) : 32; }
MSL_INL uint mulhi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
MSL_INL int mulhi(int a, int b) { return (int)(((long)a * b) >> 32); }
MSL_INL int mad24(int a, int b, int c) { return a * b + c; }
template <class T> MSL_INL T extract_bits(T x, uint off, uint n) { return n == 0 ? (T)0 : (T)((x >> off) & (T)((((ulong)1) << n) - 1)); }
template <class T> MSL_INL T rotate(T x, T n) {
    constexpr uint w = sizeof(T) * 8;
    n %= w;
    return n ? (x << n) | (x >> (w - n)) : x;
}
} // namespace metal
