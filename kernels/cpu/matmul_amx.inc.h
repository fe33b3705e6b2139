// GEMM tiles on AMX, included by matmul_avx512.c inside its target section,
// after matmul_amx_slab.inc.h.
//
// One tile product gives the exact int32 dot products of 16 weight rows with 16
// columns of activations over one group of 32. Weights are the left operand:
// their rows are unpacked as rows, nothing is transposed. Activations are the
// right one: rm_kernels.gather interleaves a batch of tokens once for all rows.
// The dot products go through memory to vectors where lane = token; there they
// are multiplied by the scales in the order that matmul.h gives.
//
// Groups are stored by lane (group number mod 8), so that the sums of one lane
// of 16 rows by 16 tokens stay in registers over all columns. The code is a
// software pipeline: while the dot products of one group are scaled, those of
// the next are stored and those of the one after that are computed, so that the
// tile unit and the vector units work at the same time. The stages are
// interleaved by hand because out-of-order execution does not look far enough
// ahead to overlap them (measured: 78 cycles for 16 by 16 by 32 and two planes,
// 131 when written one after the other).

// ---- token batches ----------------------------------------------------------

// gather_floats interleaves one of the float arrays of n tokens, groups 8j to
// 8j+7.
INLINE void gather_floats(const float *const *x, int64_t n, int64_t j, uint8_t *dst, int64_t lane, int half) {
	static const float zero[8];
	const float *p[16];
	__m512 r[8], c[8];
	for (int i = 0; i < 16; i++) p[i] = i < n ? x[i] + 8 * j : zero;
	for (int i = 0; i < 4; i++) {
		r[i] = two_rows(p[i], p[4 + i]);
		r[4 + i] = two_rows(p[8 + i], p[12 + i]);
	}
	columns8(r, c);
	for (int l = 0; l < 8; l++) {
		if (half) {
			_mm256_storeu_ps((float *)(void *)(dst + lane * l), _mm512_castps512_ps256(c[l]));
		} else {
			_mm512_storeu_ps((float *)(void *)(dst + lane * l), c[l]);
		}
	}
}

// gather_pair interleaves 64 bytes (two groups) of 16 rows into the records of
// two lanes.
INLINE void gather_pair(const __m512i v[16], uint8_t *first, uint8_t *second) {
	__m512i c[16];
	transpose16v(v, c);
	for (int k = 0; k < 8; k++) {
		_mm512_storeu_si512(first + 64 * k, c[k]);
		_mm512_storeu_si512(second + 64 * k, c[8 + k]);
	}
}

static void gather(const void *const *x, int64_t n, int64_t cols, uint8_t *batch) {
	const int8_t *q[RM_BATCH], *r[RM_BATCH];
	const float *f[4][RM_BATCH];
	int64_t groups = rm_act_padded(cols) / 32, supers = groups / 8;
	for (int64_t i = 0; i < n; i++) {
		rm_act a = rm_act_at(x[i], cols);
		q[i] = a.q, r[i] = a.r, f[0][i] = a.d, f[1][i] = a.b, f[2][i] = a.b0, f[3][i] = a.b1;
	}
	int half = n <= 8;
	int64_t record = half ? HALF_RECORD : WHOLE_RECORD, lane = record * supers;
	for (int64_t j = 0; j < supers; j++) {
		uint8_t *dst = batch + record * j;
		for (int l = 0; l < 8; l += 2) {
			int64_t at = 32 * (8 * j + l);
			__m512i u[16], v[16];
			for (int i = 0; i < 16; i++) u[i] = v[i] = _mm512_setzero_si512();
			for (int64_t i = 0; i < n; i++) {
				u[i] = _mm512_loadu_si512(q[i] + at);
				if (half) {
					u[8 + i] = _mm512_loadu_si512(r[i] + at);
				} else {
					v[i] = _mm512_loadu_si512(r[i] + at);
				}
			}
			gather_pair(u, dst + lane * l, dst + lane * (l + 1));
			if (!half) gather_pair(v, dst + lane * l + 512, dst + lane * (l + 1) + 512);
		}
		for (int i = 0; i < 4; i++) {
			gather_floats(f[i], n, j, dst + (half ? HALF_D + 32 * i : WHOLE_D + 64 * i), lane, half);
		}
	}
}

// ---- products --------------------------------------------------------------

