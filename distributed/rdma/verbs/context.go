package verbs

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"ringmaster/distributed"
)

// Context is an open device. Its Close destroys everything made from it.
type Context struct {
	lib    *Library
	device string
	calls  Calls
	self   object // its handle only says that the device is open

	mu  sync.Mutex
	pds []*PD
	mrs []*MR
	cqs []*CQ
	qps []*QP
}

// answer is the result of a call and its errno.
type answer[T any] struct {
	value T
	errno int
}

// ask makes a call that the device answers with a value, within the library's limit.
func ask[T any](c *Context, call string, f func() (T, int)) (T, error) {
	r, err := bounded(c.lib, call, c.device, func() answer[T] {
		value, errno := f()
		return answer[T]{value, errno}
	})
	if err == nil && r.errno != 0 {
		err = c.failed(call, r.errno, "")
	}
	return r.value, err
}

// Open opens the device. One context per device and process is enough.
func (d Device) Open() (*Context, error) {
	m, err := bounded(d.lib, "open_device", d.Name, func() answer[Calls] {
		calls, errno := d.lib.provider.Open(d.Name)
		return answer[Calls]{calls, errno}
	})
	if err != nil {
		return nil, err
	}
	if m.value == nil {
		detail := ""
		if m.errno == 0 {
			detail = "no such device"
		}
		return nil, callError("open_device", d.Name, m.errno, detail)
	}
	d.lib.mu.Lock()
	d.lib.open++
	d.lib.mu.Unlock()
	c := &Context{lib: d.lib, device: d.Name, calls: m.value}
	c.self = object{ctx: c, raw: unsafe.Pointer(c)}
	return c, nil
}

// failed returns the error of a call: its own, or the reason why the device was
// lost before.
func (c *Context) failed(call string, errno int, detail string) error {
	if why := c.calls.Err(); why != nil {
		return fmt.Errorf("%s on %s: %w", call, c.device, why)
	}
	return callError(call, c.device, errno, detail)
}

// Lost is closed when the device and all objects made from it are lost, because
// the process that made its calls has ended; Err says why. Close then still
// frees what is left in this process. A nil channel means that the device cannot
// be lost.
func (c *Context) Lost() <-chan struct{} { return c.calls.Lost() }

// Err returns why the device is lost, nil if it is not.
func (c *Context) Err() error { return c.calls.Err() }

// NewSlab makes memory that can be registered with this device; see NewSlab.
func (c *Context) NewSlab(n int) (*Slab, error) { return c.calls.NewSlab(n) }

// Device returns the name of the device.
func (c *Context) Device() string { return c.device }

// Query returns the limits of the device.
func (c *Context) Query() (DeviceAttr, error) {
	if _, err := c.self.handle("query_device"); err != nil {
		return DeviceAttr{}, err
	}
	return ask(c, "query_device", c.calls.QueryDevice)
}

// Port returns the state of a port; ports are numbered from 1.
func (c *Context) Port(port int) (PortAttr, error) {
	if _, err := c.self.handle("query_port"); err != nil {
		return PortAttr{}, err
	}
	return ask(c, "query_port", func() (PortAttr, int) { return c.calls.QueryPort(port) })
}

// GIDs reads the GID table of a port without its empty entries.
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	attr, err := c.Port(port)
	if err != nil {
		return nil, err
	}
	if _, err := c.self.handle("query_gid"); err != nil {
		return nil, err
	}
	// The bound exists because a table may claim to be huge.
	n := min(attr.GIDs, 1024)
	return ask(c, "query_gid", func() (entries []GIDEntry, failed int) {
		for i := range n {
			gid, kind, errno := c.calls.QueryGID(port, i)
			if errno != 0 {
				// Linux returns this for an entry that was never filled, so an
				// error matters only if no entry can be read.
				failed = errno
				continue
			}
			if !gid.IsZero() {
				entries = append(entries, GIDEntry{Index: i, GID: gid, Type: kind})
			}
		}
		if len(entries) > 0 {
			failed = 0
		}
		return entries, failed
	})
}

// GID reads one entry of the GID table of a port.
func (c *Context) GID(port, index int) (GID, GIDType, error) {
	if _, err := c.self.handle("query_gid"); err != nil {
		return GID{}, GIDUnknown, err
	}
	e, err := ask(c, "query_gid", func() (e GIDEntry, errno int) {
		e.GID, e.Type, errno = c.calls.QueryGID(port, index)
		return e, errno
	})
	return e.GID, e.Type, err
}

// Used returns how many queue pairs, memory regions and completion queues of the
// device this process has.
func (c *Context) Used() (qps, mrs, cqs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.qps), len(c.mrs), len(c.cqs)
}

// keep notes an object of the context.
func keep[T any](c *Context, list *[]*T, x *T) {
	c.mu.Lock()
	*list = append(*list, x)
	c.mu.Unlock()
}

// drop removes an object that was destroyed.
func drop[T any](c *Context, list *[]*T, x *T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(*list, x); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
}

// snapshot copies a list, newest first.
func snapshot[T any](c *Context, list *[]*T) []*T {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(*list)
	slices.Reverse(out)
	return out
}

// Close destroys what is left: queue pairs, memory regions, completion queues,
// protection domains, then the device. It does not move a queue pair to ERR
// before it destroys it, because one driver then fails to unmap memory. Each
// call is bounded. An object that could not be destroyed keeps its handle and
// leaks, the error names it, and the objects that it depends on are not
// destroyed. Close may be called again.
func (c *Context) Close() error {
	var errs []error
	for _, q := range snapshot(c, &c.qps) {
		errs = append(errs, q.Destroy())
	}
	for _, m := range snapshot(c, &c.mrs) {
		errs = append(errs, m.Close())
	}
	for _, q := range snapshot(c, &c.cqs) {
		errs = append(errs, q.Destroy())
	}
	for _, p := range snapshot(c, &c.pds) {
		errs = append(errs, p.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.self.destroy("close_device", func(unsafe.Pointer) int {
		errno := c.calls.Close()
		if errno == 0 {
			c.lib.mu.Lock()
			c.lib.open--
			c.lib.mu.Unlock()
		}
		return errno
	})
}

// object is the common part of everything destroyable. It gives its handle to
// one caller.
type object struct {
	ctx  *Context
	mu   sync.Mutex
	raw  unsafe.Pointer
	lost bool // the call that destroys it never returned
}

// handle returns the object's handle for a call, or an error that wraps
// ErrClosed if the object was destroyed.
func (o *object) handle(call string) (unsafe.Pointer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.raw == nil {
		e := callError(call, o.ctx.device, 0, "the object was already destroyed")
		e.Cure, e.kind = "", distributed.ErrClosed
		return nil, e
	}
	return o.raw, nil
}

// destroy runs the call once. If the call fails, the handle is kept, so that a
// later attempt may succeed. If it hangs, no later attempt is made.
func (o *object) destroy(call string, fn func(raw unsafe.Pointer) int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.raw == nil {
		return nil
	}
	if o.lost {
		return limitError(call, o.ctx.device, "did not return in an earlier call")
	}
	raw := o.raw
	err := o.ctx.lib.do(call, o.ctx.device, func() int { return fn(raw) })
	if err == nil {
		o.raw = nil
		return nil
	}
	var ce *CallError
	o.lost = errors.As(err, &ce) && ce.Errno == 0
	return err
}
