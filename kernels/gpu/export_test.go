//go:build (darwin && cgo) || metalsim

package gpu

import "time"

// SetManySlots changes how many slots an expert must have on average for the
// kernels of tiles, and returns what it was.
func SetManySlots(n int) int {
	before := manySlots
	manySlots = n
	return before
}

// Block lets Flush wait in the driver.
func (b *Backend) Block() { b.wait.block = 1 }

// SetMostWork bounds the estimated work of a command buffer.
func (b *Backend) SetMostWork(d time.Duration) { b.mostWork = d }

// SetWait sets how long Flush polls at least, and its deadline in milliseconds.
func (b *Backend) SetWait(polling time.Duration, deadline int) {
	b.leastPolling, b.wait = polling, waitPolicy(deadline)
}

// Fail makes the device one that has failed.
func (b *Backend) Fail(err error) { b.fail(err) }
