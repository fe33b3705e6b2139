//go:build cgo && (linux || darwin)

package fakeverbs

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int script_fn(const char *text, char *err, size_t n);
typedef int64_t count_fn(const char *what);
typedef int reset_fn(void);

static int call_script(void *f, const char *text, char *err, size_t n) { return ((script_fn *)f)(text, err, n); }
static int64_t call_count(void *f, const char *what) { return ((count_fn *)f)(what); }
static int call_reset(void *f) { return ((reset_fn *)f)(); }
*/
import "C"

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// flags are the compiler's flags; warnings are errors.
var flags = []string{"-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread"}

// sources lists the C files of the library, and those with its headers.
func sources() (c []string, all []string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(root, "tests", "fakeverbs", "lib")
	c, err = filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil || len(c) == 0 {
		return nil, nil, fmt.Errorf("no C files in %s", dir)
	}
	h, err := filepath.Glob(filepath.Join(dir, "*.h"))
	if err != nil || len(h) == 0 {
		return nil, nil, fmt.Errorf("no headers in %s", dir)
	}
	return c, append(append(h, filepath.Join(root, "distributed", "rdma", "verbs", "rm_verbs.h")), c...), nil
}

// moduleRoot is the folder of the go.mod at or above the working directory. It starts
// there because tests run in their package's folder, and a binary built with -trimpath
// knows no other path.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod in or above %s: the sources of fakeverbs are not to be found", dir)
		}
	}
}

var built struct {
	sync.Mutex
	path map[string]string // by the additional flags
}

// Build compiles the library, once for each state of its sources, and returns
// its path. extra are additional flags, such as -fsanitize=undefined.
func Build(t testing.TB, extra ...string) string {
	t.Helper()
	path, err := BuildTo(extra...)
	require.NoError(t, err)
	return path
}

// BuildTo is Build for callers that are not tests.
func BuildTo(extra ...string) (string, error) {
	built.Lock()
	defer built.Unlock()
	key := fmt.Sprint(extra)
	if p, ok := built.path[key]; ok {
		return p, nil
	}
	c, all, err := sources()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOARCH, flags, extra)
	for _, f := range all {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		h.Write(text)
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("ringmaster-fakeverbs-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, hex.EncodeToString(h.Sum(nil)[:8])+".so")
	if _, err := os.Stat(path); err != nil {
		// Each process builds in its own folder and the library appears complete, because
		// other test processes may build at the same time.
		own, err := os.MkdirTemp(dir, "new-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(own)
		part := filepath.Join(own, "lib.so")
		args := append(append(append([]string{}, flags...), extra...), "-o", part)
		out, err := exec.Command("cc", append(args, c...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("cc: %w\n%s", err, out)
		}
		if err := os.Rename(part, path); err != nil {
			return "", err
		}
	}
	if built.path == nil {
		built.path = map[string]string{}
	}
	built.path[key] = path
	return path, nil
}

// Fabric is a fabric of one process.
type Fabric struct {
	Path   string // the library to open
	handle unsafe.Pointer
	script unsafe.Pointer
	count  unsafe.Pointer
}

// New creates a fabric from a script. It is closed at the end of the test,
// which must have closed everything it opened.
func New(t testing.TB, script string) *Fabric {
	t.Helper()
	f, err := Make(t.TempDir(), script)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close(), "a device of the fabric is still open") })
	return f
}

// profileVariable names the environment variable with the version of macOS of devices
// that name none.
const profileVariable = "FAKEVERBS_PROFILE"

// Make creates a fabric with its library in dir, for callers that are not tests or that
// close it themselves.
func Make(dir, script string) (*Fabric, error) {
	os.LookupEnv(profileVariable) // the library reads it: go test must know that results depend on it
	lib, err := BuildTo()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(lib)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "libfakeverbs.so")
	if err := os.WriteFile(path, text, 0o700); err != nil {
		return nil, err
	}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	f := &Fabric{Path: path, handle: C.dlopen(p, C.RTLD_NOW|C.RTLD_LOCAL)}
	if f.handle == nil {
		return nil, fmt.Errorf("loading %s: %s", path, C.GoString(C.dlerror()))
	}
	f.script, f.count = f.symbol("rm_fake_script"), f.symbol("rm_fake_count")
	if err := f.Script(script); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fabric) symbol(name string) unsafe.Pointer {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	return C.dlsym(f.handle, s)
}

// Script runs more lines: faults, ports that go down, hosts that stop.
func (f *Fabric) Script(text string) error {
	s := C.CString(text)
	defer C.free(unsafe.Pointer(s))
	var why [512]C.char
	if rc := C.call_script(f.script, s, &why[0], C.size_t(len(why))); rc != 0 {
		return fmt.Errorf("fakeverbs: %s (errno %d)", C.GoString(&why[0]), int(rc))
	}
	return nil
}

// Count returns the number of live "contexts", "pds", "mrs", "cqs" and "qps"; of
// "messages", "bytes", messages "lost" and sends of an "empty" message since the
// beginning; and, for "fault:K", how often fault K of the script (from 0) has fired.
// "qps:NAME" and so on count those of one device, "bytes:NAME" the bytes that have
// arrived from it, "pid:NAME" is the process that has it open; -1 if no such device
// exists.
func (f *Fabric) Count(what string) int {
	s := C.CString(what)
	defer C.free(unsafe.Pointer(s))
	return int(C.call_count(f.count, s))
}

// Close destroys the fabric. It fails while a device is open.
func (f *Fabric) Close() error {
	if f.handle == nil {
		return nil
	}
	if rc := C.call_reset(f.symbol("rm_fake_reset")); rc != 0 {
		return fmt.Errorf("fakeverbs: %d devices, %d queue pairs are open", f.Count("contexts"), f.Count("qps"))
	}
	C.dlclose(f.handle)
	f.handle = nil
	return nil
}

// Env writes a script into dir and returns the environment of host h of a
// fabric that processes share: they all pass the same dir and script.
func Env(t testing.TB, dir, script string, h int) []string {
	t.Helper()
	lib := Build(t)
	path := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(path, []byte(script), 0o600))
	return []string{
		"RINGMASTER_VERBS_LIBRARY=" + lib, "FAKEVERBS_DIR=" + dir, "FAKEVERBS_SCRIPT=" + path, fmt.Sprintf("FAKEVERBS_HOST=%d", h),
	}
}
