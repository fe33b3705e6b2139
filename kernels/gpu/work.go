//go:build cgo

package gpu

import "time"

// work is what a dispatch does, as far as the caller knows: operations in float32,
// where a multiplication and an addition are two, and bytes of weights read. The
// bytes of its other buffers are added to these.
type work struct{ flops, weights float64 }

func (w work) plus(o work) work { return work{w.flops + o.flops, w.weights + o.weights} }

// estimate is how long a dispatch takes on the slowest GPU of the kind, at most.
func (b *Backend) estimate(w work, buffers []bind) time.Duration {
	bytes := w.weights
	for _, x := range buffers {
		bytes += float64(x.bytes)
	}
	return time.Duration((w.flops/b.info.Flops + bytes/b.info.Bytes) * float64(time.Second))
}

// pieceRows divides n rows with work w into as many pieces as mostWork asks for, of whole
// multiples of `step` rows, and returns the rows of a piece.
func (b *Backend) pieceRows(w work, n, step int) int {
	whole := b.estimate(w, nil)
	if whole <= b.mostWork || n <= step {
		return n
	}
	rows := int(float64(n) * float64(b.mostWork) / float64(whole))
	return max(step, rows/step*step)
}
