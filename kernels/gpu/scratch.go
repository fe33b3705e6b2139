//go:build cgo

package gpu

import (
	"fmt"

	"ringmaster/kernels"
)

// workspace is memory for intermediates between the kernels of an op. It is a ring
// buffer, so that ops close to each other may run concurrently; the encoder puts a
// barrier where a reused part is still in use.
type workspace struct {
	memory []float32
	at     int
	ids    []int32 // 0, 1, 2, ...
}

// leastScratch is the minimum size in floats, enough for a few layers of decode.
const leastScratch = 1 << 20

// scratch returns n uninitialized floats, aligned to 64 bytes; nil if there is no
// memory, which the next Flush reports.
func (b *Backend) scratch(op string, n int) []float32 {
	n = 16 * above(n, 16)
	w := &b.work
	if n > len(w.memory) {
		// Encoded dispatches may use the old memory, which stays until Close.
		size := min(max(leastScratch, 2*n), int(b.info.MaxBuffer/4))
		memory, err := kernels.Make[float32](b, max(n, size))
		if err != nil {
			b.fail(fmt.Errorf("%s: intermediates: %w", op, err))
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

// counting returns 0, 1, ..., n-1 in memory of the device.
func (b *Backend) counting(op string, n int) []int32 {
	w := &b.work
	if n > len(w.ids) {
		ids, err := kernels.Make[int32](b, max(512, 2*n))
		if err != nil {
			b.fail(fmt.Errorf("%s: row numbers: %w", op, err))
			return nil
		}
		for i := range ids {
			ids[i] = int32(i)
		}
		w.ids = ids
	}
	return w.ids[:n]
}
