package deepseek4

import (
	"ringmaster/kernels/cpu"
)

// working is what the working buffers of the CPU kernels depend on, for steps of so
// many tokens of sequences up to a context.
func working(c *Config, context, rows int) cpu.Working {
	w := cpu.Working{
		Rows:   rows,
		Cols:   max(c.Embd, c.QRank, c.OGroups*c.ORank, c.SharedFF),
		Groups: c.OGroups, GroupCols: c.Heads * c.HeadDim / c.OGroups,
		Hyper: (2 + c.Streams) * c.Streams, HyperCols: c.Streams * c.Embd,
		Experts: c.Experts, Used: c.Used, Embd: c.Embd, FF: c.ExpertFF,
		Heads: c.Heads, HeadDim: c.HeadDim, Attended: c.Window,
	}
	for _, ratio := range c.Ratios {
		switch ratio {
		case 4:
			w.Attended = max(w.Attended, c.Window+c.IndexTopK)
			w.IndexHeads, w.IndexDim, w.IndexEntries = c.IndexHeads, c.IndexDim, context/4+1
		case 128:
			w.Attended = max(w.Attended, c.Window+context/128+1)
		}
	}
	w.Row = max(2*c.Experts, c.RotDim, 8*128+c.HeadDim+c.RotDim)
	return w
}
