//go:build !((darwin && cgo) || metalsim)

package metal

import (
	"time"

	"ringmaster/kernels"
)

// Available reports whether this build can open a Metal device; it cannot.
const Available = false

// Backend stands for the backend that a build for macOS has.
type Backend struct{ kernels.Backend }

// Options of Open.
type Options struct {
	// KeepWired is for how long after the last command buffer the memory of the
	// GPU is kept wired. 0: until Close.
	KeepWired time.Duration
	// Progress, if not nil, is called before the first and after each library
	// of kernels is compiled: done of the libraries are compiled.
	Progress func(done, of int)
}

// Open fails: Metal is part of macOS.
func Open(Options) (*Backend, error) {
	return nil, &UnsuitableError{"this program was built without Metal, which macOS has; use --backend cpu, or build it on a Mac with cgo"}
}

// WorkingSet is how many bytes the device recommends to use at most.
func (b *Backend) WorkingSet() int64 { return 0 }