// The tile products of one group in two parts, and the stores of their sums in
// two: tiles 0 and 1, or 2 and 3 if odd. Two planes with a whole batch have
// three sums and use only tiles 0 to 2, so there the stores come first.
INLINE void dot_first(int odd, int planes, int half, const int8_t *w, const uint8_t *x) {
	TILE_LOAD(4, w, 32);
	TILE_LOAD(6, x, 64);
	if (planes == 2 && !half) {
		TILE_ZERO(0);
		TILE_ZERO(1);
		TILE_LOAD(7, x + 512, 64);
		TILE_DOT(0, 4, 6);
		TILE_DOT(1, 4, 7);
	} else if (odd) {
		TILE_ZERO(2);
		TILE_DOT(2, 4, 6);
	} else {
		TILE_ZERO(0);
		TILE_DOT(0, 4, 6);
	}
}

INLINE void dot_second(int odd, int planes, int half, const int8_t *w, const uint8_t *x) {
	if (planes == 2) TILE_LOAD(5, w + 512, 32);
	if (planes == 2 && !half) {
		TILE_ZERO(2);
		TILE_DOT(1, 5, 6);
		TILE_DOT(2, 5, 7);
	} else if (planes == 2) {
		if (odd) {
			TILE_ZERO(3);
			TILE_DOT(3, 5, 6);
		} else {
			TILE_ZERO(1);
			TILE_DOT(1, 5, 6);
		}
	} else if (!half) {
		TILE_LOAD(7, x + 512, 64);
		if (odd) {
			TILE_ZERO(3);
			TILE_DOT(3, 4, 7);
		} else {
			TILE_ZERO(1);
			TILE_DOT(1, 4, 7);
		}
	}
}

INLINE void store_first(int odd, int planes, int half, int32_t *t) {
	if (odd && !(planes == 2 && !half)) {
		TILE_STORE(2, t);
	} else {
		TILE_STORE(0, t);
	}
}

INLINE void store_second(int odd, int planes, int half, int32_t *t) {
	if (planes == 2 && !half) {
		TILE_STORE(1, t + 256);
		TILE_STORE(2, t + 512);
	} else if (planes == 2 || !half) {
		if (odd) {
			TILE_STORE(3, t + 256);
		} else {
			TILE_STORE(1, t + 256);
		}
	}
}

// SUMS is the number of int32 of one group's sums: up to three tiles.
#define SUMS 768

INLINE __m512i whole_at(const int32_t *t, int r) { return _mm512_load_si512(t + 16 * r); }
INLINE __m256i half_of(const int32_t *t, int r, int side) {
	return _mm256_load_si256((const __m256i *)(const void *)(t + 16 * r + 8 * side));
}

// scale_whole and scale_half scale rows first to first+3 of a group's sums t
// and add them to one lane acc.
INLINE void scale_whole(int planes, int min, int first, const int32_t *t, const slab *p, int64_t i, const uint8_t *x,
                        __m512 acc[16]) {
	const float *f = (const float *)(const void *)(x + WHOLE_D);
	RM_UNROLL
	for (int r = first; r < first + 4; r++) {
		__m512i n = _mm512_add_epi32(_mm512_slli_epi32(whole_at(t, r), 7), whole_at(t + 256, r));
		if (planes == 2) n = _mm512_add_epi32(_mm512_slli_epi32(n, 7), whole_at(t + 512, r));
		__m512 v = acc[r];
		if (min == MIN_32) v = _mm512_fmadd_ps(_mm512_set1_ps(p->m0[16 * i + r]), _mm512_load_ps(f + 16), v);
		if (min == MIN_16) {
			v = _mm512_fmadd_ps(_mm512_set1_ps(p->m0[16 * i + r]), _mm512_load_ps(f + 32), v);
			v = _mm512_fmadd_ps(_mm512_set1_ps(p->m1[16 * i + r]), _mm512_load_ps(f + 48), v);
		}
		__m512 s = _mm512_mul_ps(_mm512_set1_ps(p->s[16 * i + r]), _mm512_load_ps(f));
		acc[r] = _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(n), v);
	}
}

