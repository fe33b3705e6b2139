//go:build cgo && (linux || darwin)

package helper

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

/*
#include <stdlib.h>
#include "rm_server.h"
*/
import "C"

// Open loads the library of a path, like verbs.Open, but in a helper process; each open
// device has its own. spin is how long a helper polls without result before its thread
// yields.
func Open(path string, spin time.Duration) (*verbs.Library, error) {
	return openWithin(path, spin, loadLimit)
}

// loadLimit is how long a helper may take to load the library. It is more than
// verbs.DefaultLimit, so that the helper itself can report that loading takes too long.
const loadLimit = verbs.DefaultLimit + 2*time.Second

// openWithin is Open with a limit for loading.
func openWithin(path string, spin, limit time.Duration) (*verbs.Library, error) {
	p := &provider{path: path, spin: spin, limit: limit}
	h, err := p.take()
	if err != nil {
		return nil, err
	}
	p.spare = h
	return verbs.NewLibrary(p.loaded, p), nil
}

// provider is verbs.Provider over helpers.
type provider struct {
	path  string
	spin  time.Duration
	limit time.Duration // of loading

	mu     sync.Mutex
	spare  *process // a helper that has loaded the library but opened no device
	loaded string   // what it has loaded
}

// Where is described at verbs.Provider.
func (p *provider) Where() string { return "in a helper process for each device" }

// take returns a helper that has loaded the library.
func (p *provider) take() (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.spare; h != nil {
		p.spare = nil
		if h.why() == nil {
			return h, nil
		}
		h.end()
	}
	h, err := start()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", distributed.ErrUnavailable, err)
	}
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	r, answered := h.callWithin(&message{Call: "load", Version: version, Names: []string{p.path}}, timer.C)
	switch {
	case !answered:
		err = fmt.Errorf("%w: %w: the helper process did not report within %v whether it can load the verbs library %q: the library hangs while it starts; try another one, or another transport",
			distributed.ErrUnavailable, distributed.ErrTimeout, p.limit, p.path)
	case r.Text != "":
		err = fmt.Errorf("%w: in the helper process: %s", distributed.ErrUnavailable, r.Text)
	case r.Errno != 0:
		err = fmt.Errorf("loading the verbs library: %w", h.why())
	case r.Version != version:
		err = fmt.Errorf("%w: the helper process has another version, because the program's file was replaced; restart the server", distributed.ErrUnavailable)
	default:
		if len(r.Names) == 1 {
			p.loaded = r.Names[0]
			return h, nil
		}
		err = fmt.Errorf("%w: the helper process reports %d loaded libraries, expected 1, so the program's file is damaged; install it again", distributed.ErrUnavailable, len(r.Names))
	}
	h.end()
	return nil, err
}

// Devices is described at verbs.Provider.
func (p *provider) Devices() ([]string, int) {
	h, err := p.take()
	if err != nil {
		return nil, int(syscall.EIO)
	}
	r := h.call(&message{Call: "devices"})
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Errno != 0 || p.spare != nil {
		h.end()
	} else {
		p.spare = h
	}
	return r.Names, r.Errno
}

// Close is described at verbs.Provider.
func (p *provider) Close(bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare != nil {
		p.spare.end()
		p.spare = nil
	}
}

// Open is described at verbs.Provider.
func (p *provider) Open(name string) (verbs.Calls, int) {
	h, err := p.take()
	if err != nil {
		return nil, int(syscall.EIO)
	}
	h.mu.Lock()
	h.device, h.opened = name, true
	h.mu.Unlock()
	d, errno := newDevice(h, name, p.spin)
	if d == nil {
		h.end()
		return nil, errno
	}
	return d, 0
}

// device is verbs.Calls on a device that a helper has opened.
type device struct {
	p    *process
	name string
	raw  *C.struct_rmh_device
	bell mapping

	mu     sync.Mutex
	slabs  map[*verbs.Slab]*shared
	queues map[unsafe.Pointer]queue // by C object
}

// shared is a slab that a helper can map.
type shared struct {
	file *os.File
	m    mapping
}

// remote is an object that the helper made.
type remote struct{ id uint32 }

// queue is the ring of a queue pair or completion queue.
type queue struct {
	id   uint32
	ring mapping
}

// newDevice opens a device in a helper. nil with errno 0 means that no device has the
// name.
func newDevice(p *process, name string, spin time.Duration) (*device, int) {
	f, m, err := p.share(os.Getpagesize())
	if err != nil {
		return nil, int(syscall.ENOMEM)
	}
	defer f.Close()
	r := p.call(&message{Call: "open", Names: []string{name}, Spin: int64(spin), Size: uint64(len(m.mem)), file: f})
	if r.Obj[0] == 0 {
		_ = m.unmap() // a failure leaves only a mapping
		return nil, r.Errno
	}
	d := &device{p: p, name: name, bell: m, slabs: map[*verbs.Slab]*shared{}, queues: map[unsafe.Pointer]queue{}}
	d.raw = C.rmh_device_new((*C.struct_rmh_bell)(m.at()), C.int(p.bell.Fd()))
	p.mu.Lock()
	p.onLost = func() { C.rmh_device_lost(d.raw) }
	p.mu.Unlock()
	select {
	case <-p.gone:
		C.rmh_device_lost(d.raw) // it was lost before onLost was set
	default:
	}
	return d, 0
}

