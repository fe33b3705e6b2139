//go:build !(linux && cgo)

package vulkan

import "ringmaster/kernels"

// Available reports whether this build can open a Vulkan device; it cannot.
const Available = false

// Backend stands for the backend that a build for Linux with cgo has.
type Backend struct{ kernels.Backend }

var errBuild = &UnsuitableError{Reason: "this program was built without Vulkan, which a build for Linux with cgo has; use --backend cpu", NoGPU: true}

// Devices fails.
func Devices() ([]Description, error) { return nil, errBuild }

// Open fails.
func Open(Options) (*Backend, error) { return nil, errBuild }

// WorkingSet is how many bytes the device recommends to use at most.
func (b *Backend) WorkingSet() int64 { return 0 }

// Device describes the device of the backend.
func (b *Backend) Device() Description { return Description{} }

// Kernels names what computes.
func Kernels(*Backend) string { return "" }
