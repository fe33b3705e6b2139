// Tiles of several tokens on AVX-512 VNNI, included by matmul_avx512.c inside
// its target section.
//
// 16 weight rows are unpacked once into a panel where vector lane = row, so
// that one instruction multiplies 16 rows by four broadcast activations and a
// group's dot needs no reduction. Weights become unsigned bytes; what signed
// types are offset by is taken off again through the sums of the activations
// (rm_act.z), exactly.

// PANEL_K goes on from the kinds of rm_vec256.h: unsigned bytes offset by 32
// with an int32 scale for each 16 (Q6_K, whose products exceed a byte).
enum { PANEL_K = KIND_SK + 1 };

#define PANEL_ROWS 16

// What a group needs besides s*d*t: MODE_U nothing, MODE_Z the offset of 128,
// MODE_M and MODE_MM minima of 32 and 16, MODE_K two integer scales.
enum { MODE_U, MODE_Z, MODE_M, MODE_MM, MODE_K };

// panel is 16 rows of `groups` groups; the rows beyond the matrix are zero.
typedef struct {
	uint8_t *u;   // [groups][8][16][4]: dword of 4 columns by row
	float *s;     // [groups][16]
	float *m0;    // [groups][16], types with minima
	float *m1;    // [groups][16], MIN_16
	int32_t *k0;  // [groups][16], PANEL_K, first half of the group
	int32_t *k1;  // [groups][16], second half
} panel;

// PANEL_GROUP is the bytes of one group in a panel: u, s and two more arrays.
#define PANEL_GROUP (512 + 3 * 64)

INLINE panel panel_at(uint8_t *mem, int64_t groups) {
	panel p;
	p.u = mem;
	p.s = (float *)(void *)(mem + 512 * groups);
	p.m0 = p.s + 16 * groups;
	p.m1 = p.m0 + 16 * groups;
	p.k0 = (int32_t *)(void *)p.m0;
	p.k1 = (int32_t *)(void *)p.m1;
	return p;
}

// transpose16v turns 16 vectors of 16 dwords into their columns.
INLINE void transpose16v(const __m512i v[16], __m512i out[16]) {
	__m512i a[16], b[16];
	for (int i = 0; i < 16; i += 2) {
		b[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
		b[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
	}
	// a[4i+c] has column c of each 128-bit quarter for rows 4i..4i+3.
	for (int i = 0; i < 16; i += 4) {
		a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
		a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
		a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
		a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
	}
	for (int c = 0; c < 4; c++) {
		__m512i x = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88), y = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
		__m512i z = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd), w = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
		out[c] = _mm512_shuffle_i32x4(x, y, 0x88);
		out[4 + c] = _mm512_shuffle_i32x4(z, w, 0x88);
		out[8 + c] = _mm512_shuffle_i32x4(x, y, 0xdd);
		out[12 + c] = _mm512_shuffle_i32x4(z, w, 0xdd);
	}
}

// transpose16 turns 16 vectors of 16 dwords, `stride` bytes apart at src, into
// their columns, 64 bytes apart at dst.
INLINE void transpose16(const uint8_t *src, size_t stride, uint8_t *dst) {
	__m512i v[16], c[16];
	for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(src + stride * (size_t)i);
	transpose16v(v, c);
	for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + 64 * i, c[i]);
}

// transpose8 turns 16 rows of 8 dwords (32 bytes apart) into 8 columns of 16.
INLINE void transpose8(const void *src, void *dst) {
	const __m512i *rows = (const __m512i *)src; // row 2i in the low half of vector i
	uint8_t wide[16][64];
	for (int i = 0; i < 8; i++) {
		__m512i v = _mm512_loadu_si512((const uint8_t *)(const void *)rows + 64 * i);
		_mm512_storeu_si512(wide[2 * i], v);
		_mm512_storeu_si512(wide[2 * i + 1], _mm512_shuffle_i64x2(v, v, 0xee));
	}
	uint8_t columns[16][64];
	transpose16(wide[0], 64, columns[0]);
	memcpy(dst, columns, 512);
}

// unsigned_bytes is q of a group as the panel holds it.
INLINE __m256i unsigned_bytes(const super *u, int kind, int g) {
	__m256i q = u->q[g];
	switch (kind) {
	case KIND_U:
		return q;
	case KIND_S:
		return _mm256_xor_si256(q, _mm256_set1_epi8((char)0x80));
	case KIND_UK: // at most 3*15: no carry from one byte to the next
		return _mm256_mullo_epi16(q, u->k[g]);
	case PANEL_K:
		return _mm256_add_epi8(q, _mm256_set1_epi8(32));
	default: { // KIND_SK: 128 - scale*q, in [0, 252]; the float scale is negated
		__m256i low = _mm256_set1_epi16(255);
		__m256i even = _mm256_and_si256(_mm256_mullo_epi16(_mm256_and_si256(q, low), u->k[g]), low);
		__m256i odd = _mm256_slli_epi16(_mm256_mullo_epi16(_mm256_srli_epi16(q, 8), u->k[g]), 8);
		return _mm256_sub_epi8(_mm256_set1_epi8((char)0x80), _mm256_or_si256(even, odd));
	}
	}
}

