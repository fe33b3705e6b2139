//go:build (darwin && cgo) || metalsim

package metal

// Block lets Flush wait in waitUntilCompleted.
func (b *Backend) Block() { b.wait.block = 1 }

// Renewed reports whether a thread keeps the memory of the GPU wired.
func (b *Backend) Renewed() bool { return b.renewed() }

// SetWait sets how long Flush polls the event, in microseconds, and its deadline,
// in milliseconds.
func (b *Backend) SetWait(spin, deadline int) {
	b.wait = waitPolicy(spin, deadline)
}
