//go:build cgo

// Package cpu is the kernels.Backend that computes on the processor: C through cgo, with
// SIMD chosen at run time and its own thread pool. Ops run immediately, in the calling
// thread and the pool's.
//
//	b, err := cpu.New(0) // a thread for every processor
//	if err != nil { ... }
//	defer b.Close()
//	b.RMSNorm(out, x, weight, rows, cols, eps)
//	err = b.Flush()
package cpu

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O3 -Wall -Wextra
#cgo !darwin LDFLAGS: -lm -lpthread
#include "cpu.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/internal/units"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Level is an instruction set that the kernels use.
type Level int

// The levels.
const (
	Portable Level = C.RM_LEVEL_PORTABLE // C only
	AVX2     Level = C.RM_LEVEL_AVX2     // AVX2, FMA, F16C
	AVX512   Level = C.RM_LEVEL_AVX512   // and AVX-512 F, BW, DQ, VL, VNNI
	AMX      Level = C.RM_LEVEL_AMX      // and AMX with int8 and bfloat16; the same bits as AVX512
	NEON     Level = C.RM_LEVEL_NEON     // aarch64 with dot products of bytes
)

// all lists the levels, those of one architecture in ascending order of speed.
var all = []Level{Portable, AVX2, AVX512, AMX, NEON}

func (l Level) String() string {
	switch l {
	case Portable:
		return "portable"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	case AMX:
		return "amx"
	case NEON:
		return "neon"
	}
	return fmt.Sprintf("level %d", int(l))
}

// SameBits is the lowest level that gives the bits of l in every op. Hosts may compute
// together if SameBits of their levels is the same.
func (l Level) SameBits() Level {
	if l == AMX {
		return AVX512
	}
	return l
}

// Levels lists the levels that this host can run, the slowest first.
func Levels() []Level {
	var levels []Level
	for _, l := range all {
		if C.rm_cpu_has(C.int(l)) != 0 {
			levels = append(levels, l)
		}
	}
	return levels
}

// Backend is the CPU backend. Create it with New. It is used by one goroutine at a time.
type Backend struct {
	pool        *C.rm_pool
	level       Level
	activations Activations
	allocs      contract.Allocations[struct{}]
	err         error     // first failure of an op
	yielded     time.Time // when Go's scheduler last had the choice, see begin
}

// New returns a backend with the given number of threads, including the
// caller's, at the best level of the host. 0 means every processor that the
// process may run on. It fails if the threads cannot be started.
func New(threads int) (*Backend, error) {
	return NewLevel(threads, Best())
}

// Best is the fastest level that this host can run.
func Best() Level { return Level(C.rm_cpu_level()) }