// share makes memory that the helper can map: a mapping in this process, and its file.
func (p *process) share(n int) (*os.File, mapping, error) {
	n, err := verbs.SlabBytes(n)
	if err != nil {
		return nil, mapping{}, err
	}
	f, err := newShared(n)
	if err != nil {
		return nil, mapping{}, err
	}
	m, err := mapShared(f, n)
	if err != nil {
		return nil, mapping{}, closeAll(err, f)
	}
	return f, m, nil
}

// Close is described at verbs.Calls. The helper closes the device and ends.
func (d *device) Close() int {
	errno := 0
	if d.p.why() == nil {
		if errno = d.p.call(&message{Call: "close"}).Errno; errno != 0 && d.p.why() == nil {
			return errno
		}
	}
	ended := d.p.end()
	// The lock is needed because watch may be about to mark the device as lost.
	d.p.mu.Lock()
	d.p.onLost = nil
	d.p.mu.Unlock()
	if !ended {
		return int(syscall.ETIMEDOUT) // the helper may still use the shared memory
	}
	C.free(unsafe.Pointer(d.raw))
	_ = d.bell.unmap() // a failure leaves a page
	return 0
}

// Lost is described at verbs.Calls.
func (d *device) Lost() <-chan struct{} { return d.p.lost }

// Err is described at verbs.Calls.
func (d *device) Err() error { return d.p.why() }

// gone returns the result of a destroying call. It is success if the helper is lost,
// because its objects are then gone.
func (d *device) gone(r *message) int {
	if r.Errno != 0 && d.p.why() != nil {
		return 0
	}
	return r.Errno
}

// QueryDevice is described at verbs.Calls, as are all that follow.
func (d *device) QueryDevice() (verbs.DeviceAttr, int) {
	r := d.p.call(&message{Call: "query_device"})
	if r.Device == nil {
		return verbs.DeviceAttr{}, r.errno()
	}
	return *r.Device, 0
}

// errno returns the errno of a reply without a result; it is never 0.
func (m *message) errno() int {
	if m.Errno != 0 {
		return m.Errno
	}
	return int(syscall.EIO)
}

func (d *device) QueryPort(port int) (verbs.PortAttr, int) {
	r := d.p.call(&message{Call: "query_port", Args: [2]int{port}})
	if r.Port == nil {
		return verbs.PortAttr{}, r.errno()
	}
	return *r.Port, 0
}

func (d *device) QueryGID(port, index int) (verbs.GID, verbs.GIDType, int) {
	r := d.p.call(&message{Call: "query_gid", Args: [2]int{port, index}})
	return r.GID, r.GIDType, r.Errno
}

func (d *device) AllocPD() (unsafe.Pointer, int) {
	r := d.p.call(&message{Call: "alloc_pd"})
	if r.Obj[0] == 0 {
		return nil, r.errno()
	}
	return unsafe.Pointer(&remote{r.Obj[0]}), 0
}

func (d *device) DeallocPD(pd unsafe.Pointer) int {
	return d.gone(d.p.call(&message{Call: "dealloc_pd", Obj: [3]uint32{(*remote)(pd).id}}))
}

func (d *device) NewSlab(n int) (*verbs.Slab, error) {
	f, m, err := d.p.share(n)
	if err != nil {
		return nil, err
	}
	var s *verbs.Slab
	s = verbs.SlabOf(m.mem, func() error {
		d.mu.Lock()
		delete(d.slabs, s)
		d.mu.Unlock()
		err := m.unmap()
		if e := f.Close(); err == nil {
			err = e
		}
		return err
	})
	d.mu.Lock()
	d.slabs[s] = &shared{f, m}
	d.mu.Unlock()
	return s, nil
}

func (d *device) RegMR(pd unsafe.Pointer, s *verbs.Slab, access verbs.Access) (verbs.Region, int) {
	d.mu.Lock()
	x := d.slabs[s]
	d.mu.Unlock()
	if x == nil {
		return verbs.Region{}, int(syscall.EINVAL) // not made by NewSlab of this device
	}
	r := d.p.call(&message{Call: "reg_mr", Obj: [3]uint32{(*remote)(pd).id}, Args: [2]int{int(access)},
		Size: uint64(len(x.m.mem)), Base: uint64(uintptr(x.m.at())), file: x.file})
	runtime.KeepAlive(x.file)
	if r.Obj[0] == 0 {
		return verbs.Region{}, r.errno()
	}
	return verbs.Region{Handle: unsafe.Pointer(&remote{r.Obj[0]}), LKey: r.Keys[0], RKey: r.Keys[1], Base: r.Base}, 0
}

func (d *device) DeregMR(mr unsafe.Pointer) int {
	return d.gone(d.p.call(&message{Call: "dereg_mr", Obj: [3]uint32{(*remote)(mr).id}}))
}
