//go:build (darwin && cgo) || metalsim

package metal

import (
	"fmt"

	"ringmaster/kernels"
)

// workspace is memory through which the kernels of an op hand each other what
// is between them. Ops take their pieces one behind the other, and from the
// beginning again when it is used up, so those close to each other may run at
// once; the encoder puts a barrier where a piece is still in use.
type workspace struct {
	memory []float32
	at     int
	ids    []int32 // 0, 1, 2, ...
}

// leastScratch is enough for a few layers of decoding.
const leastScratch = 1 << 20

// scratch gives an op n floats with anything in them, at a multiple of 64 bytes.
// It is nil when there is no memory, which the next Flush reports.
func (b *Backend) scratch(op string, n int) []float32 {
	n = 16 * above(n, 16)
	w := &b.work
	if n > len(w.memory) {
		// What is encoded may use the memory so far, which stays until Close.
		size := min(max(leastScratch, 2*n), int(b.info.max_buffer/4))
		memory, err := kernels.Make[float32](b, max(n, size))
		if err != nil {
			b.fail(fmt.Errorf("metal: %s: memory between its kernels: %w", op, err))
			return nil
		}
		w.memory, w.at = memory, 0
	}
	if w.at+n > len(w.memory) {
		w.at = 0
	}
	x := w.memory[w.at : w.at+n : w.at+n]
	w.at += n
	return x
}

// counting gives 0, 1, ..., n-1 in memory of the device.
func (b *Backend) counting(op string, n int) []int32 {
	w := &b.work
	if n > len(w.ids) {
		ids, err := kernels.Make[int32](b, max(512, 2*n))
		if err != nil {
			b.fail(fmt.Errorf("metal: %s: row numbers: %w", op, err))
			return nil
		}
		for i := range ids {
			ids[i] = int32(i)
		}
		w.ids = ids
	}
	return w.ids[:n]
}