// pack fills a panel from nrows <= 16 rows.
INLINE void pack(unpack_fn unpack, int kind, int min, int bytes, const uint8_t *w, int64_t row_bytes, int64_t nrows,
                 int64_t cols, const panel *p) {
	// Rows of 256 columns, 64 bytes of padding against cache set conflicts.
	_Alignas(64) uint8_t q[PANEL_ROWS][256 + 64];
	_Alignas(64) float s[PANEL_ROWS][8], m0[PANEL_ROWS][8], m1[PANEL_ROWS][8];
	_Alignas(64) int32_t k0[PANEL_ROWS][8], k1[PANEL_ROWS][8];
	if (nrows < PANEL_ROWS) {
		memset(q, 0, sizeof q);
		memset(s, 0, sizeof s);
		memset(m0, 0, sizeof m0);
		memset(m1, 0, sizeof m1);
		memset(k0, 0, sizeof k0);
		memset(k1, 0, sizeof k1);
	}
	for (int64_t g = 0; 32 * g < cols; g += 8, w += bytes) {
		int64_t left = (cols - 32 * g) / 32;
		for (int64_t r = 0; r < nrows; r++) {
			super u;
			const uint8_t *block = w + r * row_bytes;
			unpack(block, left < 8 ? (int)left : 8, &u);
			for (int i = 0; i < 8; i++) {
				_mm256_store_si256((__m256i *)(void *)(q[r] + 32 * i), unsigned_bytes(&u, kind, i));
			}
			_mm256_store_ps(s[r], kind == KIND_SK ? _mm256_xor_ps(u.s, _mm256_set1_ps(-0.0f)) : u.s);
			if (min != MIN_NONE) _mm256_store_ps(m0[r], u.m0);
			if (min == MIN_16) _mm256_store_ps(m1[r], u.m1);
			if (kind == PANEL_K) {
				for (int i = 0; i < 8; i++) {
					k0[r][i] = (int16_t)_mm_extract_epi16(_mm256_castsi256_si128(u.k[i]), 0);
					k1[r][i] = (int16_t)_mm_extract_epi16(_mm256_extracti128_si256(u.k[i], 1), 0);
				}
			}
		}
		for (int i = 0; i < 4; i++) transpose16(q[0] + 64 * i, sizeof q[0], p->u + 512 * (g + 2 * i));
		transpose8(s, p->s + 16 * g);
		if (min != MIN_NONE) transpose8(m0, p->m0 + 16 * g);
		if (min == MIN_16) transpose8(m1, p->m1 + 16 * g);
		if (kind == PANEL_K) {
			transpose8(k0, p->k0 + 16 * g);
			transpose8(k1, p->k1 + 16 * g);
		}
	}
}

INLINE __m512i four(const int8_t *a) { return _mm512_set1_epi32((int)rm_load32(a)); }

// panel_group adds one group to lane `acc` of nt tokens (16 rows each).
INLINE void panel_group(const panel *p, int mode, const rm_act *a, int nt, int64_t g, __m512 *acc[]) {
	const uint8_t *u = p->u + 512 * g;
	__m512i t[2], t1[2];
	for (int i = 0; i < nt; i++) t[i] = t1[i] = _mm512_setzero_si512();
	for (int part = 0; part < 2; part++) {
		for (int k = 0; k < 8; k++) {
			__m512i w = _mm512_load_si512(u + 64 * k);
			for (int i = 0; i < nt; i++) {
				__m512i v = four((part == 0 ? a[i].q : a[i].r) + 32 * g + 4 * k);
				if (mode == MODE_K && k >= 4) {
					t1[i] = _mm512_dpbusd_epi32(t1[i], w, v);
				} else {
					t[i] = _mm512_dpbusd_epi32(t[i], w, v);
				}
			}
		}
		// Upper parts count 128; what the weights are offset by is taken off.
		for (int i = 0; part == 0 && i < nt; i++) {
			int z = mode == MODE_Z ? a[i].z[g] : mode == MODE_K ? a[i].z0[g] : 0;
			t[i] = _mm512_slli_epi32(t[i], 7);
			if (mode == MODE_Z || mode == MODE_K) t[i] = _mm512_add_epi32(t[i], _mm512_set1_epi32(z));
			if (mode == MODE_K) t1[i] = _mm512_add_epi32(_mm512_slli_epi32(t1[i], 7), _mm512_set1_epi32(a[i].z1[g]));
		}
	}
	if (mode == MODE_K) {
		__m512i k0 = _mm512_load_si512(p->k0 + 16 * g), k1 = _mm512_load_si512(p->k1 + 16 * g);
		for (int i = 0; i < nt; i++) {
			t[i] = _mm512_add_epi32(_mm512_mullo_epi32(t[i], k0), _mm512_mullo_epi32(t1[i], k1));
		}
	}
	__m512 s = _mm512_load_ps(p->s + 16 * g);
	for (int i = 0; i < nt; i++) {
		__m512 v = *acc[i];
		if (mode == MODE_M) v = _mm512_fmadd_ps(_mm512_load_ps(p->m0 + 16 * g), _mm512_set1_ps(a[i].b[g]), v);
		if (mode == MODE_MM) {
			v = _mm512_fmadd_ps(_mm512_load_ps(p->m0 + 16 * g), _mm512_set1_ps(a[i].b0[g]), v);
			v = _mm512_fmadd_ps(_mm512_load_ps(p->m1 + 16 * g), _mm512_set1_ps(a[i].b1[g]), v);
		}
		*acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(s, _mm512_set1_ps(a[i].d[g])), _mm512_cvtepi32_ps(t[i]), v);
	}
}

