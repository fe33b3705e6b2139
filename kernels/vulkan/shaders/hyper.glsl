// Shared by hc_mix and hc_head. Included after exact.glsl.

// spans_sum is product k: the sum over its spans, in order.
float spans_sum(InFloats parts, uint k, uint all, uint spans) {
	precise float sum = 0;
	for (uint i = 0; i < spans; i++) sum = sum + parts.at[i * all + k];
	return sum;
}

float sigmoid(float x) {
	precise const float below = 1.0 + exponential(-x);
	return quotient(1.0, below);
}
