//go:build (darwin && cgo) || metalsim

package metal

import "time"

// work is what a dispatch does, as far as the caller knows: operations in float32,
// where a multiplication and an addition are two, and bytes of weights read. The
// bytes of its other buffers are added to these.
type work struct{ flops, weights float64 }

// Rates of the slowest supported GPU, that of the M1 with 8 cores: 2.6 TFLOPS (Apple,
// "Apple unleashes M1", November 2020), and two thirds of the 100 GB/s of the M2, which
// has "50 percent more than M1" (Apple, "Apple unveils M2", June 2022). Kernels that
// decode weights, and the M1 with 7 cores, are slower: a tenth of the first and a
// quarter of the second are assumed.
const (
	slowFlops = 2.6e12 / 10
	slowBytes = 67e9 / 4
)

// mostWork bounds the estimate of a command buffer. A GPU's watchdog ends one after
// about 5 s without progress (github.com/ml-explore/mlx/issues/4475); where a display is
// attached, macOS also ends one that keeps it waiting, after less
// (github.com/ml-explore/mlx/issues/3267). A twentieth of the first leaves room for both, and
// for other programs. A commit costs some ten microseconds.
const mostWork = 250 * time.Millisecond

func (w work) plus(o work) work { return work{w.flops + o.flops, w.weights + o.weights} }

// estimate is how long a dispatch takes on a slow GPU, at most.
func (w work) estimate(buffers []bind) time.Duration {
	bytes := w.weights
	for _, x := range buffers {
		bytes += float64(x.bytes)
	}
	return time.Duration((w.flops/slowFlops + bytes/slowBytes) * float64(time.Second))
}

// pieceRows divides n rows with work w into as many pieces as mostWork asks for, of whole
// multiples of `step` rows, and returns the rows of a piece.
func (b *Backend) pieceRows(w work, n, step int) int {
	whole := w.estimate(nil)
	if whole <= b.mostWork || n <= step {
		return n
	}
	rows := int(float64(n) * float64(b.mostWork) / float64(whole))
	return max(step, rows/step*step)
}
