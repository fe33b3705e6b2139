package cost

import "math"

// A rank whose routed experts are the CPU's has two clocks, because a GPU continues while the CPU
// computes: rankState.now is the GPU's and rankState.cpu the CPU's. The CPU encodes the ops of
// both in order, so an op of the GPU begins no earlier than the CPU is ready; an op that does
// not need the CPU's is encoded before those.

// ran adds an op of so many seconds.
func (r *rankState) ran(seconds float64, onCPU bool) {
	if onCPU {
		r.cpu += seconds
	} else {
		r.now = math.Max(r.now, r.cpu) + seconds
	}
}

// seen is when the host sees the results of all ops, if those of the GPU take so long to be seen.
func (r *rankState) seen(wait float64) float64 { return math.Max(r.now+wait, r.cpu) }

// busy is when both devices have ended.
func (r *rankState) busy() float64 { return math.Max(r.now, r.cpu) }
