package contract

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
)

// maxPos bounds positions, because a float32 counts exactly only up to here.
const maxPos = 1 << 30

func (c *Call) position(pos, rows int) {
	c.notNegative("Rows", rows)
	c.notNegative("Pos", pos)
	if pos > maxPos || rows > maxPos || pos+rows > maxPos {
		c.fail("positions %d..%d are beyond %d", pos, pos+rows-1, maxPos)
	}
}

// StoreKV is Backend.StoreKV.
func StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) Call {
	c := Call{Op: "StoreKV"}
	c.position(pos, rows)
	c.positive("cols", cols)
	c.positive("ringRows", ringRows)
	if rows > ringRows {
		c.fail("%d rows do not fit a ring of %d", rows, ringRows)
	}
	in(&c, "x", x, rows, cols)
	out(&c, "ring", ring, ringRows, cols).ring(pos, rows, cols, ringRows)
	c.apart()
	return c
}

// Compress is Backend.Compress.
func Compress(a *kernels.CompressArgs) Call {
	c := Call{Op: "Compress"}
	c.position(a.Pos, a.Rows)
	c.positive("Ratio", a.Ratio)
	c.positive("Dim", a.Dim)
	latent := a.Latent != nil
	if latent && (a.RotDim != 0 || a.Hadamard || a.Cache != nil) {
		c.fail("an entry in Latent is neither rotated nor transformed nor stored in Cache")
	}
	if !latent {
		c.rotDim(a.RotDim, a.Dim)
	}
	if a.Hadamard {
		c.powerOfTwo("Dim", a.Dim)
	}
	width, candidates := a.Width(), a.Ratio // candidates of a channel of an entry
	if a.Overlap {
		candidates += a.Ratio
	}
	if least := a.Rows + candidates - 1; a.RingRows < least {
		c.fail("RingRows is %d, %d rows of ratio %d need %d", a.RingRows, a.Rows, a.Ratio, least)
	}
	if a.APE.Exists() {
		c.matrix("APE", &a.APE, a.Ratio, width)
		if t := a.APE.Type; t != gguf.F32 && t != gguf.F16 && t != gguf.BF16 {
			c.fail("APE (weight %q) is %s, must be F32, F16 or BF16", a.APE.Name, t)
		}
	}
	in(&c, "KV", a.KV, a.Rows, width)
	in(&c, "Score", a.Score, a.Rows, width)
	in(&c, "Norm", a.Norm, a.Dim)
	if !latent {
		in(&c, "Freqs", a.Freqs, a.RotDim/2)
	}
	first, end := a.Pos/a.Ratio, (a.Pos+a.Rows)/a.Ratio // entries that the call completes
	for _, r := range []struct {
		name string
		rows []float32
	}{{"RingKV", a.RingKV}, {"RingScore", a.RingScore}} {
		o := inOut(&c, r.name, r.rows, a.RingRows, width)
		o.ring(a.Pos, a.Rows, width, a.RingRows)
		o.Moved += (end - first) * candidates * a.Dim
	}
	switch {
	case latent:
		out(&c, "Latent", a.Latent, end-first, a.Dim)
	case first == end:
		out(&c, "Cache", a.Cache, 0)
	default:
		o := out(&c, "Cache", a.Cache, end, a.Dim)
		o.Extent.Begin = first * a.Dim
		o.Written[0], o.Moved = o.Extent, o.Extent.End-o.Extent.Begin
	}
	c.apart()
	return c
}

