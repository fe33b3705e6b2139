//go:build cgo && (linux || darwin)

// Package counting is a device of package gpu that runs nothing, so that its backend counts
// what a real one would have to do. It needs no GPU and reads no weights, so it counts the steps of models of
// any size:
//
//	b, err := counting.Open(metal.Numbers())
//	before := b.Counts()
//	... // a step
//	fmt.Println(b.Counts().Minus(before))
package counting

// #cgo CFLAGS: -Wall -Wextra
// #include "counting.h"
import "C"

import (
	"errors"
	"math"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
)

// Backend is a backend whose results have no meaning.
type Backend struct{ *gpu.Backend }

// ValuesMatter is false: see kernels.ValuesMatter.
func (*Backend) ValuesMatter() bool { return false }

// Prepare makes the pipelines alone, because results have no meaning.
func (b *Backend) Prepare(u kernels.Uses) error { return b.Build(u) }

// device is a gpu.Device.
type device struct {
	c       *C.rmg_device
	info    gpu.Info
	kernels int
}

// Open makes a backend of a device with the numbers of info by which work is divided. Without a
// page in it the device has that of Apple silicon.
func Open(info gpu.Info) (*Backend, error) {
	c := C.rmc_open()
	if c == nil {
		return nil, errors.New("no memory for a device")
	}
	info.Name, info.MaxBuffer, info.WorkingSet, info.SharedMax = "counting", 1<<40, math.MaxInt64, 32<<10
	if info.Page == 0 {
		info.Page = 16 << 10
	}
	d := &device{c: c, info: info}
	b, err := gpu.New(d)
	if err != nil {
		return nil, err
	}
	return &Backend{b}, nil
}

// Table implements gpu.Device.
func (d *device) Table() unsafe.Pointer { return unsafe.Pointer(d.c) }

// Info implements gpu.Device.
func (d *device) Info() gpu.Info { return d.info }

// Pipeline implements gpu.Device.
func (d *device) Pipeline(_, _ string) (number, threads int, err error) {
	d.kernels++
	return d.kernels - 1, 1024, nil
}

// Close implements gpu.Device.
func (d *device) Close() error {
	C.rmc_close(d.c)
	d.c = nil
	return nil
}
