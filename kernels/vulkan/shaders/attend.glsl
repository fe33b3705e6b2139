// Shared by the kernels of Attend: see kernels.AttendArgs. The keys of a token are numbered: first
// the raw rows of its window in order of position, then its compressed entries. They are taken
// in spans, whose length depends on their number alone; each span has the largest of its scores,
// M, and the sums of exp(s-M) and exp(s-M)*K, and spans are put together in their order. So a row
// has the same bits whether one workgroup takes all spans or each has its own.

// keys_of is what one token attends to.
struct keys_of {
	uint first, raw; // position of the first raw row, and their number
	uint keys;       // raw rows and entries
};

keys_of keys_of_row(uint row, uint chosen) {
	const uint p = uint(args.pos) + row, window = uint(args.window);
	keys_of v;
	v.first = window != 0 && p + 1 > window ? p + 1 - window : 0;
	v.raw = args.ring_rows > 0 ? p + 1 - v.first : 0;
	v.keys = v.raw;
	if (args.ratio > 0) v.keys += args.top_k > 0 ? chosen : (p + 1) / uint(args.ratio);
	return v;
}

// span_of is the keys of a span of a row with so many: RMG_ATTEND_SPLITS spans at most.
uint span_of(uint keys) { return RMG_ATTEND_SPAN * max(1, (keys + RMG_ATTEND_SPAN * RMG_ATTEND_SPLITS - 1) / (RMG_ATTEND_SPAN * RMG_ATTEND_SPLITS)); }

// key_address is where key j is. An entry out of range is reported as a fault in buffer `fault` and
// replaced by a row of the ring, or by entry 0.
uint64_t key_address(keys_of v, uint j, uint64_t raw, uint64_t compressed, InInts selected, uint fault) {
	const uint64_t bytes = 2ul * uint(args.dim);
	if (j < v.raw) return raw + bytes * ((v.first + j) % uint(args.ring_rows));
	const uint e = args.top_k > 0 ? uint(selected.at[j - v.raw]) : j - v.raw;
	if (e < uint(args.entries)) return compressed + bytes * e;
	report(fault, FAULT_ROW);
	return args.ring_rows > 0 ? raw + bytes * (v.first % uint(args.ring_rows)) : compressed;
}

shared uint least_negative;

// chosen is the number of entries of Selected before the first negative one. All threads of the
// workgroup call it.
uint chosen(InInts selected) {
	const uint n = uint(args.top_k);
	if (gl_LocalInvocationIndex == 0) least_negative = n;
	barrier();
	for (uint i = gl_LocalInvocationIndex; i < n; i += THREADS) {
		if (selected.at[i] < 0) atomicMin(least_negative, i);
	}
	barrier();
	return least_negative;
}

const float NOTHING = -3.0e38; // what M begins with: exp(NOTHING - M) is 0

// shrink is exp(a - b) for a <= b.
float shrink(float a, float b) {
	precise const float below = a - b;
	return a == b ? 1.0 : exponential(below);
}
