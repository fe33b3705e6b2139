#version 450
// index_select writes the top_k entries (or blocks, if a score is one of args.per entries) with the
// largest scores in ascending order. One workgroup per row. Radix select: the top_k-th largest key
// is found digit by digit from the top (11, 11 and 10 bits) from histograms of the keys that
// share the digits found so far; integer atomics make the result independent of the order. Then
// each simdgroup takes a contiguous range of the entries, counts what it will write, and
// writes behind the preceding simdgroups: all larger keys, and as many of the equal ones, from
// the lowest entry on, as are still wanted. Reads the scores five times, all but the first from
// the cache.
#include "prelude.glsl"
#include "lanes.glsl"
#include "../../gpu/args/index.h"

ARGUMENTS(rmg_index)
#include "index.glsl"
shared uint counts[2048];
shared uint found[2]; // the digit, and the rank within it
shared uint larger[32];
shared uint equal_[32];

// sortable maps a float to a uint of the same order; both zeros map to the same.
uint sortable(float f) {
	const uint u = f == 0 ? 0u : floatBitsToUint(f);
	return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

void main() {
	const uint row = gl_WorkGroupID.x, t = thread(), per = uint(args.per), n = (seen(row) + per - 1) / per, top_k = uint(args.top_k);
	Ints selected = Ints(push.at[1] + 4ul * top_k * row); // [top_k]
	if (n <= top_k) {
		for (uint i = t; i < top_k; i += THREADS) selected.at[i] = i < n ? int(i) : -1;
		return;
	}
	InFloats scores = InFloats(push.at[2] + 4ul * ((uint(args.most) + per - 1) / per) * row); // [most]
	uint key = 0, known = 0, wanted = top_k; // digits found, the mask of them, the rank among keys that share them
	for (uint round = 0; round < 3; round++) {
		const uint shift = round == 0 ? 21 : round == 1 ? 10 : 0, digits = round == 2 ? 1024 : 2048;
		for (uint i = t; i < digits; i += THREADS) counts[i] = 0;
		barrier();
		for (uint i = t; i < n; i += THREADS) {
			const uint k = sortable(scores.at[i]);
			if ((k & known) == key) atomicAdd(counts[k >> shift & (digits - 1)], 1u);
		}
		barrier();
		// Lane 0 of the first simdgroup has the largest digits. The lane that has the wanted rank in
		// its share finds the digit. All simdgroups call lanes_before.
		const uint share = digits / 32, top = digits - 1 - lane() * share;
		uint sum = 0;
		if (simdgroup() == 0) {
			for (uint i = 0; i < share; i++) sum += counts[top - i];
		}
		uint above = lanes_before(sum);
		if (simdgroup() == 0 && above < wanted && wanted <= above + sum) {
			uint digit = top;
			while (above + counts[digit] < wanted) {
				above += counts[digit];
				digit--;
			}
			found[0] = digit;
			found[1] = wanted - above;
		}
		barrier();
		key |= found[0] << shift;
		known |= (digits - 1) << shift;
		wanted = found[1];
		barrier();
	}

	const uint turns = (n + THREADS - 1) / THREADS, stretch = 32 * turns;
	const uint begin = min(n, simdgroup() * stretch), end = min(n, begin + stretch);
	uint more = 0, same = 0;
	for (uint i = begin + lane(); i < end; i += 32) {
		const uint k = sortable(scores.at[i]);
		more += k > key ? 1 : 0;
		same += k == key ? 1 : 0;
	}
	more = lanes_sum(more);
	same = lanes_sum(same);
	if (lane() == 0) {
		larger[simdgroup()] = more;
		equal_[simdgroup()] = same;
	}
	barrier();
	more = 0; // before this stretch, and then before this entry
	same = 0;
	for (uint s = 0; s < simdgroup(); s++) {
		more += larger[s];
		same += equal_[s];
	}
	for (uint turn = 0; turn < turns; turn++) { // as many in every simdgroup
		const uint i = begin + 32 * turn + lane(), k = i < end ? sortable(scores.at[i]) : 0u;
		const uint is_more = i < end && k > key ? 1 : 0, is_same = i < end && k == key ? 1 : 0;
		const uint more_here = more + lanes_before(is_more), same_here = same + lanes_before(is_same);
		if (is_more != 0 || (is_same != 0 && same_here < wanted)) selected.at[more_here + min(same_here, wanted)] = int(i);
		more += lanes_sum(is_more);
		same += lanes_sum(is_same);
	}
}
