// The attention over a window of raw rows and compressed blocks, forward and backward, for a CPU.
// LANES queries (the heads of neighbouring tokens) go through together, one in each lane of a
// vector, as all of them share the same keys; a key is its own value.  Built with fast.c.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// How a vector is passed differs between processors; every function here that takes one is static.
#pragma GCC diagnostic ignored "-Wpsabi"

enum { LANES = 16, HD = 64, W = HD / LANES };
typedef float vec __attribute__((vector_size(64), aligned(64)));
typedef int32_t ivec __attribute__((vector_size(64), aligned(64)));
typedef float uvec __attribute__((vector_size(64), aligned(4)));
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE vec pick(ivec yes, vec a, vec b) { return (vec)((yes & (ivec)a) | (~yes & (ivec)b)); }
INLINE vec larger(vec a, vec b) { return pick(a > b, a, b); }

INLINE vec vexp(vec x) {
    x = larger(x, (vec){} - 87.0f);
    ivec n = __builtin_convertvector(x * 1.44269504f + 1024.5f, ivec) - 1024;
    vec f = __builtin_convertvector(n, vec), r = x - f * 0.693359375f + f * 2.12194440e-4f;
    vec y = r * (1.0f / 720) + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = (y * r + 1.0f) * r + 1.0f;
    return y * (vec)((n + 127) << 23);
}

// S[j] = the products of key j with the queries Q[dim] (a lane each)
INLINE void dots_of(const float *k, int N, int dim, const vec *Q, vec *S) {
    vec acc[8];
    UNROLL for (int i = 0; i < N; i++) acc[i] = (vec){};
    for (int d = 0; d < dim; d++)
        UNROLL for (int i = 0; i < N; i++) acc[i] += Q[d] * k[i * dim + d];
    UNROLL for (int i = 0; i < N; i++) S[i] = acc[i];
}

INLINE void dots(const float *k, int n, int dim, const vec *Q, vec *S) {
    int j = 0;
    for (; j + 8 <= n; j += 8) dots_of(k + j * dim, 8, dim, Q, S + j);
    if (j + 4 <= n) { dots_of(k + j * dim, 4, dim, Q, S + j); j += 4; }
    for (; j < n; j++) dots_of(k + j * dim, 1, dim, Q, S + j);
}

// O[d] += the sum over keys of P[j] times key j
INLINE void weighted(const float *k, int n, int dim, const vec *P, vec *O) {
    for (int d = 0; d < dim; d += 16) {
        vec acc[16];
        UNROLL for (int i = 0; i < 16; i++) acc[i] = O[d + i];
        for (int j = 0; j < n; j++)
            UNROLL for (int i = 0; i < 16; i++) acc[i] += P[j] * k[j * dim + d + i];
        UNROLL for (int i = 0; i < 16; i++) O[d + i] = acc[i];
    }
}

// gk[j] += the sum over lanes of A[j] times the lane's row of X, and the same of B and Y (HD wide)
INLINE void outer_of(float *gk, int N, const vec *A, const vec *B, const float *X, const float *Y) {
    vec acc[4][W];
    UNROLL for (int i = 0; i < N; i++)
        UNROLL for (int w = 0; w < W; w++) acc[i][w] = ((uvec *)(gk + i * HD))[w];
    for (int l = 0; l < LANES; l++) {
        const uvec *x = (const uvec *)(X + l * HD), *y = (const uvec *)(Y + l * HD);
        UNROLL for (int i = 0; i < N; i++)
            UNROLL for (int w = 0; w < W; w++) acc[i][w] += x[w] * ((const float *)(A + i))[l] + y[w] * ((const float *)(B + i))[l];
    }
    UNROLL for (int i = 0; i < N; i++)
        UNROLL for (int w = 0; w < W; w++) ((uvec *)(gk + i * HD))[w] = acc[i][w];
}

static void outer(float *gk, int n, const vec *A, const vec *B, const float *X, const float *Y) {
    int j = 0;
    for (; j + 4 <= n; j += 4) outer_of(gk + j * HD, 4, A + j, B + j, X, Y);
    for (; j < n; j++) outer_of(gk + j * HD, 1, A + j, B + j, X, Y);
}

// A tile is LANES / H tokens from t0 on; lanes of tokens beyond the sequence hold zeros.
static void load_tile(const float *x, int H, int t0, int T, float scale, float *rows, vec *columns) {
    int have = (T - t0) * H < LANES ? (T - t0) * H : LANES;
    memset(rows, 0, sizeof(float) * LANES * HD);
    x += (int64_t)t0 * H * HD;
    for (int i = 0; i < have * HD; i++) rows[i] = x[i] * scale;
    for (int d = 0; d < HD; d++)
        for (int l = 0; l < LANES; l++) ((float *)(columns + d))[l] = rows[l * HD + d];
}

