// Panels of bytes, included by matmul_panel.inc.h for levels that multiply unsigned by signed
// bytes (p_dot_bytes): for activations whose lower bytes are zero (upper_only), one
// instruction multiplies four columns, where int16 allow two.
//
// Signed weights are stored with 128 added; the sums of integers begin with what that takes
// away (token.z). Integer scales multiply the sums of 16 columns. Values of activations are
// 128 times their upper bytes, and so are the sums: the same integers as those of panels of
// int16, hence the same bits.

// BYTE_GROUP is the number of bytes of one group, at most RM_PANEL_GROUP.
#define BYTE_GROUP (PANEL_ROWS * (32 + 3 * 4 + 2 * 4))

static panel byte_panel_at(uint8_t *mem, int64_t groups) {
	panel p = {.supers = groups / 8, .q = mem, .s = (float *)(void *)(mem + PANEL_ROWS * 32 * groups)};
	p.m0 = p.s + PANEL_ROWS * groups;
	p.m1 = p.m0 + PANEL_ROWS * groups;
	p.k = (int32_t *)(void *)(p.m1 + PANEL_ROWS * groups);
	return p;
}

// byte_packing is 256 columns of PANEL_ROWS rows on their way into a panel. Four bytes are
// moved as one float.
typedef struct {
	_Alignas(64) float q[8][PANEL_ROWS][8]; // by group
	int32_t k[16][PANEL_ROWS];              // for each 16 columns
} byte_packing;

INLINE void keep_bytes(byte_packing *p, int64_t r, const super *u, int kind) {
	for (int g = 0; g < 8; g++) {
		__m256i q = u->q[g];
		if (kind == KIND_S || kind == KIND_SK) q = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
		_mm256_store_ps(p->q[g][r], _mm256_castsi256_ps(q));
		if (kind != KIND_UK && kind != KIND_SK) continue;
		p->k[2 * g][r] = (int16_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(u->k[g]));
		p->k[2 * g + 1][r] = (int16_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(u->k[g], 1));
	}
}

// group_of_bytes writes group g of p as group i of a panel.
INLINE void group_of_bytes(byte_packing *p, int g, int kind, const panel *to, int64_t i) {
	p_float_columns(p->q[g], (float *)(void *)(to->q + 32 * PANEL_ROWS * i), PANEL_ROWS);
	if (kind == KIND_UK || kind == KIND_SK) memcpy(to->k + 2 * PANEL_ROWS * i, p->k[2 * g], sizeof p->k[0] * 2);
}

// A batch of bytes has for each token q [groups][32], then d, b, b0, b1 [groups] and z
// [3][groups]; tokens are as far apart as those of int16.
static token byte_token_at(const uint8_t *batch, int64_t i, int64_t groups) {
	token t = {.q = (const int8_t *)batch + 80 * groups * i};
	t.d = (const float *)(const void *)(t.q + 32 * groups);
	t.b = t.d + groups;
	t.b0 = t.b + groups;
	t.b1 = t.b0 + groups;
	t.z = (const int32_t *)(const void *)(t.b1 + groups);
	return t;
}

static void gather_bytes(const void *const *x, int64_t n, int64_t cols, uint8_t *batch) {
	int64_t groups = rm_act_padded(cols) / 32, supers = groups / 8;
	for (int64_t t = 0; t < n; t++) {
		rm_act a = rm_act_at(x[t], cols);
		uint8_t *q = batch + 80 * groups * t;
		float *f = (float *)(void *)(q + 32 * groups);
		int32_t *z = (int32_t *)(void *)(f + 4 * groups);
		for (int64_t g = 0; g < groups; g++) {
			int64_t i = g % 8 * supers + g / 8;
			_mm256_storeu_si256((__m256i *)(void *)(q + 32 * i), load256(a.q + 32 * g));
			f[i] = a.d[g];
			f[groups + i] = a.b[g];
			f[2 * groups + i] = a.b0[g];
			f[3 * groups + i] = a.b1[g];
			// -128 times the sums of q, without remainders: n = 128*q
			z[i] = a.z[g] / 128;
			z[groups + i] = a.z0[g] / 32;
			z[2 * groups + i] = a.z1[g] / 32;
		}
	}
}

// byte_dots are the integer dot products of group i of np <= 2 panels and nt <= 4 tokens.
INLINE void byte_dots(const panel *p, int np, int nt, int kind, const token *x, int64_t i, pint t[2][4]) {
	int halves = kind == KIND_UK || kind == KIND_SK ? 2 : 1, each = 8 / halves;
	int64_t groups = 8 * p->supers;
	RM_UNROLL
	for (int h = 0; h < halves; h++) {
		pint sums[2][4];
		RM_UNROLL
		for (int k = 0; k < np * nt; k++) {
			sums[k / nt][k % nt] = p_zero_int();
			if (kind == KIND_S) sums[k / nt][k % nt] = p_set_int(x[k % nt].z[i]);
			if (kind == KIND_SK) sums[k / nt][k % nt] = p_set_int(x[k % nt].z[(1 + h) * groups + i]);
		}
		RM_UNROLL
		for (int c = each * h; c < each * (h + 1); c++) {
			pint w0 = p_load_int(p[0].q + 4 * PANEL_ROWS * (8 * i + c)), w1 = w0;
			if (np == 2) w1 = p_load_int(p[1].q + 4 * PANEL_ROWS * (8 * i + c));
			RM_UNROLL
			for (int k = 0; k < nt; k++) {
				pint v = p_pair(x[k].q + 32 * i + 4 * c);
				sums[0][k] = p_dot_bytes(sums[0][k], w0, v);
				if (np == 2) sums[1][k] = p_dot_bytes(sums[1][k], w1, v);
			}
		}
		RM_UNROLL
		for (int k = 0; k < np * nt; k++) {
			pint v = sums[k / nt][k % nt];
			if (halves == 2) v = p_mul_int(v, p_load_int(p[k / nt].k + PANEL_ROWS * (2 * i + h)));
			t[k / nt][k % nt] = h == 0 ? v : p_add_int(t[k / nt][k % nt], v);
		}
	}
	RM_UNROLL
	for (int k = 0; k < np * nt; k++) t[k / nt][k % nt] = p_times_128(t[k / nt][k % nt]);
}
