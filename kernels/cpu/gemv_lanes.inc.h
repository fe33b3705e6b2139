// GEMV for a few tokens with a weight row in each lane, included by the files of the
// levels inside their target section.
//
// LANES rows are transposed in their packed form: a vector has the same four bytes of
// LANES rows. Unpacked, it has the same four columns of all rows as bytes, and is
// multiplied by four activations of a token that are the same in all lanes. So the dot
// products of a group accumulate in place, without a tree of additions for each row and
// token, which is what kernels that hold one row in a vector pay for each token.
//
// LANES streams of memory are too many to prefetch along each row. If rows lie one after
// the other, the bytes of the next rows are prefetched in the order of memory while these
// rows are computed. If other columns lie between them, the same columns of the next rows are.
//
// The including file defines LANES, the vectors lint and lfloat of LANES numbers, the l_
// functions used below, and what depends on how bytes are multiplied: l_token (a row of
// activations), l_weights (a group of weights ready for its products), l_ready, which
// makes it, and l_dots, which gives the dot products of one group.

// lanes_at is a place in LANES rows that lie stride bytes apart.
typedef struct {
	const uint8_t *row;
	int64_t stride;
} lanes_at;

// l_at moves on by n bytes in each row.
INLINE lanes_at l_at(lanes_at w, int64_t n) { return (lanes_at){w.row + n, w.stride}; }

// l_quads transposes 16 bytes of each row, from byte `at` on: o[i] has dword i of all rows.
INLINE void l_quads(lanes_at w, int at, lint o[4]) {
	lint v[4];
	for (int i = 0; i < 4; i++) {
		const uint8_t *rows[LANES / 4];
		for (int j = 0; j < LANES / 4; j++) rows[j] = w.row + (4 * j + i) * w.stride + at;
		v[i] = l_join(rows);
	}
	lint ab0 = l_low32(v[0], v[1]), ab1 = l_high32(v[0], v[1]), cd0 = l_low32(v[2], v[3]), cd1 = l_high32(v[2], v[3]);
	o[0] = l_low64(ab0, cd0);
	o[1] = l_high64(ab0, cd0);
	o[2] = l_low64(ab1, cd1);
	o[3] = l_high64(ab1, cd1);
}

// lanes_head is what a super-block of LANES rows has beside its weights.
typedef struct {
	lfloat s[8], m0[8], m1[8]; // scales and minima (to be subtracted) by group
	lint k[4];	             // L_SUB: byte i%4 of k[i/4] is the scale of columns 16i..
	lint high[8];              // high bits of the weights, if one byte has those of all groups
} lanes_head;

// lanes_kind describes a type; it is a constant at every use. A super-block is read in
// parts of one, two or four groups.
typedef struct {
	void (*head)(lanes_at w, lanes_head *h);
	void (*load)(lanes_at w, int part, lint *raw);                                   // at most 24 vectors
	void (*group)(const lint *raw, const lanes_head *h, int part, int r, lint q[8]); // group r of a part
	int groups;	                                                                  // of a part
	int flags, bytes;	                                                            // of 256 columns
	int offset, shifts;
} lanes_kind;

// upper is the kind for activations without lower bytes.
INLINE lanes_kind upper(lanes_kind k) {
	k.flags |= L_UPPER;
	return k;
}

// LANES_TOKENS is the most tokens that rows are multiplied by while they are unpacked.
#define LANES_TOKENS 16

// l_byte gives byte i of each lane as a float.
INLINE lfloat l_byte(lint v, int i) { return l_float(l_and(l_srl32(v, 8 * i), l_set32(255))); }

// l_give is rm_give_sums of LANES rows.
INLINE void l_give(const lfloat a[8], const rm_row_sums *s, int64_t time, float *out) {
	int64_t each = s->each;
	if (!each) {
		lfloat even = l_add(l_add(a[0], a[4]), l_add(a[2], a[6])), odd = l_add(l_add(a[1], a[5]), l_add(a[3], a[7]));
		l_store(out + time * s->apart, l_add(even, odd));
		return;
	}
	for (int64_t i = time * (8 / each); i < s->count && i < (time + 1) * (8 / each); i++, a += each) {
		l_store(out + i * s->apart, each == 1 ? a[0] : each == 2 ? l_add(a[0], a[1]) : l_add(l_add(a[0], a[2]), l_add(a[1], a[3])));
	}
}

