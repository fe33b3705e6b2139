package decoder

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/moe"
)

// Loader finds tensors and checks their shapes and types. It collects all errors of the
// file.
type Loader struct {
	f       *gguf.File
	b       kernels.Backend
	aliases map[string][]string
	found   map[string]bool     // names of the file
	missing map[string]*missing // by name without the layer
	errs    []error

	// Tensors are those that were found, each once, in this order.
	Tensors []gguf.Tensor
}

// NewLoader loads tensors of a file for a backend. aliases are other names that files
// use for a tensor, both without "blk.N.".
func NewLoader(f *gguf.File, b kernels.Backend, aliases map[string][]string) *Loader {
	return &Loader{f: f, b: b, aliases: aliases, found: map[string]bool{}, missing: map[string]*missing{}}
}

// Err is the errors so far as one model.FileError, or nil.
func (l *Loader) Err() error { return fileError(l.f, l.errs) }

// mostErrors bounds the lines of an error about a file.
const mostErrors = 60

// fileError makes one error of what is wrong with a file, nil if that is nothing.
func fileError(f *gguf.File, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	if more := len(errs) - mostErrors; more > 0 {
		errs = append(slices.Clone(errs[:mostErrors]), fmt.Errorf("%s: %d more errors like these", f.Path(), more))
	}
	return &model.FileError{Err: errors.Join(errs...)}
}

// Fail adds an error, which will begin with the file's path.
func (l *Loader) Fail(format string, a ...any) {
	l.errs = append(l.errs, fmt.Errorf("%s: "+format, append([]any{l.f.Path()}, a...)...))
}

// missing is the error of a tensor that a file lacks, in one layer or in many.
type missing struct {
	path, name string // of the first
	more       int
}

// Error names the first of the layers.
func (m *missing) Error() string {
	text := fmt.Sprintf("%s: tensor %q is missing", m.path, m.name)
	switch m.more {
	case 0:
		return text
	case 1:
		return text + ", and that of 1 more layer"
	}
	return fmt.Sprintf("%s, and those of %d more layers", text, m.more)
}

// Missing adds an error for a tensor that the file lacks, one for all layers.
func (l *Loader) Missing(name string) {
	local := within(name)
	if m := l.missing[local]; m != nil {
		m.more++
		return
	}
	m := &missing{path: l.f.Path(), name: name}
	l.missing[local] = m
	l.errs = append(l.errs, m)
}

// Find looks a tensor up by its name or one of its aliases.
func (l *Loader) Find(name string) (gguf.Tensor, bool) {
	if t, ok := l.f.Tensor(name); ok {
		l.finds(t)
		return t, true
	}
	local := within(name)
	prefix := strings.TrimSuffix(name, local)
	for _, a := range l.aliases[local] {
		if t, ok := l.f.Tensor(prefix + a); ok {
			l.finds(t)
			return t, true
		}
	}
	return gguf.Tensor{}, false
}

// Table looks a tensor up from which a model reads single rows and which is not one of
// Tensors, because nothing should read all of it.
func (l *Loader) Table(name string) (gguf.Tensor, bool) {
	t, ok := l.f.Tensor(name)
	if !ok {
		l.Missing(name)
		return gguf.Tensor{}, false
	}
	l.found[t.Name] = true
	return t, true
}

func (l *Loader) finds(t gguf.Tensor) {
	if !l.found[t.Name] {
		l.found[t.Name] = true
		l.Tensors = append(l.Tensors, t)
	}
}

// holds reports whether a GGUF shape is that of count matrices [rows][cols]: {cols, rows,
// count}, or all joined into one of count*rows rows. Any other division of as many
// elements is refused, because it is another matrix, such as one with slices that were
// not transposed.
func holds(shape []int64, cols, rows, count int) bool {
	for len(shape) > 1 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	if shape[0] != int64(cols) {
		return false
	}
	switch len(shape) {
	case 1:
		return rows*count == 1
	case 2:
		return shape[1] == int64(rows)*int64(count)
	}
	return len(shape) == 3 && shape[1] == int64(rows) && shape[2] == int64(count)
}

