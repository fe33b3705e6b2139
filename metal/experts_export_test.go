//go:build (darwin && cgo) || metalsim

package metal

// SetManySlots changes how many slots an expert must have on average for the
// kernels of tiles, and returns what it was.
func SetManySlots(n int) int {
	before := manySlots
	manySlots = n
	return before
}

// ViewCount is how many views of weights there are.
func (b *Backend) ViewCount() int {
	n := 0
	for _, views := range b.views {
		n += len(views)
	}
	return n
}
