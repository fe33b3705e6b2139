//go:build cgo && (linux || darwin)

// Package counting is a device of package gpu that runs nothing and counts what a real one
// would have to do. It needs no GPU and reads no weights, so it counts the steps of models of
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
	"fmt"
	"math"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
)

// Backend is a backend whose results have no meaning.
type Backend struct {
	*gpu.Backend
	device *device
}

// ValuesMatter is false: see kernels.ValuesMatter.
func (*Backend) ValuesMatter() bool { return false }

// Prepare makes the pipelines alone, because results have no meaning.
func (b *Backend) Prepare(u kernels.Uses) error { return b.Build(u) }

// device is a gpu.Device.
type device struct {
	c       *C.rmc_device
	info    gpu.Info
	kernels []string
}

// Open makes a backend of a device with the numbers of info by which work is divided.
func Open(info gpu.Info) (*Backend, error) {
	c := C.rmc_open()
	if c == nil {
		return nil, errors.New("no memory for a device")
	}
	info.Name, info.MaxBuffer, info.WorkingSet, info.Page, info.SharedMax = "counting", 1<<40, math.MaxInt64, 4096, 32<<10
	d := &device{c: c, info: info}
	b, err := gpu.New(d)
	if err != nil {
		return nil, err
	}
	return &Backend{b, d}, nil
}

// Table implements gpu.Device.
func (d *device) Table() unsafe.Pointer { return unsafe.Pointer(d.c) }

// Info implements gpu.Device.
func (d *device) Info() gpu.Info { return d.info }

// Pipeline implements gpu.Device.
func (d *device) Pipeline(_, kernel string) (number, threads int, err error) {
	if len(d.kernels) == C.RMC_KERNELS {
		return 0, 0, fmt.Errorf("more than %d kernels", C.RMC_KERNELS)
	}
	d.kernels = append(d.kernels, kernel)
	return len(d.kernels) - 1, 1024, nil
}

// Close implements gpu.Device.
func (d *device) Close() error {
	C.rmc_close(d.c)
	d.c = nil
	return nil
}

// Counts is what was submitted to a device.
type Counts struct {
	Dispatches int
	// Stages are the dispatches that nothing runs beside: barriers and the beginnings of
	// command buffers.
	Stages  int
	Light   int // stages in which no dispatch reads weights of at least 1 MB
	Buffers int // command buffers
	Waits   int // how often the host waited for the device

	Of map[string]int // dispatches by kernel
}

// Counts is what was submitted and awaited since Open.
func (b *Backend) Counts() Counts {
	n := &b.device.c.counts
	c := Counts{int(n.dispatches), int(n.stages), int(n.light), int(n.buffers), int(n.waits), map[string]int{}}
	for i, kernel := range b.device.kernels {
		c.Of[kernel] += int(n.of[i])
	}
	return c
}

// Minus is what was counted since o.
func (c Counts) Minus(o Counts) Counts {
	d := Counts{c.Dispatches - o.Dispatches, c.Stages - o.Stages, c.Light - o.Light, c.Buffers - o.Buffers, c.Waits - o.Waits, map[string]int{}}
	for kernel, n := range c.Of {
		if n -= o.Of[kernel]; n > 0 {
			d.Of[kernel] = n
		}
	}
	return d
}

// String has all but the kernels.
func (c Counts) String() string {
	return fmt.Sprintf("dispatches=%d stages=%d light=%d buffers=%d waits=%d", c.Dispatches, c.Stages, c.Light, c.Buffers, c.Waits)
}
