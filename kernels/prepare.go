package kernels

import (
	"fmt"
	"slices"

	"ringmaster/gguf"
)

// Uses are the types of a model's weights by what ops do with them, each type once.
type Uses struct {
	Rows     []gguf.Type // single rows, of Embed and the mixing of hyper-connections
	Products []gguf.Type // of MatMul and MatMulGrouped
	Experts  []gguf.Type // of routed experts
}

// Add adds the types that are new.
func (u *Uses) Add(o Uses) {
	for _, x := range []struct{ to, from *[]gguf.Type }{{&u.Rows, &o.Rows}, {&u.Products, &o.Products}, {&u.Experts, &o.Experts}} {
		for _, t := range *x.from {
			if !slices.Contains(*x.to, t) {
				*x.to = append(*x.to, t)
			}
		}
	}
}

// Types are all types, each once, in the order of their numbers.
func (u *Uses) Types() []gguf.Type {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(u.Rows, u.Products, u.Experts))))
}

// Prepare lets a backend make what the ops of a model need, such as pipelines of a GPU, so that
// no step waits for it, and try whether it computes these types as gguf.Dequantize says. The
// error is a *WrongTypeError if it does not. It is called after Map and before the first op. A
// backend that has something to prepare has a method Prepare.
func Prepare(b Backend, u Uses) error {
	if p, ok := b.(interface{ Prepare(Uses) error }); ok {
		return p.Prepare(u)
	}
	return nil
}

// WrongTypeError says that a device computes weights of a type wrongly.
type WrongTypeError struct {
	Device string // Name of the backend
	Type   gguf.Type
	What   string // differs: the op, where, and both values
}

// Error names device, type and difference, and the cure.
func (e *WrongTypeError) Error() string {
	return fmt.Sprintf("%s computes weights of type %s wrongly (%s); use --backend cpu", e.Device, e.Type, e.What)
}
