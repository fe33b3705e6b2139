package decoder

import (
	"errors"
	"fmt"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/moe"
)

// Loader finds tensors and checks their shapes and types; it collects all errors
// of the file.
type Loader struct {
	f       *gguf.File
	b       kernels.Backend
	aliases map[string][]string
	found   map[string]bool // names of the file
	errs    []error

	// Tensors are those that were found, each once, in this order.
	Tensors []gguf.Tensor
}

// NewLoader loads tensors of a file for a backend. aliases are other names that files
// use for a tensor, both without "blk.N.".
func NewLoader(f *gguf.File, b kernels.Backend, aliases map[string][]string) *Loader {
	return &Loader{f: f, b: b, aliases: aliases, found: map[string]bool{}}
}

// Err is all errors so far, or nil.
func (l *Loader) Err() error { return errors.Join(l.errs...) }

// Fail adds an error, which will begin with the file's path.
func (l *Loader) Fail(format string, a ...any) {
	l.errs = append(l.errs, fmt.Errorf("%s: "+format, append([]any{l.f.Path()}, a...)...))
}

// Find looks a tensor up by its name or one of its aliases.
func (l *Loader) Find(name string) (gguf.Tensor, bool) {
	if t, ok := l.f.Tensor(name); ok {
		l.finds(t)
		return t, true
	}
	prefix, local := "", name
	if strings.HasPrefix(name, "blk.") {
		parts := strings.SplitN(name, ".", 3)
		prefix, local = parts[0]+"."+parts[1]+".", parts[2]
	}
	for _, a := range l.aliases[local] {
		if t, ok := l.f.Tensor(prefix + a); ok {
			l.finds(t)
			return t, true
		}
	}
	return gguf.Tensor{}, false
}

func (l *Loader) finds(t gguf.Tensor) {
	if !l.found[t.Name] {
		l.found[t.Name] = true
		l.Tensors = append(l.Tensors, t)
	}
}

// Matrix is the tensor of slices matrices [rows][cols] (GGUF shape {cols,
// rows, slices}); matrices may also be joined into one of slices*rows rows.
func (l *Loader) Matrix(name string, cols, rows, slices int) kernels.Weight {
	t, ok := l.Find(name)
	if !ok {
		l.Fail("tensor %q is missing", name)
		return kernels.Weight{}
	}
	all := int64(1)
	for _, n := range t.Shape[1:] {
		all *= n
	}
	if t.Shape[0] != int64(cols) || all != int64(rows)*int64(slices) {
		l.Fail("tensor %q has shape %v; expected %v", t.Name, t.Shape, []int{cols, rows, slices})
		return kernels.Weight{}
	}
	if !l.b.CanCompute(t.Type) {
		l.Fail("tensor %q has type %s, which the %s backend cannot compute with; it can with %s",
			t.Name, t.Type, l.b.Name(), l.computable())
		return kernels.Weight{}
	}
	return kernels.Weight{Name: t.Name, Type: t.Type, Cols: cols, Rows: rows, Slices: slices,
		SliceBytes: rows * t.Type.RowBytes(cols), Data: t.Data}
}

// Small is a matrix that is small and read by every token: its elements must be finite.
// The others are not checked here, because that would read the whole file (see
// gguf.CheckWeights).
func (l *Loader) Small(name string, cols, rows int) kernels.Weight {
	w := l.Matrix(name, cols, rows, 1)
	if w.Exists() {
		t, _ := l.Find(name)
		l.finite(t)
	}
	return w
}

// finite checks that all elements of a tensor are finite. One that is not would make
// every answer, or every answer that a router sends its way, fail.
func (l *Loader) finite(t gguf.Tensor) {
	if !kernels.ValuesMatter(l.b) {
		return
	}
	if err := t.CheckFinite(); err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", l.f.PathOf(t), err))
	}
}

// computable names the types of matrices that the backend can compute with.
func (l *Loader) computable() string {
	var names []string
	for t := gguf.Type(0); t <= gguf.MXFP4; t++ {
		if t.Known() && l.b.CanCompute(t) {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}

// Vector is a small tensor of n elements, all finite, as float32 in memory of the
// backend.
func (l *Loader) Vector(name string, n int) []float32 {
	t, ok := l.Find(name)
	if !ok {
		l.Fail("tensor %q is missing", name)
		return nil
	}
	all := int64(1)
	for _, m := range t.Shape {
		all *= m
	}
	if all != int64(n) {
		l.Fail("tensor %q has shape %v; expected %d elements", t.Name, t.Shape, n)
		return nil
	}
	out, err := kernels.Make[float32](l.b, n)
	if err != nil {
		l.Fail("tensor %q: %w", t.Name, err)
		return nil
	}
	if err := gguf.Dequantize(out, t.Type, t.Data); err != nil {
		l.Fail("tensor %q: %w", t.Name, err)
	}
	l.finite(t)
	return out
}

// Experts is the routed experts and the shared one of a layer of the given shape, whose
// tensor names begin with p, without what routing needs beside the router.
func (l *Loader) Experts(p string, s moe.Shape) moe.Layer {
	e := moe.Layer{
		Router: l.Small(p+"ffn_gate_inp.weight", s.Embd, s.Experts),
		Down:   l.Matrix(p+"ffn_down_exps.weight", s.FF, s.Embd, s.Experts),
	}
	if s.SharedFF > 0 {
		e.SharedGate = l.Matrix(p+"ffn_gate_shexp.weight", s.Embd, s.SharedFF, 1)
		e.SharedUp = l.Matrix(p+"ffn_up_shexp.weight", s.Embd, s.SharedFF, 1)
		e.SharedDown = l.Matrix(p+"ffn_down_shexp.weight", s.SharedFF, s.Embd, 1)
	}
	if _, merged := l.f.Tensor(p + "ffn_gate_up_exps.weight"); !merged {
		e.Gate = l.Matrix(p+"ffn_gate_exps.weight", s.Embd, s.FF, s.Experts)
		e.Up = l.Matrix(p+"ffn_up_exps.weight", s.Embd, s.FF, s.Experts)
		return e
	}
	// One tensor holds, for each expert, the rows of gate followed by those of up.
	both := l.Matrix(p+"ffn_gate_up_exps.weight", s.Embd, 2*s.FF, s.Experts)
	if !both.Exists() {
		return e
	}
	both.Rows = s.FF
	e.Gate, e.Up = both, both
	e.Up.Data = both.Data[s.FF*both.RowBytes():]
	return e
}

// layerOf is the layer of a tensor by its name, -1 if it is of none.
func layerOf(name string) int {
	layer := -1
	if _, err := fmt.Sscanf(name, "blk.%d.", &layer); err != nil {
		return -1
	}
	return layer
}

// RefuseUnused adds an error for each tensor of the first layers of the file that Find
// has not found: a bias, say, whose layers would not compute what was trained without
// it. harmless names those that may be left, without "blk.N.".
func (l *Loader) RefuseUnused(layers int, harmless func(name string) bool) {
	for _, t := range l.f.Tensors() {
		block := layerOf(t.Name)
		if block < 0 || block >= layers || l.found[t.Name] {
			continue
		}
		if !harmless(strings.TrimPrefix(t.Name, fmt.Sprintf("blk.%d.", block))) {
			l.Fail("tensor %q is not part of this architecture as this program knows it", t.Name)
		}
	}
}
