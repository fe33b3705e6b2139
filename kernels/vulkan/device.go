//go:build linux && cgo

package vulkan

/*
#cgo CFLAGS: -Wall -Wextra -I${SRCDIR}/../gpu
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "host.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/vulkan/shaders"
)

// Available reports whether this build can open a Vulkan device.
const Available = true

// Backend is the Vulkan backend. Create it with Open. It is used by one goroutine at a
// time.
type Backend struct {
	*gpu.Backend
	device *device
}

var _ kernels.Backend = (*Backend)(nil)

// device is a Vulkan device with the modules that were used so far.
type device struct {
	m          *C.rmvk_device
	native     C.rmvk_info
	info       gpu.Info
	arithmetic arithmetic
	modules    map[string]C.int
}

// most is the most devices that are looked at.
const most = 16

// Devices describes the devices that Vulkan shows. It is an *UnsuitableError if there is
// no loader or no driver.
func Devices() ([]Description, error) {
	var text [1024]C.char
	var list [most]C.rmvk_info
	n := C.rmvk_list(&list[0], most, &text[0], C.size_t(len(text)))
	if n < 0 {
		reason, cure, _ := strings.Cut(C.GoString(&text[0]), "; ")
		return nil, &UnsuitableError{Reason: reason, Cure: cure, NoGPU: true}
	}
	all := make([]Description, n)
	for i := range all {
		all[i] = describe(&list[i])
	}
	return all, nil
}

func describe(i *C.rmvk_info) Description {
	d := Description{
		Name: C.GoString(&i.name[0]), Driver: C.GoString(&i.driver[0]), Kind: Kind(i._type), Missing: C.GoString(&i.missing[0]),
		Heap: uint64(i.heap), Budget: uint64(i.budget), BudgetKnown: i.budget_known != 0,
		Unified: i.unified != 0, Visible: uint64(i.visible), Imports: i.imports != 0, MaxBuffer: uint64(i.max_buffer),
		Version:      fmt.Sprintf("%d.%d.%d", i.api>>22&127, i.api>>12&1023, i.api&4095),
		SharedMemory: uint32(i.shared_max), Workgroup: uint32(i.threads_max), Subgroups: [2]uint32{uint32(i.subgroup_min), uint32(i.subgroup_max)},
	}
	for _, h := range i.heaps[:i.heap_count] {
		d.Heaps = append(d.Heaps, Heap{uint64(h.bytes), uint64(h.budget), h.local != 0})
	}
	return d
}

// Open opens a device and tries its arithmetic. The error is an *UnsuitableError where no
// device can run the kernels.
func Open(o Options) (*Backend, error) {
	all, err := Devices()
	if err != nil {
		return nil, err
	}
	wanted := o.Device
	if wanted == "" {
		wanted = os.Getenv(DeviceVariable)
	}
	number, err := choose(all, wanted)
	if err != nil {
		return nil, err
	}
	d := &device{modules: map[string]C.int{}}
	var text [2048]C.char
	if d.m = C.rmvk_open(C.int(number), &d.native, &text[0], C.size_t(len(text))); d.m == nil {
		return nil, &UnsuitableError{Reason: C.GoString(&text[0]) + "; use --backend cpu"}
	}
	d.info = infoOf(&d.native)
	unable := func(err error) error {
		return &UnsuitableError{Reason: fmt.Sprintf("the GPU %q (%s) cannot run the kernels: %v; use --backend cpu", all[number].Name, all[number].Driver, err)}
	}
	if d.arithmetic, err = d.selfTest(); err != nil {
		return nil, errors.Join(unable(err), d.Close())
	}
	if d.arithmetic.fused {
		C.rmvk_fused(d.m, 1)
	}
	b, err := gpu.New(d)
	if err != nil {
		return nil, unable(err)
	}
	return &Backend{b, d}, nil
}

// Numbers by which work is divided, for kinds of devices. Rates are those of slow ones: an
// integrated GPU of 2 TFLOPS with 50 GB/s, a card of 5 TFLOPS with 200 GB/s. A tenth of the
// first and a quarter of the second are assumed.
func infoOf(i *C.rmvk_info) gpu.Info {
	info := gpu.Info{
		Name:      fmt.Sprintf("vulkan (%s)", C.GoString(&i.name[0])),
		MaxBuffer: uint64(i.max_buffer), WorkingSet: uint64(i.budget), Page: uint64(i.page), SharedMax: int(i.shared_max), GroupsMax: int(i.groups_max[0]),
		RowsAgree: true, Packed: true,
		SlowReads: i.unified == 0 && i.visible > 256<<20, // else alloc's memory is the host's, see memory.c
		Busy:      512, AttendGroups: 64, Flops: 2e12 / 10, Bytes: 50e9 / 4,
		// Watchdogs of Linux' drivers end what takes some seconds; that of a display is
		// disturbed earlier.
		MostWork: 250 * time.Millisecond,
	}
	switch Kind(i._type) {
	case Discrete:
		info.Busy, info.AttendGroups, info.Flops, info.Bytes = 4096, 256, 5e12/10, 200e9/4
	case CPU:
		info.Busy, info.AttendGroups = 16, 8
	}
	return info
}

// Table is the device as *rmg_device.
func (d *device) Table() unsafe.Pointer { return unsafe.Pointer(d.m) }

// Info describes the device.
func (d *device) Info() gpu.Info { return d.info }

// Pipeline loads the module of a kernel. Its pipelines are made when a number of threads
// is first submitted.
func (d *device) Pipeline(library, kernel string) (number, threads int, err error) {
	k, ok := shaders.Kernels[shaders.Name{Library: library, Kernel: kernel}]
	module := C.int(-1)
	if ok {
		if module, err = d.module(k.Module); err != nil {
			return 0, 0, fmt.Errorf("kernel %s of %s: %w", kernel, library, err)
		}
	}
	name := C.CString(library + "/" + kernel)
	defer C.free(unsafe.Pointer(name))
	var constants *C.uint32_t
	if len(k.Constants) > 0 {
		constants = (*C.uint32_t)(unsafe.Pointer(&k.Constants[0]))
	}
	n := C.rmvk_kernel(d.m, name, module, constants, shaders.FirstConstant, C.uint32_t(len(k.Constants)))
	if n < 0 {
		return 0, 0, errors.New("no memory for a kernel")
	}
	return int(n), int(d.native.threads_max), nil
}

// module loads a module, once.
func (d *device) module(name string) (C.int, error) {
	if n, ok := d.modules[name]; ok {
		return n, nil
	}
	code, err := shaders.Module(name)
	if err != nil {
		return 0, err
	}
	words, err := withModes(code, d.native.denorm_preserve != 0, d.native.nan_preserve != 0, d.native.nearest != 0)
	if err != nil {
		return 0, fmt.Errorf("module %s: %w", name, err)
	}
	var text [512]C.char
	n := C.rmvk_module(d.m, (*C.uint32_t)(unsafe.Pointer(&words[0])), C.size_t(4*len(words)), &text[0], C.size_t(len(text)))
	if n < 0 {
		return 0, fmt.Errorf("module %s: %s", name, C.GoString(&text[0]))
	}
	d.modules[name] = n
	return n, nil
}

// Close releases the device.
func (d *device) Close() error {
	if d.m != nil {
		C.rmvk_close(d.m)
		d.m = nil
	}
	return nil
}

// Device describes the device of the backend.
func (b *Backend) Device() Description { return describe(&b.device.native) }

// Kernels names what computes: device and driver, whose compiler makes the kernels, and
// what its arithmetic was found to do.
func Kernels(b *Backend) string {
	i := &b.device.native
	return fmt.Sprintf("%s, driver %s (%x), %s", b.Name(), C.GoString(&i.driver[0]),
		C.GoBytes(unsafe.Pointer(&i.cache_uuid[0]), 16), b.device.arithmetic)
}
