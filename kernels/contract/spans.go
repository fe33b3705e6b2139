package contract

import (
	"unsafe"

	"ringmaster/kernels"
)

// spansOf lists the bytes of mappings that an op reads. A stack of matrices that lie side by
// side, or one after the other without gaps, is one span, as are the owned matrices of a
// routed expert's stack.
func spansOf(op *Op) (spans []kernels.Span) {
	add := func(data []byte, experts bool) {
		if len(data) > 0 {
			spans = append(spans, kernels.Span{Data: data, Experts: experts})
		}
	}
	switch a := op.Args.(type) {
	case *kernels.ExpertArgs:
		for _, w := range op.Weights {
			if a.Start < a.End {
				add(w.Data[a.Start*w.SliceBytes:][:(a.End-a.Start-1)*w.SliceBytes+w.MatrixBytes()], true)
				add(bytesOfFloats(w.Scales), true)
			}
		}
		return spans
	case *kernels.RouteArgs:
		if a.Table != nil && a.Used > 0 {
			n := len(a.Table) / a.Used * a.Used
			if n > 0 {
				add(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(a.Table))), 4*n), false)
			}
		}
	case *kernels.CompressArgs:
		if a.APE.Exists() {
			add(a.APE.Data[:a.APE.MatrixBytes()], false)
		}
	}
	for _, w := range op.Weights {
		if w.Slices > 1 && w.SliceBytes >= w.MatrixBytes() && w.SliceBytes != w.Rows*w.Stride() { // with gaps
			for i := range w.Slices {
				add(w.Data[i*w.SliceBytes:][:w.MatrixBytes()], false)
			}
			continue
		}
		add(w.Data[:(w.Slices-1)*w.SliceBytes+w.MatrixBytes()], false)
	}
	return spans
}

// bytesOfFloats returns the memory of x.
func bytesOfFloats(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
