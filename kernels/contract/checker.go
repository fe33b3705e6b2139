package contract

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
)

// Checker is a backend that checks ops and computes nothing. An op with bad arguments
// panics with a *kernels.Misuse as the op of Backend would; otherwise it leaves memory as
// it is. A model that runs a step on it learns whether its weights and shapes meet the
// contract of every op, and which types and which bytes of weights its ops use. Memory and types of weights are those
// of Backend.
type Checker struct {
	*Each
	// Uses are the types of the weights of all ops so far.
	Uses kernels.Uses
	// Spans are the bytes of mappings that these ops read, for kernels.Hold.
	Spans []kernels.Span
}

// NewChecker returns a Checker with the memory of b.
func NewChecker(b kernels.Backend) *Checker {
	c := &Checker{}
	c.Each = NewEach(b, func(op *Op, _ func()) {
		c.Uses.Add(usesOf(op))
		c.Spans = append(c.Spans, spansOf(op)...)
	})
	return c
}

// usesOf are the types of an op's weights.
func usesOf(op *Op) kernels.Uses {
	var u kernels.Uses
	for _, w := range op.Weights {
		one := []gguf.Type{w.Type}
		switch op.Op {
		case "Embed", "HCMix", "HCHead": // which widen rows of types that they have no products for
			u.Add(kernels.Uses{Rows: one})
		case "ExpertGateUp", "ExpertDown":
			u.Add(kernels.Uses{Experts: one})
		default:
			u.Add(kernels.Uses{Products: one})
		}
	}
	return u
}

// Submit does nothing.
func (*Checker) Submit() {}

// Flush does nothing.
func (*Checker) Flush() error { return nil }
