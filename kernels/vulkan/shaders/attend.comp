#version 450
// attend handles dim DIM and a multiple of 8 heads. A workgroup of 256 threads takes 16 heads of one
// row, and all spans of its keys or one, 16 keys at a time, which it stages in shared
// memory. Thread 16*h + k computes the score of head h and key k. Then a thread accumulates two
// elements of all heads (or four, in DIM 576). So each key is read once for 16 heads.
//
// Order of summation: a score by element; a head over keys. Reads 2*dim bytes per key for 16 heads
// and 4*dim per head and tile for the query, from the caches; writes 4*value per head and
// span. Grid: [blocks of 16 heads][spans, or 1][rows].
#include "prelude.glsl"
layout(constant_id = 10) const uint DIM = 512;
#include "exact.glsl"
#include "../../gpu/args/attend.h"

ARGUMENTS(rmg_attend)
#include "attend.glsl"

#define HEADS RMG_ATTEND_HEADS
#define KEYS RMG_ATTEND_KEYS
const uint ROW = DIM / 4 + 1; // of staged keys, so that rows begin in other banks
shared uvec2 keys[KEYS * (DIM / 4 + 1)]; // float16
shared float scores[HEADS * KEYS];      // and then weights
shared float reference[HEADS];          // M of the span so far
shared float factor[HEADS];             // what older sums are multiplied by
shared float total[HEADS];

#define PAIRS 2 // of elements of a thread

