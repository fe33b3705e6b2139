// Shared by the kernels that norm a row: the sum of its squares in one order.

inline float square(float v) { return v * v; }
inline float square(float4 v) { return dot(v, v); }

// norm_scale is what rms_norm multiplies a row of n aligned float4 by, with the bits that it has
// there with so many threads. The lanes of one simdgroup compute it.
inline float norm_scale(device const float4 *x, uint n, float eps, uint threads, uint lane) {
	float sum = 0;
	for (uint first = 0; first < threads; first += 32) {
		float part = 0;
		for (uint i = first + lane; i < n; i += threads) part += square(x[i]);
		sum += simd_sum(part);
	}
	return 1.0f / precise::sqrt(sum / float(4 * n) + eps);
}