// lanes_rows multiplies LANES rows, stride bytes apart, by nt <= LANES_TOKENS tokens.
// next are the rows to prefetch, 0 for none; dense says that they lie one after the other.
INLINE void lanes_rows(lanes_kind k, const uint8_t *first, int64_t stride, int64_t cols, const l_token *x, int nt,
                       float *const *out, int64_t off, const rm_row_sums *sums, uintptr_t next, int dense) {
	lfloat acc[LANES_TOKENS][8];
	RM_ROLLED
	for (int n = 0; n < nt; n++) {
		for (int l = 0; l < 8; l++) acc[n][l] = l_zero();
	}
	int ahead = next && dense ? LANES * k.bytes / 8 * k.groups : 0, rows = next && !dense ? LANES * k.groups / 8 : 0;
	lanes_at w = {first, stride};
	int64_t time = 0, at = rm_sums_at(sums);
	for (int64_t g = 0; 32 * g < cols; g += 8, w = l_at(w, k.bytes)) {
		if (g == at) {
			RM_ROLLED
			for (int n = 0; n < nt; n++) {
				l_give(acc[n], sums, time, out[n] + off);
				for (int l = 0; l < 8; l++) acc[n][l] = l_zero();
			}
			time++;
			at += 8 * sums->supers;
		}
		lanes_head h;
		k.head(w, &h);
		RM_ROLLED
		for (int part = 0; part < 8 / k.groups; part++) {
			rm_prefetch(next, ahead, 1);
			next += (uintptr_t)ahead;
			for (int r = rows * part; r < rows * (part + 1); r++) {
				rm_prefetch(next + (uintptr_t)(r * stride + g / 8 * k.bytes), k.bytes, 1);
			}
			lint raw[24];
			k.load(w, part, raw);
			RM_UNROLL_INLINED
			for (int r = 0; r < k.groups; r++) {
				int l = k.groups * part + r, shift = k.flags & L_SHIFT ? k.shifts >> (4 * r) & 15 : 0;
				lint q[8];
				k.group(raw, &h, part, r, q);
				l_weights ready;
				l_ready(k.flags, shift, q, h.k, l, &ready);
				lfloat s = h.s[l], m0 = k.flags & (L_MIN32 | L_MIN16) ? h.m0[l] : s, m1 = k.flags & L_MIN16 ? h.m1[l] : s;
				RM_ROLLED
				for (int n = 0; n < nt; n++) {
					lint t = l_dots(k.flags, k.offset, shift, &ready, &x[n], g + l);
					lfloat sum = acc[n][l];
					if (k.flags & L_MIN32) sum = l_fnma(m0, l_set(x[n].b[g + l]), sum);
					if (k.flags & L_MIN16) {
						sum = l_fnma(m0, l_set(x[n].b0[g + l]), sum);
						sum = l_fnma(m1, l_set(x[n].b1[g + l]), sum);
					}
					acc[n][l] = l_fma(l_mul(s, l_set(x[n].d[g + l])), l_float(t), sum);
				}
			}
		}
	}
	RM_ROLLED
	for (int n = 0; n < nt; n++) l_give(acc[n], sums, time, out[n] + off);
}

// LANES_AHEAD is how far ahead weights are prefetched, at least: over short rows several
// times LANES rows.
#define LANES_AHEAD 16384

