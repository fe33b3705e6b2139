package shaders

// The kernels of products: see kernels/gpu/packed.go. Types have their numbers in GGUF files.
func init() {
	packed := map[string]uint32{
		"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14,
		"iq2_xxs": 16, "iq4_nl": 20, "iq4_xs": 23, "mxfp4": 39,
	}
	plain := map[string]uint32{
		"f32": 0, "f16": 1, "iq2_xs": 17, "iq3_xxs": 18, "iq1_s": 19, "iq3_s": 21, "iq2_s": 22, "iq1_m": 29, "bf16": 30,
		"nvfp4": 40,
	}
	add("packed", "pack", "pack")
	for name, t := range packed {
		add("embed", "embed_"+name, "embed", t)
		add("packed", "packed1_"+name, "packed_gemv", t, 1)
		add("packed", "packed4_"+name, "packed_gemv", t, 4)
		add("packed", "packed8_"+name, "packed_gemv", t, 8)
		add("packed", "packed_gemm_"+name, "packed_gemm", t)
		add("packed", "packed_expert_gemm_"+name, "packed_expert_gemm", t)
		add("packed", "packed_gate_up_"+name, "packed_gate_up", t)
		add("packed", "packed_expert_"+name, "packed_expert", t)
	}
	for name, t := range plain {
		add("embed", "embed_"+name, "embed", t)
		add("packed", "packed1_"+name, "plain_gemv", t, 1)
		add("packed", "packed4_"+name, "plain_gemv", t, 4)
		add("packed", "packed8_"+name, "plain_gemv", t, 8)
		add("packed", "packed_expert_"+name, "plain_expert", t)
	}
}