INLINE void scale_half(int planes, int min, int first, const int32_t *t, const slab *p, int64_t i, const uint8_t *x,
                       __m256 acc[16]) {
	const float *f = (const float *)(const void *)(x + HALF_D);
	RM_UNROLL
	for (int r = first; r < first + 4; r++) {
		__m256i n = _mm256_add_epi32(_mm256_slli_epi32(half_of(t, r, 0), 7), half_of(t, r, 1));
		if (planes == 2) {
			n = _mm256_add_epi32(n, half_of(t + 256, r, 0));
			n = _mm256_add_epi32(_mm256_slli_epi32(n, 7), half_of(t + 256, r, 1));
		}
		__m256 v = acc[r];
		if (min == MIN_32) v = _mm256_fmadd_ps(_mm256_set1_ps(p->m0[16 * i + r]), _mm256_load_ps(f + 8), v);
		if (min == MIN_16) {
			v = _mm256_fmadd_ps(_mm256_set1_ps(p->m0[16 * i + r]), _mm256_load_ps(f + 16), v);
			v = _mm256_fmadd_ps(_mm256_set1_ps(p->m1[16 * i + r]), _mm256_load_ps(f + 24), v);
		}
		__m256 s = _mm256_mul_ps(_mm256_set1_ps(p->s[16 * i + r]), _mm256_load_ps(f));
		acc[r] = _mm256_fmadd_ps(s, _mm256_cvtepi32_ps(n), v);
	}
}

// step scales group i while the next group is stored and the one after it is
// computed.
#define SLAB_STEP(odd) \
	do { \
		int32_t *mine = sums + SUMS * (odd), *next = sums + SUMS * !(odd); \
		if (planes == 2 && !half) { \
			store_first(!(odd), planes, half, next); \
			store_second(!(odd), planes, half, next); \
		} \
		dot_first(odd, planes, half, w, y); \
		SCALE(0); \
		dot_second(odd, planes, half, w, y); \
		SCALE(4); \
		if (planes == 1 || half) store_first(!(odd), planes, half, next); \
		SCALE(8); \
		if (planes == 1 || half) store_second(!(odd), planes, half, next); \
		SCALE(12); \
	} while (0)

// slab_sums computes the eight lanes of 16 rows by a batch: lanes [8][16][16],
// or [8][16][8] for half a batch.
INLINE void slab_sums(int planes, int min, int half, const slab *p, const uint8_t *batch, float *lanes) {
	_Alignas(64) int32_t sums[2 * SUMS];
	int64_t record = half ? HALF_RECORD : WHOLE_RECORD, size = 512 * planes, last = 8 * p->supers - 1, i = 0;
	dot_first(0, planes, half, p->w, batch);
	dot_second(0, planes, half, p->w, batch);
	store_first(0, planes, half, sums);
	store_second(0, planes, half, sums);
	dot_first(1, planes, half, p->w + size, batch + record);
	dot_second(1, planes, half, p->w + size, batch + record);
	for (int l = 0; l < 8; l++) {
		__m512 acc[16];
		__m256 acc_half[16];
		RM_UNROLL
		for (int r = 0; r < 16; r++) {
			acc[r] = _mm512_setzero_ps();
			acc_half[r] = _mm256_setzero_ps();
		}
		for (int64_t j = 0; j < p->supers; j++, i++) {
			const uint8_t *x = batch + record * i;
			int64_t ahead = i + 2 < last ? i + 2 : last; // the last ones are computed a second time and not used
			const int8_t *w = p->w + size * ahead;
			const uint8_t *y = batch + record * ahead;
#define SCALE(first) \
	do { \
		if (half) { \
			scale_half(planes, min, first, mine, p, i, x, acc_half); \
		} else { \
			scale_whole(planes, min, first, mine, p, i, x, acc); \
		} \
	} while (0)
			if (i & 1) {
				SLAB_STEP(1);
			} else {
				SLAB_STEP(0);
			}
#undef SCALE
		}
		RM_UNROLL
		for (int r = 0; r < 16; r++) {
			if (half) {
				_mm256_store_ps(lanes + 8 * (16 * l + r), acc_half[r]);
			} else {
				_mm512_store_ps(lanes + 16 * (16 * l + r), acc[r]);
			}
		}
	}
}

// give_slab stores the sums of `each` lanes from lane `first` on, as slab_sums left them, of
// the first nrows rows to out[i].
INLINE void give_slab(const float *lanes, int half, int first, int each, int64_t nt, float *const *out, int64_t off,
                      int64_t nrows) {
	__m512i v[16], c[16];
	for (int r = 0; r < 16; r++) {
		__m512 a[8];
		for (int l = 0; l < each; l++) {
			const float *row = lanes + (half ? 8 : 16) * (16 * (first + l) + r);
			a[l] = half ? _mm512_castps256_ps512(_mm256_load_ps(row)) : _mm512_load_ps(row);
		}
		if (each == 8) {
			for (int l = 0; l < 4; l++) a[l] = _mm512_add_ps(a[l], a[4 + l]);
		}
		if (each >= 4) {
			for (int l = 0; l < 2; l++) a[l] = _mm512_add_ps(a[l], a[2 + l]);
		}
		v[r] = _mm512_castps_si512(each == 1 ? a[0] : _mm512_add_ps(a[0], a[1]));
	}
	transpose16v(v, c);
	__mmask16 mask = (__mmask16)((1u << nrows) - 1);
	for (int64_t i = 0; i < nt; i++) _mm512_mask_storeu_epi32(out[i] + off, mask, c[i]);
}