// panel_dots is 16 rows times nt <= 2 tokens; the low nrows go to out[i].
INLINE void panel_dots(const panel *p, int mode, const rm_act *a, int nt, float *const *out, int64_t off,
                       int64_t nrows) {
	__m512 acc[2][8];
	for (int i = 0; i < nt; i++) {
		for (int l = 0; l < 8; l++) acc[i][l] = _mm512_setzero_ps();
	}
#define LANE(l) \
	do { \
		__m512 *lane[2] = {&acc[0][l], &acc[1][l]}; \
		panel_group(p, mode, a, nt, g + l, lane); \
	} while (0)
	for (int64_t g = 0; g < a[0].groups; g += 8) {
		LANE(0);
		LANE(1);
		LANE(2);
		LANE(3);
		LANE(4);
		LANE(5);
		LANE(6);
		LANE(7);
	}
#undef LANE
	__mmask16 mask = (__mmask16)((1u << nrows) - 1);
	for (int i = 0; i < nt; i++) {
		__m512 even = _mm512_add_ps(_mm512_add_ps(acc[i][0], acc[i][4]), _mm512_add_ps(acc[i][2], acc[i][6]));
		__m512 odd = _mm512_add_ps(_mm512_add_ps(acc[i][1], acc[i][5]), _mm512_add_ps(acc[i][3], acc[i][7]));
		_mm512_mask_storeu_ps(out[i] + off, mask, _mm512_add_ps(even, odd));
	}
}

// dots_fn is panel_dots for a mode and a number of tokens.
typedef void (*dots_fn)(const panel *p, const rm_act *a, float *const *out, int64_t off, int64_t nrows);

#define DEFINE_DOTS(mode) \
	static void dots1_##mode(const panel *p, const rm_act *a, float *const *out, int64_t off, int64_t nrows) { \
		panel_dots(p, mode, a, 1, out, off, nrows); \
	} \
	static void dots2_##mode(const panel *p, const rm_act *a, float *const *out, int64_t off, int64_t nrows) { \
		panel_dots(p, mode, a, 2, out, off, nrows); \
	}
DEFINE_DOTS(MODE_U)
DEFINE_DOTS(MODE_Z)
DEFINE_DOTS(MODE_M)
DEFINE_DOTS(MODE_MM)
DEFINE_DOTS(MODE_K)
#define DOTS(mode) {dots1_##mode, dots2_##mode}
static const dots_fn dots_of[][2] = {DOTS(MODE_U), DOTS(MODE_Z), DOTS(MODE_M), DOTS(MODE_MM), DOTS(MODE_K)};

// PANELS_MAX panels are packed before the tokens run over them, as many as stay
// in RM_PANELS_BYTES; so the activations pass the cache once for several panels.
#define PANELS_MAX (RM_TILE_ROWS / PANEL_ROWS)

typedef void (*pack_fn)(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const panel *p);

static void panels(pack_fn pack_rows, const dots_fn dots[2], const rm_tile *t) {
	int64_t groups = rm_act_padded(t->cols) / 32, size = PANEL_GROUP * groups;
	int64_t at_once = RM_PANELS_BYTES / size;
	at_once = at_once < 1 ? 1 : at_once > PANELS_MAX ? PANELS_MAX : at_once;
	for (int64_t r0 = 0; r0 < t->nrows; r0 += PANEL_ROWS * at_once) {
		int64_t end = t->nrows - r0 < PANEL_ROWS * at_once ? t->nrows : r0 + PANEL_ROWS * at_once;
		panel p[PANELS_MAX];
		int n = 0;
		for (int64_t r = r0; r < end; r += PANEL_ROWS, n++) {
			p[n] = panel_at(t->scratch + size * n, groups);
			int64_t rows = end - r < PANEL_ROWS ? end - r : PANEL_ROWS;
			pack_rows(t->w + r * t->row_bytes, t->row_bytes, rows, t->cols, &p[n]);
		}
		for (int64_t i = 0; i < t->nx; i += 2) {
			rm_act a[2];
			int nt = t->nx - i < 2 ? 1 : 2;
			for (int j = 0; j < nt; j++) a[j] = rm_act_at(t->x[i + j], t->cols);
			for (int k = 0; k < n; k++) {
				int64_t r = r0 + PANEL_ROWS * k, rows = end - r < PANEL_ROWS ? end - r : PANEL_ROWS;
				dots[nt - 1](&p[k], a, t->out + i, t->off + r, rows);
			}
		}
	}
}
