package contract

import (
	"reflect"
	"slices"
	"unsafe"

	"ringmaster/kernels"
)

// Op is a call of an op with what a backend around another one may need to know.
type Op struct {
	Call
	Weights  []kernels.Weight // in the order of the arguments
	Rows     int              // rows that Weights[0] multiplies or gives; 0 without weights
	Args     any              // the op's struct of arguments, such as *kernels.AttendArgs; nil if it has none
	Products []Call           // of MatMul, which has no operands of its own but those of a norm before it

	arguments []any // pointers to what run passes on
}

// Calls list the operands that the op reads and writes.
func (o *Op) Calls() []Call {
	if o.Op == "MatMul" {
		if len(o.Operands()) > 0 {
			return append(slices.Clip(o.Products), o.Call)
		}
		return o.Products
	}
	return []Call{o.Call}
}

// Move replaces the memory of every operand by the address that to gives for it, so that
// run computes there. It panics if an operand is not among the arguments that run passes
// on, because the op would then compute on two memories.
func (o *Op) Move(to func(unsafe.Pointer) unsafe.Pointer) {
	var moved []unsafe.Pointer
	for _, a := range o.arguments {
		moved = move(reflect.ValueOf(a).Elem(), to, moved)
	}
	for _, c := range o.Calls() {
		for i := range c.Operands() {
			if x := &c.Operands()[i]; x.Len > 0 && !slices.Contains(moved, x.Base) {
				panic("contract: Each." + c.Op + " does not pass " + x.Name + " to do")
			}
		}
	}
}

// move replaces the memory of the slices of numbers in v and appends their former
// addresses to before. Weights stay, because they are in mappings.
func move(v reflect.Value, to func(unsafe.Pointer) unsafe.Pointer, before []unsafe.Pointer) []unsafe.Pointer {
	switch x := v.Addr().Interface().(type) {
	case *kernels.Weight:
	case *[]float32:
		before = redirect(x, to, before)
	case *[]int32:
		before = redirect(x, to, before)
	case *[]int64:
		before = redirect(x, to, before)
	case *[]uint16:
		before = redirect(x, to, before)
	default:
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				before = move(v.Field(i), to, before)
			}
		}
	}
	return before
}

func redirect[T number](x *[]T, to func(unsafe.Pointer) unsafe.Pointer, before []unsafe.Pointer) []unsafe.Pointer {
	if len(*x) == 0 {
		return before
	}
	base := unsafe.Pointer(unsafe.SliceData(*x))
	*x = unsafe.Slice((*T)(to(base)), len(*x))
	return append(before, base)
}

// Each is a backend around another one that hands every op to a function once its
// arguments have passed the checks. It embeds Device and no Backend, so that an op that
// is missing here does not compile. Create it with NewEach.
type Each struct {
	kernels.Device
	inner kernels.Backend
	hand  func(op *Op, run func())
}

var _ kernels.Backend = (*Each)(nil)

// NewEach returns an Each around inner that hands ops to do. run executes the op on
// inner; do may keep it for later or drop it.
func NewEach(inner kernels.Backend, do func(op *Op, run func())) *Each {
	return &Each{inner, inner, do}
}

// RowsAgree is the inner backend's.
func (e *Each) RowsAgree() bool { return kernels.RowsAgree(e.inner) }

// Packer is the inner backend's.
func (e *Each) Packer() kernels.Packer { return kernels.PackerOf(e.inner) }

// Host is the inner backend's.
func (e *Each) Host() kernels.Host { return kernels.HostOf(e.inner) }

// AllocHost is the inner backend's.
func (e *Each) AllocHost(n int) ([]byte, error) { return kernels.AllocHost(e.inner, n) }

// do hands over a call. arguments are pointers to all slices, weights and structs that
// run reads.
func (e *Each) do(c Call, rows int, run func(), arguments ...any) {
	op := &Op{Call: c, Rows: rows, arguments: arguments}
	for _, a := range arguments {
		switch a := a.(type) {
		case *kernels.Weight:
			op.Weights = append(op.Weights, *a)
		case *kernels.HCMixArgs:
			op.Args, op.Weights = a, append(op.Weights, a.Fn)
		case *kernels.HCHeadArgs:
			op.Args, op.Weights = a, append(op.Weights, a.Fn)
		case *[]float32, *[]int32, *[]int64, *[]uint16, *kernels.ExpertGroups:
		default:
			op.Args = a
		}
	}
	e.hand(op, run)
}