static void store_tile(float *x, int H, int t0, int T, vec scale, const vec *columns) {
    int have = (T - t0) * H < LANES ? (T - t0) * H : LANES;
    float rows[LANES * HD];
    for (int d = 0; d < HD; d++) {
        vec v = columns[d] * scale;
        for (int l = 0; l < LANES; l++) rows[l * HD + d] = v[l];
    }
    memcpy(x + (int64_t)t0 * H * HD, rows, sizeof(float) * have * HD);
}

typedef struct { int lo, raw, blocks; ivec at; } span;    // what a tile sees: raw rows lo..lo+raw, the first blocks

static span span_of(int H, int t0, int T, int nb, int window, int ratio) {
    int last = t0 + LANES / H - 1;
    last = last < T ? last : T - 1;
    span s = {.lo = t0 - window + 1 > 0 ? t0 - window + 1 : 0};
    s.raw = last + 1 - s.lo;
    s.blocks = ratio ? (last + 1) / ratio : 0;
    s.blocks = s.blocks < nb ? s.blocks : nb;
    for (int l = 0; l < LANES; l++) s.at[l] = t0 + l / H;
    return s;
}

// The scores S of a tile's keys; -1e30 where a lane's token does not see the key.
static void scores(const float *keys, const vec *Q, vec *S, span s, int H, int t0, int T, int nb, int window, int ratio, const uint8_t *chosen) {
    const vec never = (vec){} - 1e30f;
    dots(keys + s.lo * HD, s.raw, HD, Q, S);
    dots(keys + T * HD, s.blocks, HD, Q, S + s.raw);
    int sure = t0 + LANES / H - window;                 // raw rows from sure + 1 to t0 are seen by all
    for (int j = 0; j < s.raw; j++)
        if (s.lo + j <= sure || s.lo + j > t0) S[j] = pick((s.at >= s.lo + j) & (s.at < s.lo + j + window), S[j], never);
    for (int j = 0; j < s.blocks; j++) {
        if ((j + 1) * ratio > t0 + 1) S[s.raw + j] = pick(s.at >= (j + 1) * ratio - 1, S[s.raw + j], never);
        for (int l = 0; chosen && l < LANES; l += H)
            if (t0 + l / H < T && !chosen[(int64_t)(t0 + l / H) * nb + j])
                for (int h = 0; h < H; h++) ((float *)(S + s.raw + j))[l + h] = -1e30f;
    }
}

// q and out [B,T,H,HD], keys [B,T+nb,HD], sinks [H], lse [B,T,H]; chosen [B,T,nb] or null;
// mass [B,T,nb] (the blocks' weights, summed over heads) or null.
void attention_fwd(const float *q, const float *keys, const float *sinks, const uint8_t *chosen, float *out, float *lse, float *mass,
                   int64_t B, int64_t T, int64_t H, int64_t nb, int64_t window, int64_t ratio, float scale) {
    vec *S = aligned_alloc(64, sizeof(vec) * (window + LANES + nb)), Q[HD], O[HD], sink;
    float rows[LANES * HD];
    for (int l = 0; l < LANES; l++) sink[l] = sinks[l % H];
    if (mass) memset(mass, 0, sizeof(float) * B * T * nb);
    for (int64_t b = 0; b < B; b++) {
        for (int t0 = 0; t0 < T; t0 += LANES / H) {
            span s = span_of(H, t0, T, nb, window, ratio);
            int n = s.raw + s.blocks;
            load_tile(q, H, t0, T, scale, rows, Q);
            scores(keys, Q, S, s, H, t0, T, nb, window, ratio, chosen);
            vec top = sink, sum, inv;
            for (int j = 0; j < n; j++) top = larger(S[j], top);
            sum = vexp(sink - top);
            for (int j = 0; j < n; j++) sum += S[j] = vexp(S[j] - top);
            inv = 1.0f / sum;
            memset(O, 0, sizeof O);
            weighted(keys + s.lo * HD, s.raw, HD, S, O);
            weighted(keys + T * HD, s.blocks, HD, S + s.raw, O);
            store_tile(out, H, t0, T, inv, O);
            for (int l = 0; l < LANES && t0 + l / H < T; l++) lse[t0 * H + l] = top[l] + logf(sum[l]);
            for (int j = 0; mass && j < s.blocks; j++) {
                vec p = S[s.raw + j] * inv;
                for (int l = 0; l < LANES && t0 + l / H < T; l++) mass[(int64_t)(t0 + l / H) * nb + j] += p[l];
            }
        }
        q += T * H * HD; out += T * H * HD; keys += (T + nb) * HD; lse += T * H;
        chosen = chosen ? chosen + T * nb : chosen; mass = mass ? mass + T * nb : mass;
    }
    free(S);
}