// ParseLevel parses the name of a level, "portable", "avx2", "avx512", "amx" or
// "neon"; "auto" is the best level of the host.
func ParseLevel(name string) (Level, error) {
	if name == "auto" {
		return Best(), nil
	}
	for _, l := range all {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, fmt.Errorf("unknown instruction set %q; expected auto, portable, avx2, avx512, amx or neon", name)
}

// NewLevel is New with a given level, for tests, for comparisons, and for groups in which
// hosts of different kinds must compute the same bits. It fails if the host does not
// support the level.
func NewLevel(threads int, level Level) (*Backend, error) {
	return Open(Options{Threads: threads, Level: level, Activations: Bits15})
}

// Open returns a backend. It fails if the host does not support the level, if there is no
// such precision, or if the threads cannot be started.
func Open(o Options) (*Backend, error) {
	threads, level := o.Threads, o.Level
	if o.Activations != Bits15 && o.Activations != Bits8 {
		return nil, fmt.Errorf("no such precision: %s", o.Activations)
	}
	if threads == 0 {
		threads = int(C.rm_cpu_count())
	}
	if threads < 0 || threads > MaxThreads {
		return nil, fmt.Errorf("%d threads: give 1 to %d, or 0 for all processors", threads, MaxThreads)
	}
	if C.rm_cpu_has(C.int(level)) == 0 {
		return nil, fmt.Errorf("this host does not support %s; its best level is %s", level, Best())
	}
	pool := C.rm_pool_new(C.int(threads), C.int(level))
	if pool == nil {
		return nil, fmt.Errorf("cannot start %d threads", threads)
	}
	b := &Backend{pool: pool, level: level}
	b.SetActivations(o.Activations)
	return b, nil
}

// SetActivations sets the precision of the ops that follow.
func (b *Backend) SetActivations(a Activations) {
	if b.pool == nil {
		return
	}
	upperOnly := C.int(0)
	if a == Bits8 {
		upperOnly = 1
	}
	C.rm_pool_set_upper_only(b.pool, upperOnly)
	b.activations = a
}

// Name is "cpu", the level, the number of threads, and the precision if it is Bits8.
func (b *Backend) Name() string {
	activations := ""
	if b.activations == Bits8 {
		activations = ", 8-bit activations"
	}
	return fmt.Sprintf("cpu (%s, %s%s)", b.level, units.Count(b.Threads(), "thread"), activations)
}

// Threads is the number of threads that compute, including the caller's.
func (b *Backend) Threads() int {
	if b.pool == nil {
		return 0
	}
	return int(C.rm_pool_size(b.pool))
}

// Level is the instruction level in use.
func (b *Backend) Level() Level { return b.level }

// Alloc returns n bytes of zeroed memory outside Go's heap, aligned to 64. A large
// allocation is a mapping of its own, so that untouched pages cost nothing and Free
// returns it to the system.
func (b *Backend) Alloc(n int) ([]byte, error) {
	if b.pool == nil {
		return nil, errClosed
	}
	return b.allocs.Alloc("cpu", n, func() (mem []byte, none struct{}, err error) {
		p := C.rm_alloc(C.size_t(n))
		if p == nil {
			return nil, none, fmt.Errorf("the system cannot allocate %d bytes", n)
		}
		return unsafe.Slice((*byte)(p), n), none, nil
	})
}

// WorkingBytes is the size of the buffers that ops have needed so far. They stay
// allocated; see Working.
func (b *Backend) WorkingBytes() int64 {
	if b.pool == nil {
		return 0
	}
	return int64(C.rm_pool_bytes(b.pool))
}

// Free frees what Alloc returned; mem must be that whole slice.
func (b *Backend) Free(mem []byte) {
	b.allocs.Free(mem, release)
}

func release(x contract.Allocation[struct{}]) {
	C.rm_free(unsafe.Pointer(unsafe.SliceData(x.Memory)), C.size_t(len(x.Memory)))
}

// Map does nothing, because the processor can read any mapping.
func (b *Backend) Map([]byte) error {
	if b.pool == nil {
		return errClosed
	}
	return nil
}

// CanCompute reports whether matrices of the type can be multiplied.
func (b *Backend) CanCompute(t gguf.Type) bool {
	return t.Known() && C.rm_can_compute(C.int32_t(t)) != 0
}

// Submit does nothing, because every op has already run.
func (b *Backend) Submit() {}

// Flush reports the first failure of an op. Every op has already run.
func (b *Backend) Flush() error { return b.err }

// Close stops and joins the threads and frees all memory from Alloc. Slices
// from Alloc must not be used afterwards. A second Close does nothing.
func (b *Backend) Close() error {
	if b.pool == nil {
		return nil
	}
	C.rm_pool_free(b.pool)
	b.pool = nil
	for _, x := range b.allocs.All {
		release(x)
	}
	b.allocs.All = nil
	if b.err == nil {
		b.err = errClosed
	}
	return nil
}

var errClosed = errors.New("the backend is closed")

// slice is how long ops may follow one another before the goroutine yields. The scheduler's
// time slice is 10 ms, and an op over one token takes up to some milliseconds.
const slice = 5 * time.Millisecond

// begin panics when op is called on a closed backend. It yields once in a slice, because a
// goroutine that exceeds its time slice loses its processor (P) during a cgo call. Go's
// monitor thread then sleeps 20 us at a time, which preempts computing threads thousands of
// times a second; otherwise it sleeps 10 ms.
func (b *Backend) begin(op string) {
	if b.pool == nil {
		contract.Fail(op, "the backend is closed")
	}
	if time.Since(b.yielded) > slice {
		runtime.Gosched()
		b.yielded = time.Now()
	}
}

// check begins an op that has passed the checks and returns its name.
func (b *Backend) check(c contract.Call) string {
	b.begin(c.Op)
	return c.Op
}

// done records the result code of op from the C side.
func (b *Backend) done(op string, code C.int) {
	if code != C.RM_OK && b.err == nil {
		b.err = fmt.Errorf("%s: out of memory for working buffers", op)
	}
}

// The addresses of slices, for C. They are nil for an empty slice, because its address
// may not be read.

func f32(x []float32) *C.float   { return (*C.float)(unsafe.Pointer(unsafe.SliceData(x))) }
func i32(x []int32) *C.int32_t   { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(x))) }
func i64(x []int64) *C.int64_t   { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(x))) }
func u16(x []uint16) *C.uint16_t { return (*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(x))) }

// cWeight converts w for C. w has passed contract.Weight.
func cWeight(w kernels.Weight) C.rm_weight {
	var scales *C.float
	if len(w.Scales) > 0 {
		scales = f32(w.Scales)
	}
	return C.rm_weight{
		data:        (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(w.Data))),
		cols:        C.int64_t(w.Cols),
		rows:        C.int64_t(w.Rows),
		row_bytes:   C.int64_t(w.Stride()),
		slice_bytes: C.int64_t(w.SliceBytes),
		slices:      C.int64_t(w.Slices),
		scales:      scales,
		scale_step:  C.int64_t(w.ScaleStep()),
		_type:       C.int32_t(w.Type),
	}
}
