package gpu

import (
	"time"
	"unsafe"
)

// Device is one GPU. What is called for every step is in its C table (device.h); this is
// the rest.
type Device interface {
	// Table is the device as *rmg_device of device.h, valid until Close.
	Table() unsafe.Pointer
	// Info describes the device. It does not change.
	Info() Info
	// Pipeline makes a kernel of a library ready to run: its number in commands, and the
	// most threads of a threadgroup.
	Pipeline(library, kernel string) (number, threads int, err error)
	// Close releases the device. Nothing that was submitted is running, and all buffers
	// have been released.
	Close() error
}

// Info is what package gpu must know of a device.
type Info struct {
	Name       string // of the backend and the device, such as "metal (Apple M1)"
	MaxBuffer  uint64 // bytes of the largest buffer
	WorkingSet uint64 // recommended maximum of bytes in use
	Page       uint64 // alignment of the memory of Wrap, in bytes
	SharedMax  int    // bytes of threadgroup memory
	GroupsMax  int    // threadgroups of a dispatch along x, 0 without a limit
	SlowReads  bool   // the host reads alloc's memory slowly unless its host is set

	// RowsAgree is kernels.RowsAgree of this device.
	RowsAgree bool
	// Packed says that products are the CPU's, of packed activations: see packed.go.
	Packed bool
	// Busy is the number of simdgroups that fill the device, and AttendGroups that of the
	// threadgroups of an Attend of few rows: they choose how work is divided.
	Busy, AttendGroups int
	// Rates of the slowest device of the kind, from which it is estimated how long a
	// dispatch takes at most: float32 operations, and bytes, a second.
	Flops, Bytes float64
	// MostWork bounds that estimate for what is submitted at once.
	MostWork time.Duration
}