// slab_dots is 16 rows times the nt tokens of a batch; the first nrows are
// stored to out[i].
INLINE void slab_dots(int planes, int min, int half, const slab *p, const uint8_t *batch, int64_t nt, float *const *out,
                      int64_t off, int64_t nrows, const rm_row_sums *sums) {
	_Alignas(64) float lanes[8 * 16 * 16];
	slab_sums(planes, min, half, p, batch, lanes);
	if (!sums->each) {
		give_slab(lanes, half, 0, 8, nt, out, off, nrows);
		return;
	}
	for (int i = 0; i < sums->count; i++) { // rm_give_sums, once for all columns
		int64_t at = off + i * sums->apart;
		switch (sums->each) {
		case 1: give_slab(lanes, half, i, 1, nt, out, at, nrows); break;
		case 2: give_slab(lanes, half, 2 * i, 2, nt, out, at, nrows); break;
		default: give_slab(lanes, half, 4 * i, 4, nt, out, at, nrows);
		}
	}
}

typedef void (*slab_fn)(const slab *p, const uint8_t *batch, int64_t nt, float *const *out, int64_t off, int64_t nrows,
                        const rm_row_sums *sums);

#define DEFINE_SLAB_DOTS(name, planes, min) \
	static void whole_##name(const slab *p, const uint8_t *batch, int64_t nt, float *const *out, int64_t off, \
	                         int64_t nrows, const rm_row_sums *sums) { \
		slab_dots(planes, min, 0, p, batch, nt, out, off, nrows, sums); \
	} \
	static void half_##name(const slab *p, const uint8_t *batch, int64_t nt, float *const *out, int64_t off, \
	                        int64_t nrows, const rm_row_sums *sums) { \
		slab_dots(planes, min, 1, p, batch, nt, out, off, nrows, sums); \
	}
DEFINE_SLAB_DOTS(none, 1, MIN_NONE)
DEFINE_SLAB_DOTS(min32, 1, MIN_32)
DEFINE_SLAB_DOTS(min16, 1, MIN_16)
DEFINE_SLAB_DOTS(planes, 2, MIN_NONE)
static const slab_fn slab_dots_of[][2] = {
	{whole_none, half_none}, {whole_min32, half_min32}, {whole_min16, half_min16}, {whole_planes, half_planes}};

typedef void (*slab_pack_fn)(const uint8_t *w, int64_t row_bytes, int64_t nrows, int64_t cols, const slab *p);

// slabs computes a tile over t->batches. As with panels, several slabs are
// packed before the tokens run over them.
static void slabs(slab_pack_fn pack_rows, int planes, const slab_fn dots[2], const rm_tile *t) {
	int64_t groups = rm_act_padded(t->cols) / 32, size = SLAB_GROUP(planes) * groups;
	int64_t batch_bytes = rm_batch_bytes(t->cols), at_once = RM_PANELS_BYTES / size;
	at_once = at_once < 1 ? 1 : at_once > PANELS_MAX ? PANELS_MAX : at_once;
	tiles_on(1);
	for (int64_t r0 = 0; r0 < t->nrows; r0 += 16 * at_once) {
		int64_t end = t->nrows - r0 < 16 * at_once ? t->nrows : r0 + 16 * at_once;
		slab p[PANELS_MAX];
		int n = 0;
		for (int64_t r = r0; r < end; r += 16, n++) {
			p[n] = slab_at(t->scratch + size * n, groups, planes);
			pack_rows(t->w + r * t->row_bytes, t->row_bytes, end - r < 16 ? end - r : 16, t->cols, &p[n]);
		}
		const uint8_t *batch = t->batches;
		for (int64_t i = 0; i < t->nx; i += RM_BATCH, batch += batch_bytes) {
			int64_t nt = t->nx - i < RM_BATCH ? t->nx - i : RM_BATCH;
			for (int k = 0; k < n; k++) {
				int64_t r = r0 + 16 * k;
				dots[nt <= 8](&p[k], batch, nt, t->out + i, t->off + r, end - r < 16 ? end - r : 16, &t->sums);
			}
		}
	}
	tiles_off();
}
