// Shared by the kernels of the routed experts. The groups list slots by expert: expert e has
// slots[offsets[e]] to slots[offsets[e+1]-1]. A place is an index into that list.
//
// A slot is computed if its weight is not 0 and its expert is local. The groups were written
// by the device: values that would lead out of bounds are checked and reported as
// faults, in the buffer numbered fault.

// slot_at is the slot at a place, or -1 beyond the groups.
int slot_at(InInts offsets, InInts slots, uint place, uint fault) {
	if (place >= args.slots || int(place) >= offsets.at[args.experts]) return -1;
	const int slot = slots.at[place];
	if (slot >= 0 && uint(slot) < args.slots) return slot;
	report(fault, FAULT_ROW);
	return -1;
}

// owned reports whether the expert of a place is in [start, end).
bool owned(InInts offsets, uint place) {
	return int(place) >= offsets.at[args.start] && int(place) < offsets.at[args.end];
}

// expert_at is the expert of a place within the groups of [low, high): the last one with
// slots that do not begin after it.
int expert_at(InInts offsets, uint place) {
	int low = args.low, high = args.high;
	while (high - low > 1) {
		const int middle = (low + high) / 2;
		if (offsets.at[middle] <= int(place)) {
			low = middle;
		} else {
			high = middle;
		}
	}
	return low;
}

shared uint zero_found;

// set_zero clears the row of one slot as args.zero demands: index is a place with RMG_ZERO_MID,
// a slot with RMG_ZERO_OUT. Whether a slot is computed mostly follows from its weight or
// the number of local slots; otherwise it is searched for among them. All threads of the
// workgroup call it with one index.
void set_zero(uint64_t out_, InInts offsets, InInts slots, InFloats weights, uint index, uint fault) {
	if (index >= args.slots) return;
	int slot = int(index);
	if (args.zero == RMG_ZERO_MID) {
		slot = slot_at(offsets, slots, index, fault);
		if (slot < 0 || (weights.at[slot] != 0 && owned(offsets, index))) return;
	} else if (weights.at[slot] != 0) {
		const int first = max(offsets.at[args.start], 0), last = min(offsets.at[args.end], int(args.slots));
		if (last - first == int(args.slots)) return;
		if (gl_LocalInvocationIndex == 0) zero_found = 0;
		barrier();
		for (int place = first + int(gl_LocalInvocationIndex); place < last; place += int(THREADS)) {
			if (slots.at[place] == slot) zero_found = 1;
		}
		barrier();
		if (zero_found != 0) return;
	}
	Floats row = Floats(out_ + 4ul * args.rows * uint(slot));
	for (uint r = gl_LocalInvocationIndex; r < args.rows; r += THREADS) row.at[r] = 0;
}

// scaled is a product with the matrix of an expert times the expert's scale, of the buffer of scales.
float scaled(rmg_expert_view v, uint64_t scales, int expert, float product) {
	if (v.scale < 0) return product;
	precise const float y = product * InFloats(scales).at[v.scale + expert * v.scale_step];
	return y;
}

// matrix_of is where the matrix of an expert begins.
uint64_t matrix_of(rmg_expert_view v, uint64_t data, int expert) {
	return data + v.shift + uint64_t(expert - v.first) * v.stride;
}
