package deepseek41

import "ringmaster/kernels/cpu"

// working is what the working buffers of the CPU kernels depend on, for steps of so many
// tokens of sequences up to a context.
func working(c *Config, context, rows int) cpu.Working {
	w := cpu.Working{
		Rows:   rows,
		Cols:   max(c.Embd, c.QRank, c.OGroups*c.ORank, c.SharedFF, c.HeadDim),
		Groups: c.OGroups, GroupCols: c.Heads * c.HeadDim / c.OGroups,
		Hyper: (2 + c.Streams) * c.Streams, HyperCols: c.Streams * c.Embd,
		Experts: c.Experts, Used: c.Used, Embd: c.Embd, FF: c.ExpertFF,
		Heads: c.Heads, HeadDim: c.HeadDim, Attended: c.Window,
		Row: max(2*c.Experts, c.RotDim, 8*2+c.HeadDim+c.RotDim),
	}
	if c.Engram.exists() {
		w.Cols = max(w.Cols, c.Engram.values())
		w.Row = max(w.Row, 2*c.Embd)
	}
	for _, ratio := range c.sources() {
		w.Attended = c.Window + c.IndexTopK
		w.IndexHeads, w.IndexDim, w.IndexEntries = c.IndexHeads, c.IndexDim, max(w.IndexEntries, context/ratio+1)
	}
	return w
}
