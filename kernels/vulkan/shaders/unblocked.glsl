// Single weights of F32, F16 and BF16. Included after exact.glsl, with TYPE the number of the type in
// GGUF files.

// unblocked_at is weight i of a row.
float unblocked_at(uint64_t row, uint i) {
	if (TYPE == 0u) return InFloats(row).at[i];
	const uint bits = InShorts(row).at[i];
	return TYPE == 1u ? half_value(bits) : bfloat_value(bits);
}
