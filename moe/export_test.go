package moe

import (
	"math"

	"ringmaster/parallel"
)

// Own makes the Forward own only the experts in r, without a group.
func (f *Forward) Own(r parallel.Range) { f.owned = r }

// SwitchOff disables defences against remote experts.
func (f *Forward) SwitchOff(mask, compact, zero bool) {
	f.off = defences{mask: mask, compact: compact, zero: zero}
}

// Poison fills the scratch memory with NaN and with values that are not valid
// indices. No encoded op may still need it.
func (f *Forward) Poison() {
	nan := float32(math.NaN())
	for _, x := range [][]float32{f.logits, f.weights, f.mid, f.outs} {
		fill(x, nan)
	}
	lists := [][]int32{f.ids, f.offsets, f.slots}
	if f.exchange != nil && f.exchange.Combiner != nil {
		fill(f.exchange.Parts(), nan)
	}
	for _, x := range lists {
		fill(x, -1<<30)
	}
}

func fill[T any](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}
