// Kernels for training on a CPU: hyper-connections, norms, rope, router choice, experts, Adam.
// Every function is the same mathematics as the torch code in ops.py; ops.py checks
// one against the other (python3 ops.py).  Built by ops.py with gcc at the first use.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
                   const float *alpha, const float *a, const int *lda, const float *b,
                   const int *ldb, const float *beta, float *c, const int *ldc);

enum { S = 4, LANES = 16, ITERS = 20 };
typedef float lane[LANES];

// ---- Sinkhorn over 4x4 matrices, LANES tokens at a time ----------------------------
static void normalise(lane c[16], lane sum[4], int column, float eps) {
    for (int a = 0; a < 4; a++)
        for (int l = 0; l < LANES; l++) {
            float s = eps;
            for (int b = 0; b < 4; b++) s += c[column ? b * 4 + a : a * 4 + b][l];
            sum[a][l] = 1.0f / s;
        }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < LANES; l++) c[i * 4 + j][l] *= sum[column ? j : i][l];
}

static void row_softmax(lane c[16]) {
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < LANES; l++) {
            float m = c[i * 4][l], s = 0;
            for (int j = 1; j < 4; j++) m = c[i * 4 + j][l] > m ? c[i * 4 + j][l] : m;
            for (int j = 0; j < 4; j++) s += c[i * 4 + j][l] = expf(c[i * 4 + j][l] - m);
            for (int j = 0; j < 4; j++) c[i * 4 + j][l] /= s;
        }
}

static void load(const float *x, lane c[16], int64_t n, int64_t t) {
    for (int l = 0; l < LANES; l++)
        for (int k = 0; k < 16; k++) c[k][l] = t + l < n ? x[(t + l) * 16 + k] : 0;
}

static void store(float *x, lane c[16], int64_t n, int64_t t) {
    for (int l = 0; l < LANES && t + l < n; l++)
        for (int k = 0; k < 16; k++) x[(t + l) * 16 + k] = c[k][l];
}

void sinkhorn_fwd(const float *in, float *out, int64_t n, float eps) {
    lane c[16], sum[4];
    for (int64_t t = 0; t < n; t += LANES) {
        load(in, c, n, t);
        row_softmax(c);
        for (int k = 0; k < 16; k++)
            for (int l = 0; l < LANES; l++) c[k][l] += eps;
        normalise(c, sum, 1, eps);
        for (int it = 1; it < ITERS; it++) {
            normalise(c, sum, 0, eps);
            normalise(c, sum, 1, eps);
        }
        store(out, c, n, t);
    }
}

static void normalise_bwd(lane c[16], lane g[16], lane sum[4], int column) {
    for (int a = 0; a < 4; a++)
        for (int l = 0; l < LANES; l++) {
            float dot = 0;
            for (int b = 0; b < 4; b++) {
                int k = column ? b * 4 + a : a * 4 + b;
                dot += g[k][l] * c[k][l];
            }
            for (int b = 0; b < 4; b++) {
                int k = column ? b * 4 + a : a * 4 + b;
                g[k][l] = (g[k][l] - dot) * sum[a][l];
            }
        }
}

void sinkhorn_bwd(const float *in, const float *gout, float *gin, int64_t n, float eps) {
    static _Thread_local lane kept[2 * ITERS][16], sums[2 * ITERS][4], soft[16], c[16], g[16];
    for (int64_t t = 0; t < n; t += LANES) {
        load(in, c, n, t);
        row_softmax(c);
        memcpy(soft, c, sizeof c);
        for (int k = 0; k < 16; k++)
            for (int l = 0; l < LANES; l++) c[k][l] += eps;
        for (int it = 1; it < 2 * ITERS; it++) {
            normalise(c, sums[it], it & 1, eps);
            memcpy(kept[it], c, sizeof c);
        }
        load(gout, g, n, t);
        for (int it = 2 * ITERS - 1; it >= 1; it--) normalise_bwd(kept[it], g, sums[it], it & 1);
        for (int i = 0; i < 4; i++)
            for (int l = 0; l < LANES; l++) {
                float dot = 0;
                for (int j = 0; j < 4; j++) dot += g[i * 4 + j][l] * soft[i * 4 + j][l];
                for (int j = 0; j < 4; j++) g[i * 4 + j][l] = (g[i * 4 + j][l] - dot) * soft[i * 4 + j][l];
            }
        store(gin, g, n, t);
    }
}

// ---- collapse of the streams, expansion after a sub-layer ---------------------------
void collapse_fwd(const float *h, const float *pre, float *x, int64_t n, int64_t D) {
    for (int64_t t = 0; t < n; t++, h += S * D, pre += S, x += D)
        for (int64_t d = 0; d < D; d++)
            x[d] = pre[0] * h[d] + pre[1] * h[D + d] + pre[2] * h[2 * D + d] + pre[3] * h[3 * D + d];
}

