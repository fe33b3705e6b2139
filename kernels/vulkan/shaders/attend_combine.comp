#version 450
// attend_combine puts the spans of a head together, in order, as attend does, and rotates the pairs
// at its end back. One workgroup for each head of each row. Reads 4*(value+2) bytes a span, writes
// 4*value. Grid: [heads][rows].
#include "prelude.glsl"
#include "exact.glsl"
#include "rotate.glsl"
#include "../../gpu/args/attend.h"

ARGUMENTS(rmg_attend)
#include "attend.glsl"

// combined is element d of head [value] of spans, `heads` apart from `first` on.
float combined(uint d, uint spans, uint64_t first, float sink) {
	const uint heads = uint(args.heads), value = uint(args.value);
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
	return v;
}

void main() {
	const uint splits = uint(args.splits), heads = uint(args.heads), value = uint(args.value), head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
	InInts selected = InInts(push.at[5] + 4ul * uint(args.top_k) * row); // [top_k], if top_k > 0
	uint count = 0;
	if (args.top_k > 0) count = chosen(selected);
	const uint keys = keys_of_row(row, count).keys, span = span_of(keys), spans = min(splits, (keys + span - 1) / span);
	const uint64_t first = uint64_t(row) * splits * heads + head; // and the next span `heads` further
	const float sink = args.sunk != 0 ? InFloats(push.at[4]).at[head] : NOTHING;
	const uint turned = value - 2 * uint(args.pairs); // the first that is rotated
	Floats out_ = Floats(push.at[1] + 4ul * value * (uint64_t(row) * heads + head)); // [value]
	for (uint d = 2 * gl_LocalInvocationIndex; d < value; d += 2 * THREADS) { // value is even here
		vec2 v = vec2(combined(d, spans, first, sink), combined(d + 1, spans, first, sink));
		if (d >= turned) {
			precise const float angle = float(InInts(push.at[6]).at[row]) * InFloats(push.at[7]).at[(d - turned) / 2]; // [rows], [pairs]
			const vec2 by = cos_sin(angle, 1.0);
			v = turn(v, vec2(by.x, -by.y));
		}
		out_.at[d] = v.x;
		out_.at[d + 1] = v.y;
	}
}
