package profile

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// do measures an op with the bytes that it moves: those of weights, which include the
// tensors of norms, and those of its operands.
func (b *Backend) do(op *contract.Op, run func()) {
	name, read, rows := op.Op, 0, op.Bytes()
	switch op.Op {
	case "Embed":
		name, read = label(op.Op, op.Weights...), op.Rows*op.Weights[0].RowBytes()
	case "MatMul":
		name = label(op.Op, op.Weights...)
		for i := range op.Products {
			if rows += op.Products[i].Operand("out").Bytes(); i == 0 {
				rows += op.Products[i].Operand("x").Bytes()
			}
		}
		for i := range op.Weights {
			read += op.Weights[i].ElementBytes()
		}
	case "MatMulGrouped":
		name, read = label(op.Op, op.Weights...), op.Weights[0].Slices*op.Weights[0].ElementBytes()
	case "RMSNorm", "LayerNorm":
		if read = op.Operand("weight").Bytes(); op.Op == "LayerNorm" {
			read += op.Operand("bias").Bytes()
		}
		rows -= read
	case "HCMix", "HCHead":
		read = op.Weights[0].ElementBytes()
	case "ExpertGateUp", "ExpertDown": // the groups say which experts and rows are touched
		a := op.Args.(*kernels.ExpertArgs)
		experts, slots := a.Chosen()
		for _, w := range op.Weights {
			read += experts * w.ElementBytes()
		}
		name, rows = label(op.Op, op.Weights...), slots*rowBytes(op.Operand("mid"), a)
		if op.Op == "ExpertDown" {
			rows += slots * rowBytes(op.Operand("out"), a)
		} else {
			rows += op.Operand("x").Bytes()
		}
	}
	b.measure(name, read, rows, run)
}

// rowBytes is the bytes of a slot's row in an operand of the routed experts.
func rowBytes(o *contract.Operand, a *kernels.ExpertArgs) int {
	return o.Bytes() / max(1, a.Rows*a.Used)
}