// IndexTopK is Backend.IndexTopK.
func IndexTopK(a *kernels.IndexArgs) Call {
	c := Call{Op: "IndexTopK"}
	c.position(a.Pos, a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("Dim", a.Dim)
	c.positive("TopK", a.TopK)
	c.positive("Ratio", a.Ratio)
	pairs := c.queries(a.Q, a.Freqs != nil, a.Rows, a.Heads, a.Dim, a.RotDim)
	in(&c, "Freqs", a.Freqs, pairs)
	if a.Freqs != nil {
		c.powerOfTwo("Dim", a.Dim)
		in(&c, "Positions", a.Positions, a.Rows)
	}
	in(&c, "HeadWeight", a.HeadWeight, a.Rows, a.Heads)
	visible := min((a.Pos+a.Rows)/a.Ratio, len(a.Cache)/a.Dim)
	cache := in(&c, "Cache", a.Cache, visible, a.Dim)
	if visible <= a.TopK { // all are selected, without a score
		cache.Moved = 0
	}
	out(&c, "Selected", a.Selected, a.Rows, a.TopK)
	if a.Blocks != nil {
		c.positive("BlocksKept", a.BlocksKept)
		c.positive("BlockSize", a.BlockSize)
		if (a.BlocksKept-1)*a.BlockSize+1 < a.TopK {
			c.fail("%d blocks of %d entries have no room for %d", a.BlocksKept, a.BlockSize, a.TopK)
		}
		if a.Mask {
			in(&c, "Blocks", a.Blocks, a.Rows, a.BlocksKept)
		} else {
			out(&c, "Blocks", a.Blocks, a.Rows, a.BlocksKept)
		}
	}
	c.apart()
	return c
}

// queries adds Q, which an op that rotates it leaves undefined. It returns how many pairs of a
// head of dim elements are rotated: those of rot elements.
func (c *Call) queries(q []float32, rotated bool, rows, heads, dim, rot int) int {
	if !rotated {
		in(c, "Q", q, rows, heads, dim)
		return 0
	}
	c.rotDim(rot, dim)
	inOut(c, "Q", q, rows, heads, dim)
	return rot / 2
}

// Attend is Backend.Attend. The numbers in Selected are not validated here.
func Attend(a *kernels.AttendArgs) Call {
	c := Call{Op: "Attend"}
	c.position(a.Pos, a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("HeadDim", a.HeadDim)
	c.positive("ValueDim", a.ValueDim)
	c.notNegative("Window", a.Window)
	c.notNegative("Ratio", a.Ratio)
	if a.ValueDim > a.HeadDim {
		c.fail("ValueDim is %d, a row has %d elements", a.ValueDim, a.HeadDim)
	}
	least, visible := a.Pos+a.Rows, a.Pos+a.Rows // rows that the ring must have; rows that are read
	switch {
	case a.RingRows == 0:
		if least, visible = 0, 0; a.Window != 0 || a.Ratio != 1 {
			c.fail("Window is %d and Ratio %d, must be 0 and 1 without raw rows", a.Window, a.Ratio)
		}
	case a.Window > 0:
		least, visible = a.Window-1+a.Rows, min(a.Window-1, a.Pos)+a.Rows
	}
	if a.RingRows < least {
		c.fail("RingRows is %d, %d rows at position %d with a window of %d need %d", a.RingRows, a.Rows, a.Pos, a.Window, least)
	}
	if (a.RotateQ || a.NormQ) && a.Freqs == nil || a.NormQ && !a.RotateQ {
		c.fail("RotateQ needs Freqs, and NormQ RotateQ")
	}
	c.queries(a.Q, a.RotateQ, a.Rows, a.Heads, a.HeadDim, a.RotDim)
	if a.Sinks != nil {
		in(&c, "Sinks", a.Sinks, a.Heads)
	} else {
		in(&c, "Sinks", a.Sinks, 0)
	}
	// A key is counted once, however many tokens see it.
	raw := in(&c, "Raw", a.Raw, a.RingRows, a.HeadDim)
	raw.Moved = visible * a.HeadDim
	if a.Window == 0 { // positions do not come round
		raw.Extent.End = least * a.HeadDim
	}
	switch {
	case a.Ratio == 0:
		in(&c, "Compressed", a.Compressed, 0)
		in(&c, "Selected", a.Selected, 0)
	case a.Selected == nil:
		in(&c, "Compressed", a.Compressed, (a.Pos+a.Rows)/a.Ratio, a.HeadDim)
		in(&c, "Selected", a.Selected, 0)
	default:
		c.positive("TopK", a.TopK)
		in(&c, "Selected", a.Selected, a.Rows, a.TopK)
		entries := min((a.Pos+a.Rows)/a.Ratio, len(a.Compressed)/a.HeadDim)
		in(&c, "Compressed", a.Compressed, entries, a.HeadDim).Moved = min(entries, a.Rows*a.TopK) * a.HeadDim
	}
	turned, pairs := 0, 0
	if a.Freqs != nil {
		c.rotDim(a.RotDim, a.ValueDim)
		turned, pairs = a.Rows, a.RotDim/2
	}
	in(&c, "Freqs", a.Freqs, pairs)
	in(&c, "Positions", a.Positions, turned)
	out(&c, "Out", a.Out, a.Rows, a.Heads, a.ValueDim)
	c.apart()
	return c
}