void attention_bwd(const float *q, const float *keys, const float *sinks, const uint8_t *chosen, const float *lse, const float *go,
                   float *gq, float *gkeys, float *gsinks, int64_t B, int64_t T, int64_t H, int64_t nb, int64_t window, int64_t ratio, float scale) {
    int64_t room = window + LANES + nb;
    vec *S = aligned_alloc(64, sizeof(vec) * room * 2), *DP = S + room, Q[HD], G[HD], GQ[HD], sink, gsink = {};
    float rows[LANES * HD], grows[LANES * HD];
    for (int l = 0; l < LANES; l++) sink[l] = sinks[l % H];
    memset(gkeys, 0, sizeof(float) * B * (T + nb) * HD);
    for (int64_t b = 0; b < B; b++) {
        for (int t0 = 0; t0 < T; t0 += LANES / H) {
            span s = span_of(H, t0, T, nb, window, ratio);
            int n = s.raw + s.blocks;
            load_tile(q, H, t0, T, scale, rows, Q);
            load_tile(go, H, t0, T, 1, grows, G);
            scores(keys, Q, S, s, H, t0, T, nb, window, ratio, chosen);
            dots(keys + s.lo * HD, s.raw, HD, G, DP);
            dots(keys + T * HD, s.blocks, HD, G, DP + s.raw);
            vec norm = {}, delta = {};
            for (int l = 0; l < LANES && t0 + l / H < T; l++) norm[l] = lse[t0 * H + l];
            for (int j = 0; j < n; j++) {
                S[j] = vexp(S[j] - norm);
                delta += S[j] * DP[j];
            }
            for (int j = 0; j < n; j++) DP[j] = S[j] * (DP[j] - delta);
            gsink -= vexp(sink - norm) * delta;
            memset(GQ, 0, sizeof GQ);
            weighted(keys + s.lo * HD, s.raw, HD, DP, GQ);
            weighted(keys + T * HD, s.blocks, HD, DP + s.raw, GQ);
            store_tile(gq, H, t0, T, (vec){} + scale, GQ);
            outer(gkeys + s.lo * HD, s.raw, DP, S, rows, grows);
            outer(gkeys + T * HD, s.blocks, DP + s.raw, S + s.raw, rows, grows);
        }
        q += T * H * HD; go += T * H * HD; gq += T * H * HD; keys += (T + nb) * HD; gkeys += (T + nb) * HD; lse += T * H;
        chosen = chosen ? chosen + T * nb : chosen;
    }
    for (int h = 0; h < H; h++) gsinks[h] = 0;
    for (int l = 0; l < LANES; l++) gsinks[l % H] += gsink[l];
    free(S);
}

// The k largest seen scores of every token, the lowest index first among equals.
void choose_blocks(const float *score, uint8_t *chosen, int64_t B, int64_t T, int64_t nb, int64_t ratio, int64_t k) {
    int32_t *key = malloc(sizeof *key * nb);
    for (int64_t t = 0; t < B * T; t++, score += nb, chosen += nb) {
        int n = (int)((t % T + 1) / ratio), left = (int)k;
        if (n <= k) {
            memset(chosen, 1, nb);
            continue;
        }
        for (int j = 0; j < n; j++) {                   // integers in the order of the floats
            int32_t bits;
            float plain = score[j] + 0.0f;
            memcpy(&bits, &plain, sizeof bits);
            key[j] = bits < 0 ? (int32_t)(0x80000000u - (uint32_t)bits) : bits;
        }
        int64_t lo = INT32_MIN, hi = INT32_MAX;         // the largest limit that k of them reach
        while (lo < hi) {
            int64_t mid = lo + (hi - lo + 1) / 2;
            int32_t limit = (int32_t)mid;
            int reach = 0;
            for (int j = 0; j < n; j++) reach += key[j] >= limit;
            if (reach >= k) lo = mid; else hi = mid - 1;
        }
        memset(chosen, 0, nb);
        for (int j = 0; j < n; j++) left -= chosen[j] = key[j] > lo;
        for (int j = 0; j < n && left; j++)
            if (key[j] == lo) { chosen[j] = 1; left--; }
    }
    free(key);
}
