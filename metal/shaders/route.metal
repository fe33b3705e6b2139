// The choice of experts and the lists of who computes what: see kernels.Backend.

// log1p_unit is log(1+y) for y in [0, 1] with a relative error of 3 ulp, also
// where 1+y rounds to 1: 2*atanh(z) with z = y/(2+y) in [0, 1/3]. The first term
// of the series that is left out is z^18/19 of the first, 1.4e-10.
inline float log1p_unit(float y) {
	const float z = y / (2.0f + y), q = z * z;
	float s = 1.0f / 17.0f;
	s = s * q + 1.0f / 15.0f;
	s = s * q + 1.0f / 13.0f;
	s = s * q + 1.0f / 11.0f;
	s = s * q + 1.0f / 9.0f;
	s = s * q + 1.0f / 7.0f;
	s = s * q + 1.0f / 5.0f;
	s = s * q + 1.0f / 3.0f;
	return 2.0f * (z + z * q * s);
}

// expert_score is sqrt(softplus(x)), softplus(x) = max(x, 0) + log(1+exp(-|x|)).
// A NaN stays a NaN.
inline float expert_score(float x) {
	return precise::sqrt((x < 0.0f ? 0.0f : x) + log1p_unit(precise::exp(-fabs(x))));
}

// order_of maps floats to numbers in their order. NaNs have a place in it too,
// so that no two experts compare as equal without being so.
inline uint order_of(float x) {
	const uint bits = as_type<uint>(x);
	return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// weight_of is the router weight of a score.
inline float weight_of(constant rmg_route &args, float score, float sum) {
	// 6.103515625e-5, the smallest normal half, guards the division.
	if (args.normalise != 0) score = score / (sum < 0x1p-14f ? 0x1p-14f : sum);
	return score * args.scale;
}

// float_of is the inverse of order_of.
inline float float_of(uint order) {
	return as_type<float>((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order);
}

// sigmoid_of does not overflow.
inline float sigmoid_of(float x) {
	const float e = precise::exp(-fabs(x));
	return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// group_value is what stands for the n experts of a group, given in order.
inline float group_value(threadgroup const uint *order, uint n, int kind) {
	uint best = order[0], second = order_of(-INFINITY);
	for (uint e = 1; e < n; e++) {
		if (order[e] > best) {
			second = best;
			best = order[e];
		} else if (order[e] > second) {
			second = order[e];
		}
	}
	return kind == RMG_GROUP_TOP_TWO && n > 1 ? float_of(best) + float_of(second) : float_of(best);
}

// place_of is the number of those among n that come before number e: the larger
// ones, and equal ones with a lower index.
inline uint place_of(threadgroup const uint *order, uint n, uint e) {
	const uint own = order[e];
	uint place = 0;
	for (uint k = 0; k < e; k++) place += order[k] >= own ? 1 : 0;
	for (uint k = e + 1; k < n; k++) place += order[k] > own ? 1 : 0;
	return place;
}

// listed reports whether the slot of an expert is in the lists.
inline bool listed(constant rmg_route &args, int e) { return e >= args.start && e < args.end; }

// list_slots lists the slots of one token as expert_compact does, from the experts of the
// slots. The threads of the only threadgroup stride over the experts, then over the slots.
inline void list_slots(constant rmg_route &args, device int *offsets, device int *slots, threadgroup const int *expert,
                       uint thread_index, uint threads) {
	for (uint e = thread_index; e <= args.experts; e += threads) {
		int before = 0;
		for (uint i = 0; i < args.used; i++) before += listed(args, expert[i]) && expert[i] < int(e) ? 1 : 0;
		offsets[e] = before;
	}
	for (uint i = thread_index; i < args.used; i += threads) {
		if (!listed(args, expert[i])) continue;
		uint place = 0;
		for (uint k = 0; k < args.used; k++) {
			place += listed(args, expert[k]) && (expert[k] < expert[i] || (expert[k] == expert[i] && k < i)) ? 1 : 0;
		}
		slots[place] = int(i);
	}
}

// route_top selects the `used` experts with the largest biased scores, descending,
// among those of the best groups if there are groups; among equals the lower index
// comes first. One threadgroup per token. Its threads stride over the experts; the
// rank of an expert is the number of experts before it, so that no thread waits for
// another's choice. Per token: reads 4*experts bytes (twice that with a bias, which
// is shared), writes 8*used, and with lists 4*experts. Threadgroup memory: sort keys
// [experts], scores [experts], then the scores and the numbers of the selected, [used]
// each, then sort keys [groups].
kernel void route_top(constant rmg_route &args [[buffer(0)]],
                      device int *ids [[buffer(1)]],            // [rows][used]
                      device float *weights [[buffer(2)]],      // [rows][used]
                      device const float *logits [[buffer(3)]], // [rows][experts]
                      device const float *bias [[buffer(4)]],   // [experts], with args.biased
                      device int *offsets [[buffer(5)]],        // [experts+1], with args.lists
                      device int *slots [[buffer(6)]],          // [used], with args.lists
                      threadgroup uint *shared [[threadgroup(0)]],
                      uint token [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_position_in_threadgroup]],
                      uint threads [[threads_per_threadgroup]]) {
	const uint n = args.experts, used = args.used;
	threadgroup float *scores = (threadgroup float *)(shared + n);
	threadgroup uint *chosen = shared + 2 * n, *groups = chosen + 2 * used;
	threadgroup int *expert = (threadgroup int *)(chosen + used);
	logits += ulong(token) * n;
	ids += ulong(token) * used;
	weights += ulong(token) * used;
	float most = logits[0], divisor = 1;
	if (args.score == RMG_SOFTMAX) {
		for (uint e = 1; e < n; e++) most = max(most, logits[e]);
	}
	for (uint e = thread_index; e < n; e += threads) {
		const float x = logits[e];
		scores[e] = args.score == RMG_SOFTMAX   ? precise::exp(x - most)
		            : args.score == RMG_SIGMOID ? sigmoid_of(x)
		                                        : expert_score(x);
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (args.score == RMG_SOFTMAX) {
		divisor = 0;
		for (uint e = 0; e < n; e++) divisor += scores[e];
		threadgroup_barrier(mem_flags::mem_threadgroup); // all have their sum
	}
	for (uint e = thread_index; e < n; e += threads) {
		const float score = scores[e] / divisor;
		scores[e] = score;
		shared[e] = order_of(args.biased != 0 ? score + bias[e] : score);
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (args.groups > 1) {
		const uint size = n / args.groups;
		for (uint g = thread_index; g < args.groups; g += threads) {
			groups[g] = order_of(group_value(shared + g * size, size, args.group_score));
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint e = thread_index; e < n; e += threads) {
			if (place_of(groups, args.groups, e / size) >= args.groups_used) shared[e] = 0; // before every number
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
	for (uint e = thread_index; e < n; e += threads) {
		const uint place = place_of(shared, n, e);
		if (place < used) {
			ids[place] = expert[place] = int(e);
			chosen[place] = as_type<uint>(scores[e]);
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	float sum = 0;
	for (uint i = 0; i < used; i++) sum += as_type<float>(chosen[i]);
	for (uint i = thread_index; i < used; i += threads) {
		const bool masked = args.lists != 0 && !listed(args, expert[i]);
		weights[i] = masked ? 0.0f : weight_of(args, as_type<float>(chosen[i]), sum);
	}
	if (args.lists != 0) list_slots(args, offsets, slots, expert, thread_index, threads);
}

// look_up is the part of route_table of one slot. It returns the expert, or that there is
// none in this view.
inline int look_up(constant rmg_route &args, device int *ids, device float *weights, device const float *logits,
                   device const int *tokens, device const uchar *table, device atomic_uint *fault, uint slot) {
	const uint used = args.used, row = slot / used;
	const int token = tokens[row];
	bool good = token >= 0 && token < args.vocabulary;
	int own = 0;
	float score = 0, sum = 0;
	if (good) {
		if (token < args.first || token >= args.first + args.count) return -1;
		device const int *chosen = (device const int *)(table + args.shift) + ulong(token - args.first) * used;
		logits += ulong(row) * args.experts;
		for (uint i = 0; i < used; i++) {
			const int e = chosen[i];
			if (e < 0 || e >= int(args.experts)) {
				good = false;
				break;
			}
			const float s = expert_score(logits[e]);
			sum += s;
			if (i == slot % used) {
				own = e;
				score = s;
			}
		}
	}
	if (!good) report(fault, FAULT_ROW);
	own = good ? own : 0;
	ids[slot] = own;
	weights[slot] = good && (args.lists == 0 || listed(args, own)) ? weight_of(args, score, sum) : 0.0f;
	return own;
}

// route_table looks the experts of a token up in its row of the table. One thread
// per slot; it scores all experts of its token, which are few. Tokens outside this
// view are left to another dispatch. A token or expert out of range is reported as
// a fault, and its slot gets expert 0 with weight 0. Per slot: reads 4*used bytes
// of the table and of the logits, writes 8. With lists, which are of one token whose
// table is in one view, the only threadgroup also writes these, 4*experts bytes.
kernel void route_table(constant rmg_route &args [[buffer(0)]],
                        device int *ids [[buffer(1)]],            // [rows][used]
                        device float *weights [[buffer(2)]],      // [rows][used]
                        device const float *logits [[buffer(3)]], // [rows][experts]
                        device const int *tokens [[buffer(4)]],   // [rows]
                        device const uchar *table [[buffer(5)]],  // [count][used] int32 after args.shift bytes
                        device atomic_uint *fault [[buffer(6)]],
                        device int *offsets [[buffer(7)]],        // [experts+1], with args.lists
                        device int *list [[buffer(8)]],           // [used], with args.lists
                        threadgroup int *expert [[threadgroup(0)]], // [used], with args.lists
                        uint slot [[thread_position_in_grid]],
                        uint threads [[threads_per_threadgroup]]) {
	if (slot < args.rows * args.used) {
		const int own = look_up(args, ids, weights, logits, tokens, table, fault, slot);
		if (args.lists != 0) expert[slot] = own;
	}
	if (args.lists == 0) return;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	list_slots(args, offsets, list, expert, slot, threads);
}

// expert_mask zeroes the weights of slots of experts outside [start, end).
// One thread per slot. Reads 4 bytes per slot, writes 4 where it zeroes.
kernel void expert_mask(constant rmg_share &args [[buffer(0)]],
                        device float *weights [[buffer(1)]], // [slots]
                        device const int *ids [[buffer(2)]], // [slots]
                        uint slot [[thread_position_in_grid]]) {
	if (slot >= args.slots) return;
	const int e = ids[slot];
	if (e < args.start || e >= args.end) weights[slot] = 0;
}

// expert_compact groups the slots of experts in [start, end), ascending
// within an expert. A simdgroup has one expert, or the end of the offsets, and
// scans all slots twice: it counts the slots of the preceding experts, which is its
// offset, then writes its own in order. So no simdgroup waits for another and one
// dispatch suffices. Reads 8*slots bytes per expert, nearly all from the caches,
// writes 4 bytes per expert and per slot.
kernel void expert_compact(constant rmg_share &args [[buffer(0)]],
                           device int *offsets [[buffer(1)]],   // [experts+1]
                           device int *slots [[buffer(2)]],     // [slots]
                           device const int *ids [[buffer(3)]], // [slots]
                           uint group [[threadgroup_position_in_grid]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
	const int e = int(group * simdgroups + simdgroup);
	if (e > args.experts) return;
	uint before = 0;
	for (uint s = lane; s < args.slots; s += 32) {
		const int id = ids[s];
		if (id >= args.start && id < args.end && id < e) before++;
	}
	before = simd_sum(before);
	if (lane == 0) offsets[e] = int(before);
	if (e < args.start || e >= args.end) return;
	for (uint from = 0; from < args.slots; from += 32) {
		const uint s = from + lane;
		const uint mine = s < args.slots && ids[s] == e ? 1 : 0;
		const uint place = before + simd_prefix_exclusive_sum(mine);
		if (mine != 0) slots[place] = int(s);
		before += simd_sum(mine);
	}
}
