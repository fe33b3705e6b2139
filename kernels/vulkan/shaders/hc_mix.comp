#version 450
// hc_mix derives the mixing coefficients of one row and the input of the sub-layer: see
// kernels.HCMixArgs. One workgroup per row. In a Sinkhorn iteration thread i normalizes row i of
// Comb, then column i, in shared memory, with a barrier in between. float32 is enough: every
// iteration normalizes again, so errors do not accumulate. Reads 4*(products+1)*spans bytes per
// row, and 4*(2*streams+1) per column: the streams are collapsed once to add the squares and
// once to write the sums.
#include "prelude.glsl"
#include "lanes.glsl"
#include "exact.glsl"
#include "hyper.glsl"
#include "../../gpu/args/hyper.h"

ARGUMENTS(rmg_hc)
shared float mixed[(2 + RMG_HC_STREAMS) * RMG_HC_STREAMS + 1], weights[RMG_HC_STREAMS];

float collapsed(InFloats h, uint c) { // h [streams][cols]
	float sum = 0;
	for (uint s = 0; s < uint(args.streams); s++) sum = fused(weights[s], h.at[s * uint(args.cols) + c], sum);
	return sum;
}
#define ROW InFloats
#define ELEMENT(row, i) collapsed(row, i)
#include "squares.glsl"

void main() {
	const uint s = uint(args.streams), all = uint(args.products) + 1, spans = uint(args.spans), row = gl_WorkGroupID.x, t = thread();
	InFloats parts = InFloats(push.at[1] + 4ul * spans * all * row); // [spans][products+1]
	InFloats base = InFloats(push.at[2]), scale = InFloats(push.at[3]); // [products], [3]
	for (uint k = t; k < all; k += THREADS) mixed[k] = spans_sum(parts, k, all, spans);
	barrier();
	precise const float mean = quotient(mixed[all - 1], float(s * uint(args.cols))) + args.rms_eps;
	const float r = quotient(1.0, root(mean));
	barrier();
	for (uint k = t; k < all - 1; k += THREADS) {
		precise const float scaled = r * mixed[k];
		mixed[k] = fused(scaled, scale.at[k < s ? 0 : k < 2 * s ? 1 : 2], base.at[k]);
	}
	barrier();
	if (t < s) {
		precise const float before = sigmoid(mixed[t]) + args.eps;
		weights[t] = args.own != 0 ? before : InFloats(push.at[9]).at[row * s + t];
		Floats(push.at[4]).at[row * s + t] = before;
		Floats(push.at[5]).at[row * s + t] = 2.0 * sigmoid(mixed[s + t]);
	}
	const uint c = 2 * s; // [s][s] from here on
	if (t < s) {
		const uint line = c + t * s;
		float most = mixed[line];
		precise float sum = 0;
		for (uint j = 1; j < s; j++) most = most > mixed[line + j] ? most : mixed[line + j];
		for (uint j = 0; j < s; j++) {
			precise const float below = mixed[line + j] - most;
			const float e = exponential(below);
			mixed[line + j] = e;
			sum = sum + e;
		}
		for (uint j = 0; j < s; j++) {
			precise const float v = quotient(mixed[line + j], sum) + args.eps;
			mixed[line + j] = v;
		}
	}
	for (int n = 0; n < args.iterations; n++) {
		if (n > 0 && t < s) {
			const uint line = c + t * s;
			precise float sum = args.eps;
			for (uint j = 0; j < s; j++) sum = sum + mixed[line + j];
			for (uint j = 0; j < s; j++) mixed[line + j] = quotient(mixed[line + j], sum);
		}
		barrier();
		if (t < s) {
			precise float sum = args.eps;
			for (uint i = 0; i < s; i++) sum = sum + mixed[c + i * s + t];
			for (uint i = 0; i < s; i++) mixed[c + i * s + t] = quotient(mixed[c + i * s + t], sum);
		}
		barrier();
	}
	Floats comb = Floats(push.at[6] + 4ul * s * s * row); // [s][s]
	for (uint k = t; k < s * s; k += THREADS) comb.at[k] = mixed[c + k];
	const uint cols = uint(args.cols);
	Floats x = Floats(push.at[7] + 4ul * cols * row);          // [cols]
	InFloats h = InFloats(push.at[8] + 4ul * cols * s * row);  // [streams][cols]
	InFloats norm = InFloats(push.at[10]);                     // [cols]
	precise const float squares = quotient(sum_squares(h, cols), float(cols)) + args.rms_eps;
	const float down = quotient(1.0, root(squares));
	for (uint i = t; i < cols; i += THREADS) {
		precise const float v = collapsed(h, i) * down, w = v * norm.at[i];
		x.at[i] = w;
	}
}