void main() {
	const uint row = gl_WorkGroupID.z, head0 = gl_WorkGroupID.x * HEADS, heads = uint(args.heads), value = uint(args.value), t = gl_LocalInvocationIndex;
	const uint64_t raw = push.at[4] + 2ul * args.raw_skip, compressed = push.at[5] + 2ul * args.compressed_skip;
	InInts selected = InInts(push.at[6] + 4ul * uint(args.top_k) * row); // [top_k], if top_k > 0
	uint count = 0;
	if (args.top_k > 0) count = chosen(selected);
	const keys_of v = keys_of_row(row, count);
	const uint span = span_of(v.keys), spans = (v.keys + span - 1) / span;
	const bool alone = args.splits == 1;
	const uint h = t / KEYS, k = t % KEYS;
	const uint64_t q = push.at[3] + 4ul * DIM * (uint64_t(row) * heads + min(head0 + h, heads - 1)); // [DIM]

	// Of all spans so far: the largest score, the sum of weights (of head t) and the sums of this
	// thread's elements.
	float whole_most = NOTHING, whole_total = 0;
	float sum[HEADS][2 * PAIRS], whole[HEADS][2 * PAIRS];
	for (uint i = 0; i < HEADS; i++) {
		for (uint j = 0; j < 2 * PAIRS; j++) whole[i][j] = 0;
	}
	const uint first = alone ? 0 : gl_WorkGroupID.y, last = alone ? spans : min(spans, first + 1);
	for (uint s = first; s < last; s++) {
		barrier();
		if (t < HEADS) {
			reference[t] = NOTHING;
			total[t] = 0;
		}
		for (uint i = 0; i < HEADS; i++) {
			for (uint j = 0; j < 2 * PAIRS; j++) sum[i][j] = 0;
		}
		const uint end = min(v.keys, (s + 1) * span);
		for (uint tile = s * span; tile < end; tile += KEYS) {
			const uint n = min(KEYS, end - tile);
			barrier();
			for (uint i = t; i < n * (DIM / 4); i += THREADS) {
				const uint j = i / (DIM / 4), d = i % (DIM / 4);
				keys[j * ROW + d] = InUint2s(key_address(v, tile + j, raw, compressed, selected, 8)).at[d];
			}
			barrier();
			float score = NOTHING;
			if (k < n) {
				score = 0;
				for (uint d = 0; d < DIM / 4; d++) {
					const uvec2 x = keys[k * ROW + d];
					const vec2 a = unpackHalf2x16(x.x), b = unpackHalf2x16(x.y);
					const vec4 y = InFloat4s(q).at[d];
					score = fma(y.x, a.x, score);
					score = fma(y.y, a.y, score);
					score = fma(y.z, b.x, score);
					score = fma(y.w, b.y, score);
				}
				precise const float scaled = score * args.scale;
				score = scaled;
			}
			scores[t] = score;
			barrier();
			if (t < HEADS) {
				float most = reference[t];
				for (uint j = 0; j < n; j++) most = max(most, scores[t * KEYS + j]);
				factor[t] = shrink(reference[t], most);
				reference[t] = most;
			}
			barrier();
			const float weight = k < n ? shrink(score, reference[h]) : 0.0;
			scores[t] = weight;
			barrier();
			if (t < HEADS) {
				precise float all = total[t] * factor[t];
				for (uint j = 0; j < n; j++) all = all + scores[t * KEYS + j];
				total[t] = all;
			}
			[[unroll]] for (uint p = 0; p < PAIRS; p++) {
				const uint d = 2 * (t + THREADS * p); // element
				if (d >= value) break;
				[[unroll]] for (uint i = 0; i < HEADS; i++) {
					sum[i][2 * p] *= factor[i];
					sum[i][2 * p + 1] *= factor[i];
				}
				for (uint j = 0; j < n; j++) {
					const uvec2 x = keys[j * ROW + d / 4];
					const vec2 y = unpackHalf2x16((d & 2u) == 0 ? x.x : x.y);
					[[unroll]] for (uint i = 0; i < HEADS; i++) {
						const float w = scores[i * KEYS + j];
						sum[i][2 * p] = fma(w, y.x, sum[i][2 * p]);
						sum[i][2 * p + 1] = fma(w, y.y, sum[i][2 * p + 1]);
					}
				}
			}
		}
		barrier();
		if (!alone) break;
		// The span joins those before it.
		float mine = 1, others = 1; // of head t
		if (t < HEADS) {
			const float most = max(whole_most, reference[t]);
			others = shrink(whole_most, most);
			mine = shrink(reference[t], most);
			whole_most = most;
			precise const float older = whole_total * others;
			whole_total = fma(total[t], mine, older);
			factor[t] = others;
			scores[t] = mine;
		}
		barrier();
		[[unroll]] for (uint i = 0; i < HEADS; i++) {
			for (uint j = 0; j < 2 * PAIRS; j++) {
				precise const float older = whole[i][j] * factor[i];
				whole[i][j] = fma(sum[i][j], scores[i], older);
			}
		}
	}

	if (!alone) { // sums of the span for attend_combine; spans that a row does not have count nothing
		if (first >= spans) return;
		const uint64_t part = uint64_t(row) * uint(args.splits) + first;
		if (t < HEADS && head0 + t < heads) {
			Floats parts = Floats(push.at[2] + 8ul * (part * heads + head0 + t)); // [2]
			parts.at[0] = reference[t];
			parts.at[1] = total[t];
		}
		for (uint i = 0; i < HEADS && head0 + i < heads; i++) {
			Floats to = Floats(push.at[1] + 4ul * value * (part * heads + head0 + i)); // [value]
			for (uint p = 0; p < PAIRS; p++) {
				const uint d = 2 * (t + THREADS * p);
				if (d >= value) break;
				to.at[d] = sum[i][2 * p];
				to.at[d + 1] = sum[i][2 * p + 1];
			}
		}
		return;
	}
	barrier();
	if (t < HEADS) {
		const float sink = args.sunk != 0 ? InFloats(push.at[7]).at[min(head0 + t, heads - 1)] : NOTHING;
		const float most = max(whole_most, sink), mine = shrink(whole_most, most);
		const float sunk = args.sunk != 0 ? shrink(sink, most) : 0.0;
		factor[t] = quotient(mine, fma(whole_total, mine, sunk));
	}
	barrier();
	for (uint i = 0; i < HEADS && head0 + i < heads; i++) {
		Floats to = Floats(push.at[1] + 4ul * value * (uint64_t(row) * heads + head0 + i)); // [value]
		for (uint p = 0; p < PAIRS; p++) {
			const uint d = 2 * (t + THREADS * p);
			if (d >= value) break;
			precise const float a = whole[i][2 * p] * factor[i], b = whole[i][2 * p + 1] * factor[i];
			to.at[d] = a;
			to.at[d + 1] = b;
		}
	}
}