// run_lanes computes the rows of a tile up to the last multiple of LANES and returns their
// number.
INLINE int64_t run_lanes(lanes_kind k, const rm_tile *t) {
	int64_t rows = t->nrows / LANES * LANES, group = LANES * t->row_bytes;
	int64_t ahead = (LANES_AHEAD + group - 1) / group * LANES;
	int dense = t->row_bytes == t->cols / 256 * k.bytes;
	for (int64_t i = 0; i < t->nx; i += LANES_TOKENS) {
		int nt = t->nx - i < LANES_TOKENS ? (int)(t->nx - i) : LANES_TOKENS;
		l_token x[LANES_TOKENS];
		for (int n = 0; n < nt; n++) x[n] = l_token_at(t, i, n);
		for (int64_t r = 0; r < rows; r += LANES) {
			uintptr_t next = 0;
			if (i == 0) {
				if (r + ahead < rows) {
					next = (uintptr_t)t->w + (uintptr_t)((r + ahead) * t->row_bytes);
				} else if (t->next) {
					next = (uintptr_t)t->next + (uintptr_t)((r + ahead - rows) * t->row_bytes);
				}
			}
			lanes_rows(k, t->w + r * t->row_bytes, t->row_bytes, t->cols, x, nt, t->out + i, t->off + r, &t->sums, next, dense);
		}
	}
	return rows;
}

// ---- types -------------------------------------------------------------------

// l_columns transposes 32 bytes of each row, from byte `at` on.
INLINE void l_columns(lanes_at w, int at, lint o[8]) {
	l_quads(w, at, o);
	l_quads(w, at + 16, o + 4);
}

// l_dword is dword i of 16 bytes of each row, which must all be of the weights.
INLINE lint l_dword(lanes_at w, int at, int i) {
	lint v[4];
	l_quads(w, at, v);
	return v[i];
}

// halves reads the float16 at the beginning of each of eight blocks.
INLINE void halves(lanes_at w, int bytes, lanes_head *h) {
	for (int g = 0; g < 8; g++) h->s[g] = l_low_half(l_dword(w, bytes * g, 0));
}

INLINE void head_q8_0(lanes_at w, lanes_head *h) { halves(w, 34, h); }
INLINE void load_q8_0(lanes_at w, int part, lint *raw) { l_columns(l_at(w, 34 * part), 2, raw); }
INLINE void group_q8_0(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	(void)h, (void)part, (void)r;
	for (int i = 0; i < 8; i++) q[i] = l_xor(raw[i], l_set8(0x80));
}

INLINE void head_q4_0(lanes_at w, lanes_head *h) { halves(w, 18, h); }
INLINE void load_q4_0(lanes_at w, int part, lint *raw) { l_quads(l_at(w, 18 * part), 2, raw); }
// nibbles of 16 bytes: the low ones are the first 16 columns.
INLINE void group_q4_0(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	(void)h, (void)part, (void)r;
	for (int i = 0; i < 4; i++) {
		q[i] = l_and(raw[i], l_set8(15));
		q[4 + i] = l_and(l_srl16(raw[i], 4), l_set8(15));
	}
}

// look_up replaces nibbles by signed values + 128.
INLINE void look_up(const int8_t *values, lint q[8]) {
	lint table = l_xor(l_table(values), l_set8(0x80));
	for (int i = 0; i < 8; i++) q[i] = l_shuffle(table, q[i]);
}

INLINE void group_iq4_nl(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	group_q4_0(raw, h, part, r, q);
	look_up(rm_iq4nl_values, q);
}

INLINE void head_mxfp4(lanes_at w, lanes_head *h) {
	for (int g = 0; g < 8; g++) h->s[g] = l_exponents(l_and(l_dword(w, 17 * g, 0), l_set32(255)));
}
INLINE void load_mxfp4(lanes_at w, int part, lint *raw) { l_quads(l_at(w, 17 * part), 1, raw); }
INLINE void group_mxfp4(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	group_q4_0(raw, h, part, r, q);
	look_up(rm_mxfp4_values, q);
}

// IQ4_XS: d, the high two bits of eight scales, their low four, nibbles.
INLINE void head_iq4_xs(lanes_at w, lanes_head *h) {
	lint v[4];
	l_quads(w, 0, v);
	lfloat d = l_low_half(v[0]);
	for (int g = 0; g < 8; g++) {
		lint low = l_and(l_srl32(v[1], 4 * g), l_set32(15)), high = l_and(l_srl32(v[0], 16 + 2 * g), l_set32(3));
		h->s[g] = l_mul(d, l_float(l_sub32(l_or(low, l_sll32(high, 4)), l_set32(32))));
	}
}
INLINE void load_iq4_xs(lanes_at w, int part, lint *raw) { l_quads(l_at(w, 16 * part), 8, raw); }

