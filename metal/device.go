//go:build (darwin && cgo) || metalsim

package metal

/*
#cgo CFLAGS: -Wall -Wextra -I${SRCDIR}/../kernels/gpu
#cgo darwin LDFLAGS: -framework Foundation -framework Metal
#include <stdlib.h>
#include "host.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/metal/shaders"
)

// Available reports whether this build can open a Metal device.
const Available = true

// Options of Open.
type Options struct {
	// KeepWired is for how long after the last command buffer the memory of the GPU stays
	// wired, because macOS unwires idle memory and the next step then takes seconds. 0
	// means until Close.
	KeepWired time.Duration
	// Progress, if not nil, is called before the first and after each library
	// of kernels is compiled: done of the libraries are compiled.
	Progress func(done, of int)
}

// Backend is the Metal backend. Create it with Open. It is used by one
// goroutine at a time.
type Backend struct {
	*gpu.Backend
	device *device
}

var _ kernels.Backend = (*Backend)(nil)

// device is the system's Metal device with the compiled libraries.
type device struct {
	m    *C.rmm_device
	info gpu.Info
}

// renewEvery is how often the request for wired memory is renewed, in milliseconds.
// macOS unwires memory that was idle for somewhat more than a second (measured on
// M2 Ultra and M4 Pro, github.com/ggml-org/llama.cpp/pull/10119). llama.cpp renewed
// every 500 ms at first (pull/17766); it went to 5 ms only to end sooner
// (pull/24074), which the thread here does at once.
const renewEvery = 500

// Open opens the system's Metal device and compiles the kernels. The error is an
// *UnsuitableError where the host cannot run them.
func Open(o Options) (*Backend, error) {
	d, err := openDevice(o)
	if err != nil {
		return nil, err
	}
	b, err := gpu.New(d)
	if err != nil {
		return nil, err
	}
	return &Backend{b, d}, nil
}

// openDevice opens the device and compiles the libraries.
func openDevice(o Options) (*device, error) {
	var text [8192]C.char
	var info C.rmm_info
	keep := C.rmm_keep{renew_ms: renewEvery, keep_ms: C.uint64_t((max(0, o.KeepWired) + time.Millisecond - 1).Milliseconds())}
	m := C.rmm_open(&info, keep, &text[0], C.size_t(len(text)))
	if m == nil {
		if info.unsuitable != 0 {
			return nil, &UnsuitableError{C.GoString(&text[0])}
		}
		return nil, errors.New(C.GoString(&text[0]))
	}
	numbers := Numbers()
	numbers.Name = fmt.Sprintf("metal (%s)", C.GoString(&info.name[0]))
	numbers.MaxBuffer, numbers.WorkingSet, numbers.Page = uint64(info.max_buffer), uint64(info.working_set), uint64(info.page)
	numbers.SharedMax = int(info.threadgroup_max)
	d := &device{m, numbers}
	if err := d.compile(o.Progress); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// compile compiles the libraries.
func (d *device) compile(progress func(done, of int)) error {
	var text [8192]C.char
	if progress == nil {
		progress = func(int, int) {}
	}
	for i, l := range shaders.Libraries {
		progress(i, len(shaders.Libraries))
		source, err := shaders.Library(l.Files...)
		if err != nil {
			return fmt.Errorf("Metal library %s: %w", l.Name, err)
		}
		cName, cSource := C.CString(l.Name), C.CString(source)
		number := C.rmm_library(d.m, cName, cSource, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(cName))
		C.free(unsafe.Pointer(cSource))
		if number < 0 {
			return errors.New(C.GoString(&text[0]))
		}
	}
	progress(len(shaders.Libraries), len(shaders.Libraries))
	return nil
}

// Table: see gpu.Device.
func (d *device) Table() unsafe.Pointer { return unsafe.Pointer(d.m) }

// Info: see gpu.Device.
func (d *device) Info() gpu.Info { return d.info }

// Pipeline: see gpu.Device.
func (d *device) Pipeline(library, kernel string) (number, threads int, err error) {
	at := slices.IndexFunc(shaders.Libraries, func(l shaders.Named) bool { return l.Name == library })
	if at < 0 {
		return 0, 0, fmt.Errorf("Metal has no library %s of kernel %s", library, kernel)
	}
	var text [8192]C.char
	var most C.uint32_t
	name := C.CString(kernel)
	defer C.free(unsafe.Pointer(name))
	n := C.rmm_pipeline(d.m, C.int(at), name, &most, &text[0], C.size_t(len(text)))
	if n < 0 {
		return 0, 0, errors.New(C.GoString(&text[0]))
	}
	return int(n), int(most), nil
}

// Close: see gpu.Device.
func (d *device) Close() error {
	C.rmm_close(d.m)
	d.m = nil
	return nil
}

// renewed reports whether a thread keeps the memory of the GPU wired.
func (d *device) renewed() bool { return C.rmm_renewed(d.m) != 0 }
