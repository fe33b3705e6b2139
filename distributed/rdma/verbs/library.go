package verbs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// LibraryVariable names a library to load in place of the system's.
const LibraryVariable = "RINGMASTER_VERBS_LIBRARY"

// DefaultLimit is how long to wait for a call of the library.
const DefaultLimit = 10 * time.Second

// Library is a loaded verbs library. Several goroutines may call its methods and those of
// its objects, but only one at a time may post to or poll a queue pair or completion queue.
type Library struct {
	// Limit bounds each call; DefaultLimit if 0. Set it before the first use.
	Limit time.Duration

	path     string
	provider Provider // nil after Close
	mu       sync.Mutex
	lost     []string // calls that never returned
	open     int      // contexts
}

// systemPaths are the files of the system's library, in order of preference.
func systemPaths() []string {
	if runtime.GOOS == "darwin" {
		return []string{"/usr/lib/librdma.dylib", "librdma.dylib"}
	}
	return []string{"libibverbs.so.1"}
}

// Open loads the library at path; "" stands for the one named by RINGMASTER_VERBS_LIBRARY,
// or else the system's. Errors wrap ErrUnavailable and name the missing path or symbol, or
// wrap ErrTimeout, because loading runs code of the library, which may hang.
func Open(path string) (*Library, error) { return openWithin(path, DefaultLimit) }

// loads is held by the current load. A load that hangs keeps it, because the dynamic linker
// would block every other load, and each would cost a thread.
var loads = make(chan struct{}, 1)

// load is openLocal, at most for limit.
func load(path string, limit time.Duration) (Provider, string, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	hangs := func(what string) error {
		e := limitError("open", "", fmt.Sprintf("%s: %s after %v", path, what, limit))
		e.Cure = "the library hangs while it starts; try another one, or another transport"
		return e
	}
	select {
	case loads <- struct{}{}:
	case <-timer.C:
		return nil, "", hangs("another library is still being loaded")
	}
	type result struct {
		lib Provider
		why string
	}
	done := make(chan result, 1)
	go func() {
		lib, why := openLocal(path)
		done <- result{lib, why}
		<-loads
	}()
	select {
	case r := <-done:
		return r.lib, r.why, nil
	case <-timer.C:
		return nil, "", hangs("it is not loaded")
	}
}

// openWithin is Open with a limit for each library.
func openWithin(path string, limit time.Duration) (*Library, error) {
	paths := []string{path}
	if path == "" {
		if paths[0] = os.Getenv(LibraryVariable); paths[0] == "" {
			paths = systemPaths()
		}
	}
	var reasons []string
	for _, p := range paths {
		lib, why, err := load(p, limit)
		if err != nil {
			return nil, err
		}
		if why == "" {
			return NewLibrary(p, lib), nil
		}
		reasons = append(reasons, why)
	}
	e := callError("open", "", 0, strings.Join(reasons, "; "))
	e.Cure = "install the verbs library (Debian: libibverbs1 and ibverbs-providers; macOS 26.2 or later has it), or use another transport"
	return nil, e
}

// NewLibrary returns a library that makes its calls through a provider; path says what was
// loaded.
func NewLibrary(path string, p Provider) *Library { return &Library{path: path, provider: p} }

// Where returns in which process the calls are made.
func (l *Library) Where() string { return l.provider.Where() }

// Path returns what was loaded.
func (l *Library) Path() string { return l.path }

// Lost lists calls that did not return within the limit, each with its device. Their
// objects leak.
func (l *Library) Lost() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lost...)
}

// Close unloads the library. It is an error while contexts are open, and it
// stays loaded when calls were lost.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open > 0 {
		return fmt.Errorf("%s: %d devices are still open", l.path, l.open)
	}
	if l.provider != nil {
		l.provider.Close(len(l.lost) > 0)
		l.provider = nil
	}
	return nil
}

// bounded runs a call on its own goroutine and waits for it up to the limit. If the driver
// does not return in time, the goroutine is left behind with its thread, and lost names the
// call.
func bounded[T any](l *Library, call, device string, fn func() T) (T, error) {
	limit := l.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	done := make(chan T, 1)
	go func() { done <- fn() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-done:
		return v, nil
	case <-timer.C:
	}
	// The result is preferred, because both may be ready.
	select {
	case v := <-done:
		return v, nil
	default:
	}
	l.mu.Lock()
	l.lost = append(l.lost, call+" on "+device)
	l.mu.Unlock()
	var none T
	return none, limitError(call, device, fmt.Sprintf("did not return within %v", limit))
}

// do is bounded for calls that return only an errno.
func (l *Library) do(call, device string, fn func() int) error {
	errno, err := bounded(l, call, device, fn)
	if err != nil {
		return err
	}
	if errno != 0 {
		return callError(call, device, errno, "")
	}
	return nil
}

// Device is a device by name.
type Device struct {
	Name string
	lib  *Library
}

// Devices lists the devices. If the host has none, the error wraps ErrUnavailable.
func (l *Library) Devices() ([]Device, error) {
	type result struct {
		names []string
		errno int
	}
	r, err := bounded(l, "get_device_list", "any device", func() result {
		names, errno := l.provider.Devices()
		return result{names, errno}
	})
	if err != nil {
		return nil, err
	}
	if r.errno != 0 {
		return nil, callError("get_device_list", "", r.errno, "")
	}
	if len(r.names) == 0 {
		return nil, callError("get_device_list", "", 0, l.path+" lists no RDMA device")
	}
	devices := make([]Device, len(r.names))
	for i, n := range r.names {
		devices[i] = Device{Name: n, lib: l}
	}
	return devices, nil
}

// Device finds a device; the error lists the existing ones.
func (l *Library) Device(name string) (Device, error) {
	all, err := l.Devices()
	if err != nil {
		return Device{}, err
	}
	names := make([]string, len(all))
	for i, d := range all {
		if d.Name == name {
			return d, nil
		}
		names[i] = d.Name
	}
	e := callError("open_device", name, 0, "no such device")
	e.Cure = "this host has " + strings.Join(names, ", ")
	return Device{}, e
}