// Q4_K and Q5_K: d, dmin and 12 bytes of scales and minima (rm_q4k_scale).
INLINE void head_q4_k(lanes_at w, lanes_head *h) {
	lint v[4], low = l_set8(15), top = l_set8(0x30), six = l_set8(63);
	l_quads(w, 0, v);
	lfloat d = l_low_half(v[0]), dmin = l_low_half(l_srl32(v[0], 16));
	lint s[2] = {l_and(v[1], six), l_or(l_and(v[3], low), l_and(l_srl32(v[1], 2), top))};
	lint m[2] = {l_and(v[2], six), l_or(l_and(l_srl32(v[3], 4), low), l_and(l_srl32(v[2], 2), top))};
	for (int g = 0; g < 8; g++) {
		h->s[g] = l_mul(d, l_byte(s[g / 4], g % 4));
		h->m0[g] = l_mul(dmin, l_byte(m[g / 4], g % 4));
	}
}
INLINE void load_q4_k(lanes_at w, int part, lint *raw) { l_columns(l_at(w, 32 * part), 16, raw); }
// The high nibbles are used in place, 16 times too large.
INLINE void group_q4_k(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	(void)h, (void)part;
	for (int i = 0; i < 8; i++) q[i] = l_and(raw[i], l_set8(r ? 0xf0 : 0x0f));
}

INLINE void head_q5_k(lanes_at w, lanes_head *h) {
	head_q4_k(w, h);
	l_columns(w, 16, h->high);
}
INLINE void load_q5_k(lanes_at w, int part, lint *raw) { l_columns(l_at(w, 32 * part), 48, raw); }
// Bit g of a byte of high is the fifth bit of group g.
INLINE void group_q5_k(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	for (int i = 0; i < 8; i++) {
		lint fifth = l_sll16(l_srl16(h->high[i], 2 * part), r ? 3 : 4);
		q[i] = l_and(l_pick(l_set8(15), r ? l_srl16(raw[i], 4) : raw[i], fifth), l_set8(31));
	}
}

INLINE void head_q6_k(lanes_at w, lanes_head *h) {
	l_quads(w, 192, h->k);
	lfloat d = l_low_half(l_srl32(l_dword(w, 194, 3), 16));
	for (int g = 0; g < 8; g++) h->s[g] = d;
}
INLINE void load_q6_k(lanes_at w, int part, lint *raw) {
	lanes_at low = l_at(w, 64 * part);
	l_columns(low, 0, raw);
	l_columns(low, 32, raw + 8);
	l_columns(l_at(w, 32 * part), 128, raw + 16);
}
INLINE void group_q6_k(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	(void)h, (void)part;
	for (int i = 0; i < 8; i++) {
		lint low = raw[8 * (r % 2) + i], high = raw[16 + i];
		if (r >= 2) low = l_srl16(low, 4);
		high = r == 0 ? l_sll16(high, 4) : r == 1 ? l_sll16(high, 2)
		                               : r == 2   ? high
		                                          : l_srl16(high, 2);
		q[i] = l_and(l_pick(l_set8(15), low, high), l_set8(63));
	}
}

// Q2_K: 16 bytes of a scale (low) and a minimum (high), then two bits of four groups in a
// byte, used in place.
INLINE void head_q2_k(lanes_at w, lanes_head *h) {
	lint v[4];
	l_quads(w, 0, v);
	lint both = l_dword(w, 68, 3);
	lfloat d = l_low_half(both), dmin = l_low_half(l_srl32(both, 16));
	for (int g = 0; g < 8; g++) {
		lint m = l_srl16(v[g / 2], 4);
		h->s[g] = d;
		h->m0[g] = l_mul(dmin, l_byte(l_and(m, l_set8(15)), 2 * (g % 2)));
		h->m1[g] = l_mul(dmin, l_byte(l_and(m, l_set8(15)), 2 * (g % 2) + 1));
	}
	for (int i = 0; i < 4; i++) h->k[i] = l_and(v[i], l_set8(15));
}
INLINE void load_q2_k(lanes_at w, int part, lint *raw) { l_columns(l_at(w, 32 * part), 16, raw); }
INLINE void group_q2_k(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	(void)h, (void)part;
	for (int i = 0; i < 8; i++) q[i] = l_and(raw[i], l_set8(3 << (2 * r)));
}

