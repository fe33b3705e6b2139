package deepseek4

import (
	"fmt"
	"io"
	"text/tabwriter"

	"ringmaster/gguf"
	"ringmaster/moe"
)

// Plan is the memory that a model will need, computed from the file's header.
// All sizes are in bytes.
type Plan struct {
	Config    Config
	Context   int // most positions of a sequence
	MaxTokens int // most tokens of a step
	Sequences int // most sequences held at once

	Experts int64 // routed experts, mapped
	Dense   int64 // every other weight, mapped
	Output  int64 // of Dense: the output matrix
	Unread  int64 // blocks for multi-token prediction, mapped and never read
	Scratch int64 // buffers of a step
	Growth  int64 // the smaller cache while a compressed cache grows

	// The KV cache of a sequence:
	RawState     int64 // sliding windows of all layers
	RingState    int64 // rings of the compressors' inputs
	SparseCache  int64 // entries of the ratio-4 layers with their index, at Context positions
	CompactCache int64 // entries of the ratio-128 layers, at Context positions

	// Set by the caller, who knows the backend and the server:
	Kernels int64 // working buffers of the kernels
	Heap    int64 // Go's heap, stacks and runtime
	Budget  int64 // of the KV caches of all sequences; 0: Sequences of full length

	Layers map[int]int // number of layers by compression ratio
}

// NewPlan computes the plan of a file. context and maxTokens are as in Options;
// sequences is the most that are held at once. Errors are those of ReadConfig.
func NewPlan(f *gguf.File, context, maxTokens, sequences int) (Plan, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return Plan{}, err
	}
	if maxTokens == 0 {
		maxTokens = DefaultMaxTokens
	}
	if context == 0 {
		context = c.Context
	}
	p := Plan{Config: c, Context: context, MaxTokens: maxTokens, Sequences: sequences, Layers: map[int]int{}}
	for _, t := range f.Tensors() {
		n, block := int64(len(t.Data)), 0
		if _, err := fmt.Sscanf(t.Name, "blk.%d.", &block); err == nil && block >= c.Layers {
			p.Unread += n
			continue
		}
		if len(t.Shape) == 3 && int(t.Shape[2]) == c.Experts {
			p.Experts += n
		} else {
			p.Dense += n
		}
		if t.Name == "output.weight" {
			p.Output = n
		}
	}
	p.Scratch = scratchBytes(&c, maxTokens) + moe.ScratchBytes(expertShape(&c, maxTokens))
	sizes := newFootprint(&c, context, maxTokens)
	for _, r := range c.Ratios {
		p.Layers[r]++
	}
	p.RawState, p.RingState = sizes.raw, sizes.rings
	p.SparseCache, p.CompactCache = sizes.compressed(4, context), sizes.compressed(128, context)
	p.Growth = sizes.growth()
	return p, nil
}

// Fixed is the bytes that are needed beside the weights and the KV caches.
func (p Plan) Fixed() int64 { return p.Scratch + p.Growth }

// PerSequence is the bytes of the KV cache of one sequence of Context tokens.
func (p Plan) PerSequence() int64 {
	return p.RawState + p.RingState + p.SparseCache + p.CompactCache
}

func (p Plan) budget() int64 {
	if p.Budget > 0 {
		return p.Budget
	}
	return int64(max(p.Sequences, 1)) * p.PerSequence()
}

// AtMost is the most memory that the process uses beside what is mapped.
func (p Plan) AtMost() int64 { return p.Fixed() + p.Kernels + p.Heap + p.budget() }

// Weights is the bytes of the mapped weights that a step reads.
func (p Plan) Weights() int64 { return p.Experts + p.Dense }

// Write prints the plan as a table.
func (p Plan) Write(w io.Writer) error {
	c := p.Config
	fmt.Fprintf(w, "%s: %d layers (%d raw, %d of ratio 4, %d of ratio 128), %d experts, %d used, hidden size %d\n",
		c.Name, c.Layers, p.Layers[0], p.Layers[4], p.Layers[128], c.Experts, c.Used, c.Embd)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	row := func(what string, n int64, how string) {
		fmt.Fprintf(t, "  %s\t%s\t  %s\t\n", what, Bytes(n), how)
	}
	row("routed experts", p.Experts, "mapped from the file")
	row("other weights", p.Dense, "mapped from the file")
	if p.Unread > 0 {
		row("not read", p.Unread, "blocks for multi-token prediction")
	}
	row("buffers", p.Scratch, fmt.Sprintf("for steps of %d tokens", p.MaxTokens))
	row("growth of a cache", p.Growth, "while it is copied to a larger one")
	row("KV cache: window", p.RawState, "each sequence")
	row("KV cache: compressors", p.RingState, "each sequence")
	row("KV cache: ratio 4", p.SparseCache, fmt.Sprintf("each sequence of %d tokens, grows with use", p.Context))
	row("KV cache: ratio 128", p.CompactCache, "likewise")
	row("working buffers", p.Kernels, "of the kernels, at most")
	row("Go", p.Heap, "heap, stacks and runtime, at most")
	row("KV caches", p.budget(), fmt.Sprintf("all sequences, at most; one of %d tokens takes %s", p.Context, Bytes(p.PerSequence())))
	row("at most", p.AtMost(), "in addition to what is mapped")
	return t.Flush()
}

// Bytes formats a number of bytes in binary units.
func Bytes(n int64) string {
	const k = 1024
	switch {
	case n < k:
		return fmt.Sprintf("%d B", n)
	case n < k*k:
		return fmt.Sprintf("%.1f KiB", float64(n)/k)
	case n < k*k*k:
		return fmt.Sprintf("%.1f MiB", float64(n)/k/k)
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/k/k/k)
}
