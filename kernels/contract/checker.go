package contract

import "ringmaster/kernels"

// Checker is a backend that checks ops and computes nothing. An op with bad arguments
// panics with a *kernels.Misuse as the op of Backend would; otherwise it leaves memory as
// it is. A model that runs a step on it learns whether its weights and shapes meet the
// contract of every op. Memory and types of weights are those of Backend.
type Checker struct{ *Each }

// NewChecker returns a Checker with the memory of b.
func NewChecker(b kernels.Backend) Checker { return Checker{NewEach(b, func(*Op, func()) {})} }

// Submit does nothing.
func (Checker) Submit() {}

// Flush does nothing.
func (Checker) Flush() error { return nil }