// Embed: see kernels.Backend.
func (e *Each) Embed(out []float32, w kernels.Weight, ids []int32) {
	e.do(Embed(out, w, ids), len(ids), func() { e.inner.Embed(out, w, ids) }, &out, &w, &ids)
}

// MatMul: see kernels.Backend.
func (e *Each) MatMul(x []float32, rows int, products ...kernels.Product) {
	MatMul(x, rows, products...)
	products = slices.Clone(products) // the caller may use its own for the next op
	op := &Op{Call: Call{Op: "MatMul"}, Rows: rows, arguments: []any{&x}}
	op.multiply(x, products)
	e.hand(op, func() { e.inner.MatMul(x, rows, products...) })
}

// NormMatMul: see kernels.Backend. It is shown as a MatMul.
func (e *Each) NormMatMul(x, weight []float32, eps float32, rows int, products ...kernels.Product) {
	op := &Op{Call: NormMatMul(x, weight, rows, products...), Rows: rows, arguments: []any{&x, &weight}}
	op.Op = "MatMul"
	products = slices.Clone(products)
	op.multiply(x, products)
	e.hand(op, func() { e.inner.NormMatMul(x, weight, eps, rows, products...) })
}

// multiply adds the products with x.
func (o *Op) multiply(x []float32, products []kernels.Product) {
	for i := range products {
		p := &products[i]
		o.Products, o.Weights = append(o.Products, Product(x, o.Rows, p)), append(o.Weights, p.W)
		if p.Up.Exists() {
			o.Weights = append(o.Weights, p.Up)
		}
		o.arguments = append(o.arguments, p)
	}
}

// MatMulGrouped: see kernels.Backend.
func (e *Each) MatMulGrouped(out, x []float32, rows int, w kernels.Weight) {
	e.do(MatMulGrouped(out, x, rows, w), rows, func() { e.inner.MatMulGrouped(out, x, rows, w) }, &out, &x, &w)
}

// RMSNorm: see kernels.Backend.
func (e *Each) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	e.do(RMSNorm(out, x, weight, rows, cols), 0, func() { e.inner.RMSNorm(out, x, weight, rows, cols, eps) }, &out, &x, &weight)
}

// LayerNorm: see kernels.Backend.
func (e *Each) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	e.do(LayerNorm(out, x, weight, bias, rows, cols), 0, func() { e.inner.LayerNorm(out, x, weight, bias, rows, cols, eps) }, &out, &x, &weight, &bias)
}

// RoPE: see kernels.Backend.
func (e *Each) RoPE(a kernels.RoPEArgs) {
	e.do(RoPE(&a), 0, func() { e.inner.RoPE(a) }, &a)
}

// Hadamard: see kernels.Backend.
func (e *Each) Hadamard(x []float32, rows, dim int) {
	e.do(Hadamard(x, rows, dim), 0, func() { e.inner.Hadamard(x, rows, dim) }, &x)
}

// HCInit: see kernels.Backend.
func (e *Each) HCInit(h, x []float32, rows, streams, cols int) {
	e.do(HCInit(h, x, rows, streams, cols), 0, func() { e.inner.HCInit(h, x, rows, streams, cols) }, &h, &x)
}

// HCMix: see kernels.Backend.
func (e *Each) HCMix(a kernels.HCMixArgs) {
	e.do(HCMix(&a), a.Rows, func() { e.inner.HCMix(a) }, &a)
}

// HCCollapse: see kernels.Backend.
func (e *Each) HCCollapse(out, h, pre []float32, rows, streams, cols int) {
	e.do(HCCollapse(out, h, pre, rows, streams, cols), 0, func() { e.inner.HCCollapse(out, h, pre, rows, streams, cols) }, &out, &h, &pre)
}

// HCExpand: see kernels.Backend.
func (e *Each) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	e.do(HCExpand(h, y, post, comb, rows, streams, cols), 0, func() { e.inner.HCExpand(h, y, post, comb, rows, streams, cols) }, &h, &y, &post, &comb)
}

// HCHead: see kernels.Backend.
func (e *Each) HCHead(a kernels.HCHeadArgs) {
	e.do(HCHead(&a), a.Rows, func() { e.inner.HCHead(a) }, &a)
}

// HCGate: see kernels.Backend.
func (e *Each) HCGate(a kernels.HCGateArgs) {
	e.do(HCGate(&a), 0, func() { e.inner.HCGate(a) }, &a)
}

