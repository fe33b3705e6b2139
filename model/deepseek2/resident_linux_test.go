package deepseek2_test

import "testing"

func TestRankTouchesItsRows(t *testing.T) {
	c := small(t)
	c.Layers, c.Embd, c.Heads, c.QRank, c.Vocab, c.FF, c.Shared = 2, 512, 8, 1024, 4096, 1024, 2
	c.Latent.Rank, c.Latent.Nope, c.Latent.Value, c.Latent.DenseFF = 512, 256, 256, 2048
	architecture.RankTouchesItsRows(t, c, "blk.1.attn_q_b.weight", "blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight",
		"blk.1.ffn_gate_shexp.weight", "blk.1.ffn_up_shexp.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "output.weight")
}

func TestRankTouchesItsExperts(t *testing.T) {
	c := small(t)
	c.Layers, c.Embd, c.FF, c.Experts, c.Used = 3, 256, 512, 16, 4
	c.Latent.Groups, c.Latent.GroupsUsed = 4, 4
	architecture.RankTouchesItsExperts(t, c)
}
