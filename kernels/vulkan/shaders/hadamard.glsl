// The Hadamard transform of dim elements, a power of two, in the shared array s, without
// scaling. All threads of the workgroup call it after writing their elements; on return every
// thread may read all of s.
void hadamard(uint dim) {
	for (uint step = 1; step < dim; step *= 2) {
		barrier();
		for (uint i = gl_LocalInvocationIndex; i < dim / 2; i += THREADS) {
			const uint at = (i & ~(step - 1)) * 2 + (i & (step - 1));
			precise const float x = s[at], y = s[at + step], sum = x + y, difference = x - y;
			s[at] = sum;
			s[at + step] = difference;
		}
	}
	barrier();
}
