// swiglu is silu(g)*u, with g clamped from above and u from both sides; a clamp of
// 1e-6 or less disables clamping. Comparisons propagate NaN, min and max would not.
// An exponential of 4 ulp, a division and two products give a relative error below
// 7e-7.
inline float swiglu(float g, float u, float clamp) {
	if (clamp > 1e-6f) {
		g = g > clamp ? clamp : g;
		u = u > clamp ? clamp : u;
		u = u < -clamp ? -clamp : u;
	}
	return g / (1.0f + precise::exp(-g)) * u;
}
