package record

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/parallel/cost"
)

// show shows an op with what its time depends on.
func (b *Backend) show(op *contract.Op, run func()) {
	o := cost.Op{Kind: op.Op, Bytes: float64(op.Bytes())}
	switch a := op.Args.(type) {
	case *kernels.ExpertArgs:
		o = b.experts(op, a)
	case *kernels.RoPEArgs:
		o.Work = float64(a.Rows * a.Heads * a.RotDim)
	case *kernels.CompressArgs:
		each, entries := a.Ratio, (a.Pos+a.Rows)/a.Ratio-a.Pos/a.Ratio // positions of an entry
		if a.Overlap {
			each *= 2
		}
		o.Work = float64(entries * each * a.Dim)
	case *kernels.IndexArgs:
		o.Work = entries(a) * float64(a.Heads*a.Dim)
	case *kernels.AttendArgs:
		o.Work = keys(a) * float64(a.Heads*(a.HeadDim+a.ValueDim))
	default:
		switch {
		case op.Op == "Embed": // reads a row for each id
			o.Kind = kind(op)
			o.Bytes += float64(op.Rows * op.Weights[0].RowBytes())
		case len(op.Weights) > 0:
			o = weighed(op)
		}
	}
	b.each(o, run)
}
