//go:build (darwin && cgo) || metalsim

package metal

import (
	"runtime"
	"time"

	"ringmaster/metal/shaders"
)

// Simulated reports that the device is the software one.
const Simulated = runtime.GOOS != "darwin"

// Sources are the texts of all libraries, by their names.
func Sources() (map[string]string, error) {
	texts := map[string]string{}
	for _, l := range libraries {
		text, err := shaders.Library(l.files...)
		if err != nil {
			return nil, err
		}
		texts[l.name] = text
	}
	return texts, nil
}

// Block lets Flush wait in waitUntilCompleted.
func (b *Backend) Block() { b.wait.block = 1 }

// Renewed reports whether a thread keeps the memory of the GPU wired.
func (b *Backend) Renewed() bool { return b.renewed() }

// SetMostWork bounds the estimated work of a command buffer.
func (b *Backend) SetMostWork(d time.Duration) { b.mostWork = d }

// SetWait sets how long Flush polls the event, in microseconds, and its deadline,
// in milliseconds.
func (b *Backend) SetWait(spin, deadline int) {
	b.wait = waitPolicy(spin, deadline)
}