// Adds to gh.
void collapse_bwd(const float *h, const float *pre, const float *gx, float *gh, float *gpre, int64_t n, int64_t D) {
    for (int64_t t = 0; t < n; t++, h += S * D, gh += S * D, pre += S, gpre += S, gx += D)
        for (int s = 0; s < S; s++) {
            float dot = 0, p = pre[s];
            for (int64_t d = 0; d < D; d++) {
                dot += h[s * D + d] * gx[d];
                gh[s * D + d] += p * gx[d];
            }
            gpre[s] = dot;
        }
}

// ---- the hyper-connections' input: rows of h times w, over the root mean square of the row -----
static const float one = 1, zero = 0;
// C[M,N] = A[M,K] B[N,K]^T ; C[M,N] = A[M,K] B[K,N] ; C[N,K] += A[M,N]^T B[M,K]   (row major)
static void mm_nt(int M, int N, int K, const float *A, const float *B, float *C) { sgemm_("T", "N", &N, &M, &K, &one, B, &K, A, &K, &zero, C, &N); }
static void mm_nn(int M, int N, int K, const float *A, const float *B, float beta, float *C) { sgemm_("N", "N", &N, &M, &K, &one, B, &N, A, &K, &beta, C, &N); }
static void mm_tn(int M, int N, int K, const float *A, const float *B, float *C) { sgemm_("N", "T", &K, &N, &M, &one, B, &K, A, &N, &one, C, &K); }

// h [n,D], w [K,D] -> m [n,K], and r [n], the factor of each row
void mix_fwd(const float *h, const float *w, float *m, float *r, int64_t n, int64_t K, int64_t D, float eps) {
    mm_nt(n, K, D, h, w, m);
    for (int64_t t = 0; t < n; t++, h += D, m += K) {
        float s = 0;
        for (int64_t d = 0; d < D; d++) s += h[d] * h[d];
        r[t] = 1 / sqrtf(s / D + eps);
        for (int64_t k = 0; k < K; k++) m[k] *= r[t];
    }
}

// Adds to gh [n,D] and gw [K,D]; gm is scaled by r.
void mix_bwd(const float *h, const float *w, const float *m, const float *r, float *gm, float *gh, float *gw, int64_t n, int64_t K, int64_t D) {
    for (int64_t t = 0; t < n; t++) {
        float c = 0;
        for (int64_t k = 0; k < K; k++) {
            c -= gm[t * K + k] * m[t * K + k];
            gm[t * K + k] *= r[t];
        }
        c *= r[t] * r[t] / D;
        for (int64_t d = 0; d < D; d++) gh[t * D + d] += c * h[t * D + d];
    }
    mm_nn(n, D, K, gm, w, 1, gh);
    mm_tn(n, K, D, gm, h, gw);
}

// ---- rms norm of rows of D, with a weight or none; r [n] is kept -------------------------------
void rms_fwd(const float *x, const float *w, float *y, float *r, int64_t n, int64_t D, float eps) {
    for (int64_t t = 0; t < n; t++, x += D, y += D) {
        float s = 0;
        for (int64_t d = 0; d < D; d++) s += x[d] * x[d];
        s = r[t] = 1 / sqrtf(s / D + eps);
        if (w) for (int64_t d = 0; d < D; d++) y[d] = x[d] * s * w[d];
        else for (int64_t d = 0; d < D; d++) y[d] = x[d] * s;
    }
}

// gw [D] is added to
void rms_bwd(const float *x, const float *w, const float *r, const float *gy, float *gx, float *gw, int64_t n, int64_t D) {
    for (int64_t t = 0; t < n; t++, x += D, gx += D, gy += D) {
        float dot = 0, s = r[t];
        if (w)
            for (int64_t d = 0; d < D; d++) {
                dot += gy[d] * w[d] * x[d];
                gw[d] += gy[d] * x[d] * s;
            }
        else
            for (int64_t d = 0; d < D; d++) dot += gy[d] * x[d];
        dot *= s * s / D;
        for (int64_t d = 0; d < D; d++) gx[d] = s * ((w ? gy[d] * w[d] : gy[d]) - dot * x[d]);
    }
}

