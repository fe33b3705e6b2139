// A simdgroup of 32 lanes, whatever the device's subgroups are. Included after prelude.glsl.
//
// With SUBGROUPS = 1 these functions are subgroup operations; otherwise they go through
// shared memory. Both add in one order, so they give the same bits: lanes 16 apart first,
// then 8, 4, 2 and 1 apart. All lanes get the same bits, because a + b is b + a.
//
// Through shared memory the functions have barriers: ALL threads of the workgroup must
// call them equally often. So no thread returns before the last call, and a loop around
// a call has as many turns in every simdgroup (a simdgroup without work calls with 0).

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared uint lanes_area[SUBGROUPS != 0 ? 1 : THREADS];
shared float lanes_partial[32];

// lane is the thread's number in its simdgroup, simdgroup that of the simdgroup in the
// workgroup, thread that of the thread. gl_LocalInvocationIndex may have another order.
uint lane() { return SUBGROUPS != 0 ? gl_SubgroupInvocationID : gl_LocalInvocationIndex & 31u; }
uint simdgroup() { return SUBGROUPS != 0 ? gl_SubgroupID : gl_LocalInvocationIndex >> 5; }
uint thread() { return SUBGROUPS != 0 ? gl_SubgroupID * 32u + gl_SubgroupInvocationID : gl_LocalInvocationIndex; }
#define SIMDGROUPS (THREADS / 32u)

// lanes_publish makes v visible to the simdgroup, as lanes_area[its place].
void lanes_publish(uint v) {
	barrier(); // earlier values have been read
	lanes_area[gl_LocalInvocationIndex] = v;
	barrier();
}

// lanes_xor is v of the lane whose number differs in the bits of mask.
uint lanes_xor(uint v, uint mask) {
	if (SUBGROUPS != 0) return subgroupShuffleXor(v, mask);
	lanes_publish(v);
	return lanes_area[gl_LocalInvocationIndex ^ mask];
}
float lanes_xor(float v, uint mask) { return uintBitsToFloat(lanes_xor(floatBitsToUint(v), mask)); }

// lanes_from is v of lane `from`, which may differ between lanes.
uint lanes_from(uint v, uint from) {
	if (SUBGROUPS != 0) return subgroupShuffle(v, from);
	lanes_publish(v);
	return lanes_area[(gl_LocalInvocationIndex & ~31u) + from];
}
float lanes_from(float v, uint from) { return uintBitsToFloat(lanes_from(floatBitsToUint(v), from)); }

// lanes_sum is the sum of v over the `width` lanes (2, 4, 8, 16 or 32) among which this
// one is: with 16, lanes 0 to 15 have one sum and lanes 16 to 31 another. Lanes width/2
// apart are added first, the neighbours last.
float lanes_sum(float v, const uint width) {
	precise float sum = v;
	if (SUBGROUPS != 0) {
		[[unroll]] for (uint m = width / 2; m > 0; m /= 2) sum = sum + subgroupShuffleXor(sum, m);
		return sum;
	}
	lanes_publish(floatBitsToUint(v));
	const uint first = gl_LocalInvocationIndex & ~(width - 1);
	precise float s[32];
	for (uint i = 0; i < width; i++) s[i] = uintBitsToFloat(lanes_area[first + i]);
	for (uint m = width / 2; m > 0; m /= 2)
		for (uint i = 0; i < m; i++) s[i] = s[i] + s[i + m];
	return s[0];
}
float lanes_sum(float v) { return lanes_sum(v, 32); }

uint lanes_sum(uint v) {
	if (SUBGROUPS != 0) return subgroupAdd(v);
	lanes_publish(v);
	uint sum = 0;
	for (uint i = 0; i < 32; i++) sum += lanes_area[(gl_LocalInvocationIndex & ~31u) + i];
	return sum;
}

// lanes_before is the sum of v over the lanes with lower numbers.
uint lanes_before(uint v) {
	if (SUBGROUPS != 0) return subgroupExclusiveAdd(v);
	lanes_publish(v);
	uint sum = 0;
	for (uint i = gl_LocalInvocationIndex & ~31u; i < gl_LocalInvocationIndex; i++) sum += lanes_area[i];
	return sum;
}

bool lanes_nan(float v) { return (floatBitsToUint(v) & 0x7fffffffu) > 0x7f800000u; }

// lanes_max is the largest v of the lanes, without those that are NaN unless all are.
float lanes_max(float v) {
	if (SUBGROUPS != 0) {
		[[unroll]] for (uint m = 16; m > 0; m /= 2) {
			const float other = subgroupShuffleXor(v, m);
			if (lanes_nan(v) || other > v) v = other;
		}
		return v;
	}
	lanes_publish(floatBitsToUint(v));
	float most = v;
	for (uint i = 0; i < 32; i++) {
		const float other = uintBitsToFloat(lanes_area[(gl_LocalInvocationIndex & ~31u) + i]);
		if (lanes_nan(most) || other > most) most = other;
	}
	return most;
}

// lanes_max and lanes_min of integers.
uint lanes_max(uint v) {
	if (SUBGROUPS != 0) return subgroupMax(v);
	lanes_publish(v);
	for (uint i = 0; i < 32; i++) v = max(v, lanes_area[(gl_LocalInvocationIndex & ~31u) + i]);
	return v;
}
uint lanes_min(uint v) {
	if (SUBGROUPS != 0) return subgroupMin(v);
	lanes_publish(v);
	for (uint i = 0; i < 32; i++) v = min(v, lanes_area[(gl_LocalInvocationIndex & ~31u) + i]);
	return v;
}

// lanes_any reports whether v is true in a lane.
bool lanes_any(bool v) {
	if (SUBGROUPS != 0) return subgroupAny(v);
	return lanes_sum(v ? 1u : 0u) != 0;
}

// group_sum is the sum of v over the workgroup: over each simdgroup, and then over the
// simdgroups in order. All threads of the workgroup call it.
float group_sum(float v) {
	v = lanes_sum(v);
	barrier(); // earlier values have been read
	if (lane() == 0) lanes_partial[simdgroup()] = v;
	barrier();
	precise float sum = 0;
	for (uint i = 0; i < SIMDGROUPS; i++) sum = sum + lanes_partial[i];
	return sum;
}