// Matrix is the tensor of slices matrices [rows][cols] (GGUF shape {cols, rows, slices}) for
// products, with its scales; matrices may also be joined into one of slices*rows rows.
func (l *Loader) Matrix(name string, cols, rows, slices int) kernels.Weight {
	w := l.matrix(name, cols, rows, slices)
	if w.Exists() {
		w.Scales = l.scales(w)
	}
	return w
}

// Embedding is a matrix [rows][cols] of which single rows are read. It has no scales.
func (l *Loader) Embedding(name string, cols, rows int) kernels.Weight {
	return l.matrix(name, cols, rows, 1)
}

// matrix is Matrix without scales.
func (l *Loader) matrix(name string, cols, rows, slices int) kernels.Weight {
	t, ok := l.Find(name)
	if !ok {
		l.Missing(name)
		return kernels.Weight{}
	}
	if !holds(t.Shape, cols, rows, slices) {
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

// Small is a matrix that is small and read by every token: its elements must be finite. It has
// no scales. Other matrices are not checked here, because that would read the whole file (see
// gguf.CheckWeights).
func (l *Loader) Small(name string, cols, rows int) kernels.Weight {
	w := l.matrix(name, cols, rows, 1)
	if w.Exists() {
		t, _ := l.Find(name)
		l.finite(t)
	}
	return w
}

// finite checks that all elements of a tensor are finite, because one that is not would
// make every answer fail, or every answer that a router sends its way.
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
	for t := gguf.Type(0); t <= gguf.LastType; t++ {
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
		l.Missing(name)
		return nil
	}
	if elements(t) != int64(n) {
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

func elements(t gguf.Tensor) int64 {
	n := int64(1)
	for _, m := range t.Shape {
		n *= m
	}
	return n
}

// Experts is the routed experts and the shared one of a layer of the given shape, without
// what routing needs beside the router. Their tensor names begin with p.
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

// Unread says why an architecture does not read a tensor of a layer, or of none (-1),
// that it knows; "" for one that it does not know. name is without "blk.N.".
type Unread func(layer int, name string) (why string)

// ropeFactors is the tensor of factors by which RoPE's frequencies are divided.
const ropeFactors = "rope_freqs.weight"

// whyUnread is why nothing reads a tensor of a file with so many layers.
func whyUnread(f *gguf.File, layers int, mtp mtpBlocks, name string, unread Unread) string {
	if weight, kind := scaled(f, name); weight != "" {
		if why := whyUnread(f, layers, mtp, weight, unread); why != "" || kind == weightScale {
			return why
		}
		return "scales of activations in FP4, which stay as they are here"
	}
	layer, local := split(name)
	switch {
	case (layer < 0 || layer >= layers) && mtp.has(layer, local):
		return "multi-token prediction"
	case layer >= layers:
		return ""
	case local == ropeFactors:
		return "RoPE factors of 1"
	}
	return unread(layer, local)
}

// RefuseUnused adds an error for each tensor that Find has not found, because without it,
// such as a bias, the layers may not compute what was trained. Tensors of multi-token
// prediction, those that unread knows, and RoPE factors of 1 are allowed.
func (l *Loader) RefuseUnused(layers int, unread Unread) {
	mtp := findMTP(l.f)
	for _, t := range l.f.Tensors() {
		if l.found[t.Name] {
			continue
		}
		if whyUnread(l.f, layers, mtp, t.Name, unread) == "" {
			l.Fail("tensor %q is not part of this architecture as this program knows it", t.Name)
		} else if _, local := split(t.Name); local == ropeFactors {
			l.onlyOnes(t)
		}
	}
}

// onlyOnes refuses factors of RoPE's frequencies other than 1.
func (l *Loader) onlyOnes(t gguf.Tensor) {
	n := elements(t)
	factors := make([]float32, min(n, maxFactors))
	if n > maxFactors || gguf.Dequantize(factors, t.Type, t.Data) != nil || slices.ContainsFunc(factors, func(x float32) bool { return x != 1 }) {
		l.Fail("tensor %q has factors for RoPE's frequencies other than 1, which this architecture does not apply", t.Name)
	}
}

// maxFactors is more than half of any head's width.
const maxFactors = 65536