// ---- rotation of the last n dims of rows [B,T,H,D]; cos and sin [T,n/2]; sign -1 turns back ----
void rope(const float *x, const float *cs, const float *sn, float *y, int64_t B, int64_t T, int64_t H, int64_t D, int64_t n, float sign) {
    for (int64_t i = 0; i < B * T * H; i++, x += D, y += D) {
        const float *c = cs + i / H % T * (n / 2), *s = sn + i / H % T * (n / 2), *a = x + D - n;
        float *o = y + D - n;
        memcpy(y, x, sizeof(float) * (D - n));
        for (int64_t j = 0; j < n / 2; j++) {
            float p = a[2 * j], q = a[2 * j + 1], z = sign * s[j];
            o[2 * j] = p * c[j] - q * z;
            o[2 * j + 1] = p * z + q * c[j];
        }
    }
}

void expand_fwd(const float *h, const float *y, const float *post, const float *comb, float *out, int64_t n, int64_t D) {
    for (int64_t t = 0; t < n; t++, h += S * D, out += S * D, y += D, post += S, comb += 16)
        for (int j = 0; j < S; j++) {
            const float p = post[j], a = comb[j], b = comb[4 + j], c = comb[8 + j], e = comb[12 + j];
            for (int64_t d = 0; d < D; d++)
                out[j * D + d] = p * y[d] + a * h[d] + b * h[D + d] + c * h[2 * D + d] + e * h[3 * D + d];
        }
}

void expand_bwd(const float *h, const float *y, const float *post, const float *comb, const float *go,
                float *gh, float *gy, float *gpost, float *gcomb, int64_t n, int64_t D) {
    for (int64_t t = 0; t < n; t++, h += S * D, go += S * D, gh += S * D, y += D, gy += D, post += S,
                 gpost += S, comb += 16, gcomb += 16) {
        for (int64_t d = 0; d < D; d++)
            gy[d] = post[0] * go[d] + post[1] * go[D + d] + post[2] * go[2 * D + d] + post[3] * go[3 * D + d];
        for (int i = 0; i < S; i++) {
            const float *c = comb + 4 * i, *hi = h + i * D;
            float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            for (int64_t d = 0; d < D; d++) {
                float g0 = go[d], g1 = go[D + d], g2 = go[2 * D + d], g3 = go[3 * D + d];
                gh[i * D + d] = c[0] * g0 + c[1] * g1 + c[2] * g2 + c[3] * g3;
                s0 += hi[d] * g0; s1 += hi[d] * g1; s2 += hi[d] * g2; s3 += hi[d] * g3;
            }
            gcomb[4 * i] = s0; gcomb[4 * i + 1] = s1; gcomb[4 * i + 2] = s2; gcomb[4 * i + 3] = s3;
            float p = 0;
            for (int64_t d = 0; d < D; d++) p += y[d] * go[i * D + d];
            gpost[i] = p;
        }
    }
}

// ---- router: the K best of sqrt(softplus(logit)) + bias, lowest index first on ties ---
void choose(const float *logits, const float *bias, int64_t *idx, int64_t n, int64_t E, int64_t K) {
    float s[1024];
    for (int64_t t = 0; t < n; t++, logits += E, idx += K) {
        for (int64_t e = 0; e < E; e++) {
            float x = logits[e], m = x > 0 ? x : 0;
            s[e] = sqrtf(m + logf(1.0f + expf((x > 0 ? -x : x)))) + bias[e];
        }
        float best[16];
        int64_t have = 0;
        for (int64_t e = 0; e < E; e++) {
            if (have == K && s[e] <= best[K - 1]) continue;
            int64_t at = have < K ? have++ : K - 1;
            for (; at > 0 && best[at - 1] < s[e]; at--) { best[at] = best[at - 1]; idx[at] = idx[at - 1]; }
            best[at] = s[e];
            idx[at] = e;
        }
    }
}

// ---- experts ------------------------------------------------------------------------
// order: assignments (token*K+slot) sorted by expert; start[e]..start[e+1] are expert e's.
void sort_by_expert(const int64_t *idx, int64_t n, int64_t E, int32_t *order, int32_t *start) {
    memset(start, 0, (E + 1) * sizeof *start);
    for (int64_t i = 0; i < n; i++) start[idx[i] + 1]++;
    for (int64_t e = 0; e < E; e++) start[e + 1] += start[e];
    int32_t *at = malloc(E * sizeof *at);
    memcpy(at, start, E * sizeof *at);
    for (int64_t i = 0; i < n; i++) order[at[idx[i]]++] = (int32_t)i;
    free(at);
}

static int largest(const int32_t *start, int64_t E) {
    int m = 1;
    for (int64_t e = 0; e < E; e++) if (start[e + 1] - start[e] > m) m = start[e + 1] - start[e];
    return m;
}

