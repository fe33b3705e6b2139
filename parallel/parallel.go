// Package parallel divides the work of a model among the ranks of a group. A
// Placement says which part of the model each rank computes. A Combiner combines
// the ranks' results over a distributed.Group, and a Meter counts the cost of
// that by layer. The package knows rows of numbers but no layers or weights of
// experts; package moe and the models use it.
//
// Place makes a placement from the sizes of a model and the shares of the ranks;
// see the example.
package parallel

import "fmt"

// Reduce is how ranks form a sum when several of them compute its terms.
type Reduce uint8

// The values of Reduce.
const (
	// Sum adds a rank's own terms in float32; an all-reduce adds the sums of
	// the ranks.
	Sum Reduce = iota
	// Exact first rounds every term (such as a selected expert's output) to
	// float16 and adds all of them exactly, so that the sum does not
	// depend on which rank has which term. It does not round a value beyond the range
	// of float16.
	Exact
)

// ParseReduce reads "sum" or "exact"; any other name is an error.
func ParseReduce(s string) (Reduce, error) {
	switch s {
	case "sum":
		return Sum, nil
	case "exact":
		return Exact, nil
	}
	return Sum, fmt.Errorf("reduce is %q; expected sum or exact", s)
}

// String returns the name that ParseReduce reads.
func (r Reduce) String() string {
	if r == Exact {
		return "exact"
	}
	return "sum"
}

// Wire is the type of the numbers on the wire of a combine.
type Wire uint8

// The types. With F16 a value beyond the range of float16 makes all ranks repeat
// the exchange in float32, and the rows that have such a value take the result.
const (
	F16 Wire = iota
	F32
)

// String names the type.
func (w Wire) String() string {
	if w == F32 {
		return "f32"
	}
	return "f16"
}
