//go:build (darwin && cgo) || metalsim

package metal

// Block lets Flush wait in waitUntilCompleted.
func (b *Backend) Block() { b.wait.block = 1 }

// SetWait sets how long Flush polls the event, in microseconds, and its deadline,
// in milliseconds.
func (b *Backend) SetWait(spin, deadline int) {
	b.wait = waitPolicy(spin, deadline)
}
