package shaders

func init() {
	for i, name := range []string{"add", "swiglu_elements", "clear", "to_float16", "from_float16", "round_sums"} {
		add("elementwise", name, "elements", uint32(i))
	}
	for library, names := range map[string][]string{
		"elementwise": {"sum_slots", "sum_exact", "gather", "copy_columns"},
		"norms":       {"rms_norm", "layer_norm", "rope", "norm_rope", "hadamard_block", "hadamard_step"},
		"KV cache":    {"store_kv", "compress_store", "compress_entry", "compress_latent"},
	} {
		for _, name := range names {
			add(library, name, name)
		}
	}
}
