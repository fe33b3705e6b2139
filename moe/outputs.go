package moe

import (
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// OutputRows returns the rows of input that Outputs needs for a number of experts.
func (f *Forward) OutputRows(experts int) int { return (experts + f.shape.Used - 1) / f.shape.Used }

// Outputs computes some experts of a layer alone, whichever rank owns them, each for one
// row with the router's weight 1: expert e for row (e-Start)/Used of x [OutputRows][D].
// It uses the ops of a step, so that the result is what a rank contributes for an expert.
// It takes at most MaxTokens*Used experts. The result [experts][D] is valid until the
// next call; an error comes from the backend. Outputs must not be called between Begin
// and Finish.
func (f *Forward) Outputs(l *Layer, x []float32, experts parallel.Range) ([]float32, error) {
	s, n := f.shape, experts.Len()
	rows := f.OutputRows(n)
	for slot := range rows * s.Used { // a row has different experts, as a router chooses them
		f.ids[slot], f.weights[slot] = int32((experts.Start+slot)%s.Experts), 0
		if slot < n { // the others fill the last row
			f.weights[slot] = 1
		}
	}
	owned := f.owned
	f.owned = experts
	defer func() { f.owned = owned }()
	f.list(f.ids, rows)
	f.encode(l, x, rows)
	f.encodeDown(nil, nil)
	if err := f.b.Flush(); err != nil {
		return nil, err
	}
	return f.outs[:n*s.Embd], nil
}

// Stacks returns the matrices of the routed experts of a layer: gate, up and down.
func (l *Layer) Stacks() [3]kernels.Weight { return [3]kernels.Weight{l.Gate, l.Up, l.Down} }
