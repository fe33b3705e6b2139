// Products of the types of weight.glsl with float32 activations, with the bits of the CPU:
// sixteen sums of every sixteenth column, a lane for each. Included after lanes.glsl and
// exact.glsl, with TYPE the number of the type in GGUF files and TABLES the address of
// kernels/gpu/tables.go.
#include "weight.glsl"

// plain_product is the dot product of a row with x, the same in the sixteen lanes that call it
// with one row.
float plain_product(uint64_t row, uint64_t x, uint cols) {
	float acc = 0;
	uint i = lane() & 15u;
	for (; i + 112u < cols; i += 128u) { // loads of eight turns at once
		float v[8];
		[[unroll]] for (uint k = 0; k < 8; k++) v[k] = weight_at(row, i + 16u * k);
		[[unroll]] for (uint k = 0; k < 8; k++) acc = fused(v[k], InFloats(x).at[i + 16u * k], acc);
	}
	for (; i < cols; i += 16u) acc = fused(weight_at(row, i), InFloats(x).at[i], acc);
	return lanes_sum(acc, 16); // rm_sum16: lanes 8 apart first, the neighbours last
}