// w13[E][2F][D] (gate rows, then up rows), w2[E][D][F]; gu keeps [n*K][2F] for the backward pass.
void experts_fwd(const float *x, const float *w, const float *w13, const float *w2, const int32_t *order,
                 const int32_t *start, float *gu, float *y, int64_t n, int64_t K, int64_t E, int64_t D, int64_t F, float clamp) {
    int cap = largest(start, E);
    float *X = malloc(sizeof(float) * cap * (2 * D + F)), *Y = X + (int64_t)cap * D, *M = Y + (int64_t)cap * D;
    memset(y, 0, sizeof(float) * n * D);
    for (int64_t e = 0; e < E; e++) {
        int m = start[e + 1] - start[e];
        if (!m) continue;
        const int32_t *who = order + start[e];
        float *G = gu + (int64_t)start[e] * 2 * F;
        for (int r = 0; r < m; r++) memcpy(X + r * D, x + who[r] / K * D, sizeof(float) * D);
        mm_nt(m, 2 * F, D, X, w13 + e * 2 * F * D, G);
        for (int r = 0; r < m; r++)
            for (int64_t f = 0; f < F; f++) {
                float g = G[r * 2 * F + f], u = G[r * 2 * F + F + f];
                g = g > clamp ? clamp : g;
                u = u > clamp ? clamp : u < -clamp ? -clamp : u;
                M[r * F + f] = w[who[r]] * u * g / (1.0f + expf(-g));
            }
        mm_nt(m, D, F, M, w2 + e * D * F, Y);
        for (int r = 0; r < m; r++) {
            float *o = y + who[r] / K * D;
            for (int64_t d = 0; d < D; d++) o[d] += Y[r * D + d];
        }
    }
    free(X);
}

void experts_bwd(const float *x, const float *w, const float *w13, const float *w2, const int32_t *order,
                 const int32_t *start, const float *gu, const float *gy, float *gx, float *gw, float *gw13, float *gw2,
                 int64_t n, int64_t K, int64_t E, int64_t D, int64_t F, float clamp) {
    int64_t cap = largest(start, E);
    float *X = malloc(sizeof(float) * cap * (3 * D + 4 * F));
    float *Y = X + cap * D, *GX = Y + cap * D, *M = GX + cap * D, *GM = M + cap * F, *GG = GM + cap * F;
    memset(gx, 0, sizeof(float) * n * D);
    for (int64_t e = 0; e < E; e++) {
        int m = start[e + 1] - start[e];
        if (!m) continue;
        const int32_t *who = order + start[e];
        const float *G = gu + (int64_t)start[e] * 2 * F;
        for (int r = 0; r < m; r++) {
            memcpy(X + r * D, x + who[r] / K * D, sizeof(float) * D);
            memcpy(Y + r * D, gy + who[r] / K * D, sizeof(float) * D);
        }
        mm_nn(m, F, D, Y, w2 + e * D * F, 0, GM);
        for (int r = 0; r < m; r++) {
            float dot = 0, ww = w[who[r]];
            for (int64_t f = 0; f < F; f++) {
                float g0 = G[r * 2 * F + f], u0 = G[r * 2 * F + F + f];
                float g = g0 > clamp ? clamp : g0, u = u0 > clamp ? clamp : u0 < -clamp ? -clamp : u0;
                float sg = 1.0f / (1.0f + expf(-g)), act = g * sg, gm = GM[r * F + f];
                dot += gm * act * u;
                M[r * F + f] = ww * act * u;
                gm *= ww;
                GG[r * 2 * F + f] = g0 > clamp ? 0 : gm * u * sg * (1 + g * (1 - sg));
                GG[r * 2 * F + F + f] = u0 > clamp || u0 < -clamp ? 0 : gm * act;
            }
            gw[who[r]] = dot;
        }
        mm_tn(m, D, F, Y, M, gw2 + e * D * F);
        mm_tn(m, 2 * F, D, GG, X, gw13 + e * 2 * F * D);
        mm_nn(m, D, 2 * F, GG, w13 + e * 2 * F * D, 0, GX);
        for (int r = 0; r < m; r++) {
            float *o = gx + who[r] / K * D;
            for (int64_t d = 0; d < D; d++) o[d] += GX[r * D + d];
        }
    }
    free(X);
}

// ---- AdamW over a flat range; the gradient is the sum of two workers' times gs -------
void adamw(float *p, const float *g0, const float *g1, float *m, float *v, int64_t n, float gs, float lr,
           float b1, float b2, float eps, float decay, float c1, float c2) {
    for (int64_t i = 0; i < n; i++) {
        float g = gs * (g0[i] + g1[i]);
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        p[i] -= lr * (m[i] * c1 / (sqrtf(v[i] * c2) + eps) + decay * p[i]);
    }
}
