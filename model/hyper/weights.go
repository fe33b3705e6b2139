package hyper

import (
	"ringmaster/kernels"
	"ringmaster/model/decoder"
)

// Connection holds the weights of one hyper-connection.
type Connection struct {
	Fn    kernels.Weight // [(2+S)*S][S*D]; of the head [S][S*D]
	Base  []float32      // [(2+S)*S]; of the head [S]
	Scale []float32      // [3]; of the head [1]
}

// LoadConnection finds a hyper-connection of so many coefficients and scales.
func (s *Shape) LoadConnection(l *decoder.Loader, prefix string, outs, scales int) Connection {
	return Connection{
		Fn:    l.Small(prefix+"_fn.weight", s.Streams*s.Embd, outs),
		Base:  l.Vector(prefix+"_base.weight", outs),
		Scale: l.Vector(prefix+"_scale.weight", scales),
	}
}

// LoadMix finds the hyper-connection of a sub-layer.
func (s *Shape) LoadMix(l *decoder.Loader, prefix string) Connection {
	return s.LoadConnection(l, prefix, (2+s.Streams)*s.Streams, 3)
}

// Attention holds the weights of attention over the window.
type Attention struct {
	QA     kernels.Weight // [QRank][D]
	QANorm []float32      // [QRank]
	QB     kernels.Weight // [H*hd][QRank]
	KV     kernels.Weight // [hd][D]
	KVNorm []float32      // [hd]
	Sinks  []float32      // [H]
	OA     kernels.Weight // [OGroups*ORank][H*hd/OGroups]
	OB     kernels.Weight // [D][OGroups*ORank]
}

// LoadAttention finds the tensors of a layer whose names begin with p.
func (s *Shape) LoadAttention(l *decoder.Loader, p string) Attention {
	return Attention{
		QA:     l.Matrix(p+"attn_q_a.weight", s.Embd, s.QRank, 1),
		QANorm: l.Vector(p+"attn_q_a_norm.weight", s.QRank),
		QB:     l.Matrix(p+"attn_q_b.weight", s.QRank, s.Heads*s.HeadDim, 1),
		KV:     l.Matrix(p+"attn_kv.weight", s.Embd, s.HeadDim, 1),
		KVNorm: l.Vector(p+"attn_kv_a_norm.weight", s.HeadDim),
		Sinks:  l.Vector(p+"attn_sinks.weight", s.Heads),
		OA:     joined(l.Matrix(p+"attn_output_a.weight", s.Heads*s.HeadDim/s.OGroups, s.ORank, s.OGroups)),
		OB:     l.Matrix(p+"attn_output_b.weight", s.OGroups*s.ORank, s.Embd, 1),
	}
}

// joined is matrices as one of all their rows.
func joined(w kernels.Weight) kernels.Weight {
	w.Rows, w.Slices, w.SliceBytes = w.Rows*w.Slices, 1, w.SliceBytes*w.Slices
	return w
}
