#version 450
// attend_any handles any number of heads and any dim: one workgroup of RMG_ATTEND_ANY threads per
// head and row. Each thread computes the score of one key of a tile; then the threads
// stride over the elements of the weighted sum. Reads each key twice per head, the second time
// from the cache. Grid: [heads][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/attend.h"

ARGUMENTS(rmg_attend)
#include "attend.glsl"
shared float sums[SHARED < 4 ? 4 : SHARED]; // [value]
shared uint64_t places[RMG_ATTEND_ANY];
shared float weights[RMG_ATTEND_ANY];

void main() {
	const uint t = gl_LocalInvocationIndex, row = gl_WorkGroupID.y, dim = uint(args.dim), value = uint(args.value), head = gl_WorkGroupID.x;
	const uint64_t raw = push.at[3] + 2ul * args.raw_skip, compressed = push.at[4] + 2ul * args.compressed_skip;
	InInts selected = InInts(push.at[5] + 4ul * uint(args.top_k) * row); // [top_k], if top_k > 0
	uint count = 0;
	if (args.top_k > 0) count = chosen(selected);
	const keys_of v = keys_of_row(row, count);
	InFloats q = InFloats(push.at[2] + 4ul * dim * (uint64_t(row) * uint(args.heads) + head)); // [dim]
	for (uint d = t; d < value; d += RMG_ATTEND_ANY) sums[d] = 0;
	float most = args.sunk != 0 ? InFloats(push.at[6]).at[head] : NOTHING, total = args.sunk != 0 ? 1.0 : 0.0;
	for (uint tile = 0; tile < v.keys; tile += RMG_ATTEND_ANY) {
		const uint n = min(uint(RMG_ATTEND_ANY), v.keys - tile);
		float s = NOTHING;
		if (t < n) {
			places[t] = key_address(v, tile + t, raw, compressed, selected, 7);
			s = 0;
			for (uint d = 0; d < dim; d++) s = fma(q.at[d], half_value(InShorts(places[t]).at[d]), s);
			precise const float scaled = s * args.scale;
			s = scaled;
		}
		weights[t] = s;
		barrier();
		float next = most;
		for (uint i = 0; i < n; i++) next = max(next, weights[i]);
		barrier();
		weights[t] = t < n ? shrink(s, next) : 0.0;
		const float others = shrink(most, next);
		most = next;
		barrier();
		precise float all = total * others;
		for (uint i = 0; i < n; i++) all = all + weights[i];
		total = all;
		for (uint d = t; d < value; d += RMG_ATTEND_ANY) {
			precise float x = sums[d] * others;
			for (uint i = 0; i < n; i++) x = fma(weights[i], half_value(InShorts(places[i]).at[d]), x);
			sums[d] = x;
		}
		barrier(); // all have read weights and places
	}
	Floats out_ = Floats(push.at[1] + 4ul * value * (uint64_t(row) * uint(args.heads) + head)); // [value]
	for (uint d = t; d < value; d += RMG_ATTEND_ANY) out_.at[d] = quotient(sums[d], total);
}
