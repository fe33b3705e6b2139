package synthetic

import "ringmaster/gguf"

// pair is a key of the metadata.
type pair struct {
	key   string
	value any
}

// put puts pairs in order.
func put(w *gguf.Writer, pairs []pair) error {
	for _, p := range pairs {
		if err := w.Put(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

// general is the pairs with which the metadata of every architecture begins.
func (c *Config) general() []pair {
	return []pair{
		{"general.architecture", c.Arch},
		{"general.name", c.Name},
		{"general.alignment", uint32(gguf.WriterAlignment)},
		{"general.file_type", c.fileType()},
		{c.Arch + ".vocab_size", uint32(c.Vocab)},
		{c.Arch + ".context_length", uint32(c.Context)},
		{c.Arch + ".embedding_length", uint32(c.Embd)},
		{c.Arch + ".block_count", uint32(c.Layers + c.blocks())},
	}
}

// streamKeys is the rest of the metadata of deepseek4. llama.cpp requires expert_gating_func 4,
// swiglu_clamp_exp, four streams, and ratios for every layer; everything else
// uses the keys of upstream's converter.
func (c *Config) streamKeys() []pair {
	const a = archStreams + "."
	var ratios []uint32
	for _, r := range c.LayerRatios() {
		ratios = append(ratios, uint32(r))
	}
	if c.blocks() > 0 {
		ratios = append(ratios[:c.Layers], 0)
	}
	clamps := make([]float32, c.Layers+c.blocks())
	for i := range clamps {
		clamps[i] = float32(c.Clamp)
	}
	return []pair{
		{a + "attention.head_count", uint32(c.Heads)},
		{a + "attention.head_count_kv", uint32(1)},
		{a + "attention.key_length", uint32(c.HeadDim)},
		{a + "attention.value_length", uint32(c.HeadDim)},
		{a + "attention.layer_norm_rms_epsilon", float32(c.RMSEps)},
		{a + "attention.q_lora_rank", uint32(c.QRank)},
		{a + "attention.output_lora_rank", uint32(c.ORank)},
		{a + "attention.output_group_count", uint32(c.OGroups)},
		{a + "attention.sliding_window", uint32(c.Window)},
		{a + "attention.compress_ratios", ratios},
		{a + "attention.compress_rope_freq_base", float32(c.CompressRopeBase)},
		{a + "attention.indexer.head_count", uint32(c.IndexHeads)},
		{a + "attention.indexer.key_length", uint32(c.IndexDim)},
		{a + "attention.indexer.top_k", uint32(c.TopK)},
		{a + "rope.dimension_count", uint32(c.RotDim)},
		{a + "rope.freq_base", float32(c.RopeBase)},
		{a + "rope.scaling.type", "yarn"},
		{a + "rope.scaling.factor", float32(c.YaRNFactor)},
		{a + "rope.scaling.original_context_length", uint32(c.YaRNContext)},
		{a + "rope.scaling.yarn_beta_fast", float32(32)},
		{a + "rope.scaling.yarn_beta_slow", float32(1)},
		{a + "hyper_connection.count", uint32(c.Streams)},
		{a + "hyper_connection.sinkhorn_iterations", uint32(c.Sinkhorn)},
		{a + "hyper_connection.epsilon", float32(c.HyperEps)},
		{a + "hash_layer_count", uint32(c.HashLayers)},
		{a + "expert_count", uint32(c.Experts)},
		{a + "expert_used_count", uint32(c.Used)},
		{a + "expert_shared_count", uint32(c.Shared)},
		{a + "expert_feed_forward_length", uint32(c.FF)},
		{a + "expert_gating_func", uint32(4)},
		{a + "expert_group_count", uint32(0)},
		{a + "expert_group_used_count", uint32(0)},
		{a + "expert_weights_norm", true},
		{a + "expert_weights_scale", float32(c.WeightsScale)},
		{a + "swiglu_clamp_exp", clamps},
		{a + "swiglu_clamp_shexp", clamps},
		{a + "nextn_predict_layers", uint32(c.blocks())},
	}
}

// fileType is general.file_type.
func (c *Config) fileType() uint32 {
	if c.Types.Dense == gguf.F32 {
		return 0
	}
	return 7 // mostly Q8_0
}
