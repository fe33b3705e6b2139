package decoder

import (
	"slices"
	"strings"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// Beside a weight X.weight a file may have X.scale, factors of its products, because the scales
// of NVFP4's blocks reach from 2^-9 to 448 only. llama.cpp's converter writes it: one number, or
// one for each expert. It also writes X.input_scale, by which a program that computes in FP4
// scales activations before it rounds them; this one does not.
const (
	weightScale = ".scale"
	inputScale  = ".input_scale"
)

// scaled is the weight of the file that a tensor has the scales of, and which scales they are;
// "" for other tensors.
func scaled(f *gguf.File, name string) (weight, kind string) {
	for _, kind := range []string{inputScale, weightScale} {
		if of, ok := strings.CutSuffix(name, kind); ok {
			if t, ok := f.Tensor(of + ".weight"); ok {
				return t.Name, kind
			}
		}
	}
	return "", ""
}

// scales are those of the products of a matrix, in the mapped file: one, of a stack of experts
// also one for each, all finite.
func (l *Loader) scales(w kernels.Weight) []float32 {
	base, ok := strings.CutSuffix(w.Name, ".weight")
	if !ok {
		return nil
	}
	t, ok := l.f.Tensor(base + weightScale)
	if !ok {
		return nil
	}
	l.finds(t)
	n := elements(t)
	experts := strings.HasSuffix(base, "_exps")
	switch {
	case t.Type != gguf.F32:
		l.Fail("tensor %q has type %s, must be F32", t.Name, t.Type)
		return nil
	case n != 1 && experts && n != int64(w.Slices):
		l.Fail("tensor %q has shape %v; expected 1 element or %d, one for each expert", t.Name, t.Shape, w.Slices)
		return nil
	case n != 1 && !experts:
		l.Fail("tensor %q has shape %v; expected 1 element", t.Name, t.Shape)
		return nil
	}
	scales := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.Data))), n)
	l.finite(t)
	if !slices.ContainsFunc(scales, func(x float32) bool { return x != 1 }) {
		return nil // the same, without the multiplications
	}
	return scales
}
