// Shared by the kernels of the routed experts. The groups list slots by expert:
// expert e has slots[offsets[e]] to slots[offsets[e+1]-1]. A place is an index into
// that list.
//
// A slot is computed if its weight is not 0 and its expert is local. The groups
// were written by the device: values that would lead out of bounds are checked and
// reported as faults.

// slot_at is the slot at a place, or -1 beyond the groups.
inline int slot_at(constant rmg_experts &args, device const int *offsets, device const int *slots, uint place,
                   device atomic_uint *fault) {
	if (place >= args.slots || int(place) >= offsets[args.experts]) return -1;
	const int slot = slots[place];
	if (slot >= 0 && uint(slot) < args.slots) return slot;
	report(fault, FAULT_ROW);
	return -1;
}

// owned reports whether the expert of a place is in [start, end).
inline bool owned(constant rmg_experts &args, device const int *offsets, uint place) {
	return int(place) >= offsets[args.start] && int(place) < offsets[args.end];
}

// place_of is the place of a slot in the groups, or -1. All lanes of the simdgroup call it.
inline int place_of(constant rmg_experts &args, device const int *offsets, device const int *slots, int slot, uint lane,
                    device atomic_uint *fault) {
	const int count = min(offsets[args.experts], int(args.slots));
	for (int from = 0; from < count; from += 32) {
		const int place = from + int(lane), at = place < count ? slots[place] : 0;
		if (at < 0 || at >= int(args.slots)) report(fault, FAULT_ROW);
		const int found = simd_max(place < count && at == slot ? place : -1);
		if (found >= 0) return found;
	}
	return -1;
}

// expert_at is the expert of a place within the groups of [low, high): the last one
// with slots that do not begin after it. A 32-way search: two rounds for up to 1024
// experts. All lanes of the simdgroup call it.
inline int expert_at(constant rmg_experts &args, device const int *offsets, uint place, uint lane) {
	int low = args.low, n = args.high - args.low;
	while (n > 1) {
		const int step = (n + 31) / 32, k = int(lane) * step;
		const int not_after = simd_sum(k < n && offsets[low + k] <= int(place) ? 1 : 0);
		const int skip = (max(not_after, 1) - 1) * step;
		low += skip;
		n = min(step, n - skip);
	}
	return low;
}

// set_zero clears the row of one slot as args.zero demands: index is a place with
// RMG_ZERO_MID, a slot with RMG_ZERO_OUT. Whether a slot is computed mostly follows
// from its weight or the number of local slots; otherwise it is searched for among
// them.
inline void set_zero(constant rmg_experts &args, device float *out, device const int *offsets, device const int *slots,
                     device const float *weights, device atomic_uint *fault, uint index, uint thread_index, uint threads,
                     uint lane) {
	if (index >= args.slots) return;
	int slot = int(index);
	if (args.zero == RMG_ZERO_MID) {
		slot = slot_at(args, offsets, slots, index, fault);
		if (slot < 0 || (weights[slot] != 0 && owned(args, offsets, index))) return;
	} else if (weights[slot] != 0) {
		const int first = max(offsets[args.start], 0), last = min(offsets[args.end], int(args.slots));
		bool computed = last - first == int(args.slots);
		for (int from = first; from < last && !computed; from += 32) {
			const int place = from + int(lane);
			computed = simd_any(place < last && slots[place] == slot);
		}
		if (computed) return;
	}
	out += ulong(slot) * args.rows;
	for (uint r = thread_index; r < args.rows; r += threads) out[r] = 0;
}

// scaled is a product with the matrix of an expert times the expert's scale.
inline float scaled(constant rmg_expert_view &v, device const float *scales, int expert, float product) {
	return v.scale < 0 ? product : product * scales[v.scale + expert * v.scale_step];
}

// matrix_of is where the matrix of an expert begins.
inline device const uchar *matrix_of(constant rmg_expert_view &v, device const uchar *data, int expert) {
	return data + v.shift + ulong(expert - v.first) * v.stride;
}
