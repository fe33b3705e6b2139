//go:build (darwin && cgo) || metalsim

package metal

// Block lets Flush wait in waitUntilCompleted.
func (b *Backend) Block() { b.patience.block = 1 }

// Patience sets how long Flush looks at the event, in microseconds, and how long
// it waits in all, in milliseconds.
func (b *Backend) Patience(spin, deadline int) {
	b.patience = patience(spin, deadline)
}