// StoreKV: see kernels.Backend.
func (e *Each) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	e.do(StoreKV(ring, x, rows, cols, pos, ringRows), 0, func() { e.inner.StoreKV(ring, x, rows, cols, pos, ringRows) }, &ring, &x)
}

// Compress: see kernels.Backend. Each compressor is an op of its own.
func (e *Each) Compress(all ...kernels.CompressArgs) {
	for _, a := range all {
		e.do(Compress(&a), 0, func() { e.inner.Compress(a) }, &a)
	}
}

// IndexTopK: see kernels.Backend.
func (e *Each) IndexTopK(a kernels.IndexArgs) {
	e.do(IndexTopK(&a), 0, func() { e.inner.IndexTopK(a) }, &a)
}

// Attend: see kernels.Backend.
func (e *Each) Attend(a kernels.AttendArgs) {
	e.do(Attend(&a), 0, func() { e.inner.Attend(a) }, &a)
}

// Route: see kernels.Backend.
func (e *Each) Route(a kernels.RouteArgs) {
	e.do(Route(&a), 0, func() { e.inner.Route(a) }, &a)
}

// ExpertMask: see kernels.Backend.
func (e *Each) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	e.do(ExpertMask(weights, ids, n), 0, func() { e.inner.ExpertMask(weights, ids, n, start, end) }, &weights, &ids)
}

// ExpertCompact: see kernels.Backend.
func (e *Each) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	e.do(ExpertCompact(out, ids, rows, used, experts, start, end), 0, func() { e.inner.ExpertCompact(out, ids, rows, used, experts, start, end) }, &out, &ids)
}

// ExpertGateUp: see kernels.Backend.
func (e *Each) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	e.do(ExpertGateUp(mid, x, gate, up, &a), a.Rows, func() { e.inner.ExpertGateUp(mid, x, gate, up, clamp, a) }, &mid, &x, &gate, &up, &a)
}

// ExpertDown: see kernels.Backend.
func (e *Each) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	e.do(ExpertDown(out, mid, down, &a), a.Rows, func() { e.inner.ExpertDown(out, mid, down, a) }, &out, &mid, &down, &a)
}

// SumSlots: see kernels.Backend.
func (e *Each) SumSlots(out, slots []float32, rows, used, cols int) {
	e.do(SumSlots(out, slots, rows, used, cols), 0, func() { e.inner.SumSlots(out, slots, rows, used, cols) }, &out, &slots)
}

// SumExact: see kernels.Backend.
func (e *Each) SumExact(sums []int64, terms []float32, rows, count, cols int, add bool) {
	e.do(SumExact(sums, terms, rows, count, cols, add), 0, func() { e.inner.SumExact(sums, terms, rows, count, cols, add) }, &sums, &terms)
}

// RoundSums: see kernels.Backend.
func (e *Each) RoundSums(out []float32, sums []int64, n int) {
	e.do(RoundSums(out, sums, n), 0, func() { e.inner.RoundSums(out, sums, n) }, &out, &sums)
}

// Add: see kernels.Backend.
func (e *Each) Add(out, x, y []float32, n int) {
	e.do(Add(out, x, y, n), 0, func() { e.inner.Add(out, x, y, n) }, &out, &x, &y)
}

// ToFloat16: see kernels.Backend.
func (e *Each) ToFloat16(out []uint16, x []float32, n int) {
	e.do(ToFloat16(out, x, n), 0, func() { e.inner.ToFloat16(out, x, n) }, &out, &x)
}

// FromFloat16: see kernels.Backend.
func (e *Each) FromFloat16(out []float32, x []uint16, n int) {
	e.do(FromFloat16(out, x, n), 0, func() { e.inner.FromFloat16(out, x, n) }, &out, &x)
}

// Clear: see kernels.Backend.
func (e *Each) Clear(x []float32, n int) {
	e.do(Clear(x, n), 0, func() { e.inner.Clear(x, n) }, &x)
}

// Gather: see kernels.Backend.
func (e *Each) Gather(out, x []float32, rows []int32, cols int) {
	e.do(Gather(out, x, rows, cols), 0, func() { e.inner.Gather(out, x, rows, cols) }, &out, &x, &rows)
}

// CopyColumns: see kernels.Backend.
func (e *Each) CopyColumns(out, x []float32, rows, cols, outCols, xCols int) {
	e.do(CopyColumns(out, x, rows, cols, outCols, xCols), 0, func() { e.inner.CopyColumns(out, x, rows, cols, outCols, xCols) }, &out, &x)
}
