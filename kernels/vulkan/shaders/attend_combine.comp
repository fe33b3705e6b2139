#version 450
// attend_combine puts the spans of a head together, in order, as attend does. One workgroup for each
// head of each row. Reads 4*(value+2) bytes a span, writes 4*value. Grid: [heads][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "../../gpu/args/attend.h"

ARGUMENTS(rmg_attend)
#include "attend.glsl"

void main() {
	const uint splits = uint(args.splits), heads = uint(args.heads), value = uint(args.value), head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
	InInts selected = InInts(push.at[5] + 4ul * uint(args.top_k) * row); // [top_k], if top_k > 0
	uint count = 0;
	if (args.top_k > 0) count = chosen(selected);
	const uint keys = keys_of_row(row, count).keys, span = span_of(keys), spans = min(splits, (keys + span - 1) / span);
	const uint64_t first = uint64_t(row) * splits * heads + head; // and the next span `heads` further
	const float sink = args.sunk != 0 ? InFloats(push.at[4]).at[head] : NOTHING;
	for (uint d = gl_LocalInvocationIndex; d < value; d += THREADS) {
		float most = NOTHING, total = 0, sum = 0;
		for (uint i = 0; i < spans; i++) {
			InFloats part = InFloats(push.at[3] + 8ul * (first + uint64_t(i) * heads)); // [2]
			const float next = max(most, part.at[0]), others = shrink(most, next), mine = shrink(part.at[0], next);
			most = next;
			precise const float older = total * others, older_sum = sum * others;
			total = fma(part.at[1], mine, older);
			sum = fma(InFloats(push.at[2] + 4ul * value * (first + uint64_t(i) * heads)).at[d], mine, older_sum);
		}
		const float next = max(most, sink), mine = shrink(most, next);
		const float sunk = args.sunk != 0 ? shrink(sink, next) : 0.0;
		precise const float v = sum * quotient(mine, fma(total, mine, sunk));
		Floats(push.at[1] + 4ul * value * (uint64_t(row) * heads + head)).at[d] = v;
	}
}
