package deepseek4_test

import "testing"

func TestRankTouchesItsRows(t *testing.T) {
	c := small(t)
	c.Layers, c.Ratios, c.Embd, c.Heads, c.HeadDim = 2, []int{0, 4}, 512, 8, 256
	c.QRank, c.ORank, c.OGroups, c.Vocab = 512, 512, 4, 4096
	c.FF, c.Shared = 1024, 2
	architecture.RankTouchesItsRows(t, c, "blk.1.attn_q_b.weight", "blk.1.attn_output_a.weight", "blk.1.ffn_gate_shexp.weight",
		"blk.1.ffn_up_shexp.weight", "output.weight")
}

func TestRankTouchesItsExperts(t *testing.T) {
	c := small(t)
	c.Layers, c.Ratios, c.Embd, c.FF, c.Experts, c.Used = 2, []int{0, 4}, 256, 512, 16, 4
	architecture.RankTouchesItsExperts(t, c)
}