// Q3_K: bit g of the first 32 bytes is the third bit of group g; two bits of four groups
// in a byte; 12 bytes of scales (rm_q3k_scale); d.
INLINE void head_q3_k(lanes_at w, lanes_head *h) {
	lint v[4];
	l_columns(w, 0, h->high);
	l_quads(w, 92, v);
	for (int i = 0; i < 4; i++) {
		lint low = i < 2 ? v[1 + i] : l_srl16(v[i - 1], 4);
		lint high = l_and(i ? l_srl16(v[3], 2 * i) : v[3], l_set8(3));
		h->k[i] = l_sub8(l_or(l_and(low, l_set8(15)), l_sll16(high, 4)), l_set8(32));
	}
	lfloat d = l_low_half(l_srl32(l_dword(w, 94, 3), 16));
	for (int g = 0; g < 8; g++) h->s[g] = d;
}
INLINE void load_q3_k(lanes_at w, int part, lint *raw) { l_columns(l_at(w, 32 * part), 32, raw); }
// Odd groups are used in place, four times too large.
INLINE void group_q3_k(const lint *raw, const lanes_head *h, int part, int r, lint q[8]) {
	for (int i = 0; i < 8; i++) {
		lint low = r >= 2 ? l_srl16(raw[i], 4) : raw[i], third = l_srl16(h->high[i], 4 * part);
		third = r == 0 ? l_sll16(third, 2) : r == 1 ? l_sll16(third, 3)
		                                 : r == 2   ? third
		                                            : l_sll16(third, 1);
		q[i] = l_and(l_pick(l_set8(r % 2 ? 0x0c : 0x03), low, third), l_set8(r % 2 ? 0x1c : 0x07));
	}
}

// EACH_LANES lists the types: name, number, lanes_kind.
#define EACH_LANES(F) \
	F(q4_0, RM_Q4_0, (lanes_kind){head_q4_0, load_q4_0, group_q4_0, 1, L_OFFSET, 144, 4, 0}) \
	F(iq4_nl, RM_IQ4_NL, (lanes_kind){head_q4_0, load_q4_0, group_iq4_nl, 1, L_OFFSET, 144, 0, 0}) \
	F(mxfp4, RM_MXFP4, (lanes_kind){head_mxfp4, load_mxfp4, group_mxfp4, 1, L_OFFSET, 136, 0, 0}) \
	F(iq4_xs, RM_IQ4_XS, (lanes_kind){head_iq4_xs, load_iq4_xs, group_iq4_nl, 1, L_OFFSET, 136, 0, 0}) \
	F(q3_k, RM_Q3_K, (lanes_kind){head_q3_k, load_q3_k, group_q3_k, 4, L_SUB | L_OFFSET16 | L_SHIFT, 110, 0, 0x2020}) \
	F(q8_0, RM_Q8_0, (lanes_kind){head_q8_0, load_q8_0, group_q8_0, 1, L_OFFSET, 272, 0, 0}) \
	F(q4_k, RM_Q4_K, (lanes_kind){head_q4_k, load_q4_k, group_q4_k, 2, L_MIN32 | L_SHIFT, 144, 0, 0x40}) \
	F(q5_k, RM_Q5_K, (lanes_kind){head_q5_k, load_q5_k, group_q5_k, 2, L_MIN32, 176, 0, 0}) \
	F(q6_k, RM_Q6_K, (lanes_kind){head_q6_k, load_q6_k, group_q6_k, 4, L_SUB | L_OFFSET16, 210, 0, 0}) \
	F(q2_k, RM_Q2_K, (lanes_kind){head_q2_k, load_q2_k, group_q2_k, 4, L_SUB | L_MIN16 | L_SHIFT, 84, 0, 0x6420})
