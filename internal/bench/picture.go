package bench

import (
	"fmt"

	"ringmaster/internal/picture"
	"ringmaster/internal/units"
)

// charts returns the rates of prefill by length and of decode by depth, a line for each
// number of sequences and drafts and each precision.
func charts(all []*Measurement) []picture.Chart {
	out := []picture.Chart{
		{Title: "Decode", X: "tokens before, of each sequence", Y: "tokens/s of all sequences"},
		{Title: "Prefill", X: "tokens of the prompt", Y: "tokens/s"}}
	for _, m := range all {
		c, x := &out[0], m.Depth
		name := "1 sequence"
		if m.What == "prefill" {
			c, x, name = &out[1], m.N, "from an empty cache"
		} else if m.Sequences > 1 {
			name = fmt.Sprintf("%d sequences", m.Sequences)
		}
		if m.Drafts > 0 {
			name += ", " + units.Count(m.Drafts, "wrong draft")
		}
		if m.Activations > 0 {
			name += fmt.Sprintf(", %d-bit activations", m.Activations)
		}
		c.Add(name, picture.Point{X: float64(x), Y: float64(m.N*m.Sequences) / median(m.Seconds)})
	}
	return out
}
