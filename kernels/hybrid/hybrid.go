// Package hybrid is a kernels.Backend of two: a GPU computes, and the CPU computes the
// routed experts from the mapped file, so that a card needs memory for the dense part of a
// model alone.
//
//	b := hybrid.New(gpu, cpu) // Close closes both
//
// The ops of routed experts run on the CPU: ExpertMask, ExpertCompact, ExpertGateUp,
// ExpertDown, and SumSlots, SumExact and ToFloat16 of what these wrote. All others run on the
// GPU. Memory is the GPU's, which the host can reach.
//
// # Order
//
// An op of the CPU waits in a queue, so that the GPU gets the ops that follow and do not need
// it, such as those of the shared expert. Submit, Flush and the first op of the GPU that
// needs a queued one, or writes what it reads, run the queue. In a layer alone the host waits
// for the GPU once, before the experts, and the GPU waits for the host once, after them.
package hybrid

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Backend is the backend of two. Create it with New.
type Backend struct {
	*contract.Each // hands the GPU's ops to onGPU
	gpu, cpu       kernels.Backend
	host           *contract.Each // hands the CPU's ops to onCPU

	queue   []queued // ops of the CPU that have not run
	behind  bool     // the first of them needs ops of the GPU that may not have run
	next    extents  // of the op that is being encoded
	running extents  // of the GPU's ops since its last Flush
	results extents  // written by the CPU's ops since the last Flush; nothing of the GPU wrote there

	fast  contract.Allocations[struct{}] // from AllocHost
	input []float32                      // copy of the experts' input, if the host reads the GPU's memory slowly
	waits atomic.Uint64                  // see Waits
	err   error                          // first failure that neither backend reports
}

// queued is an op of the CPU.
type queued struct {
	run     func()
	extents extents
}

var _ kernels.Backend = (*Backend)(nil)

// New returns a backend that computes with both and closes them. The host reads and writes
// the memory of gpu's Alloc.
func New(gpu, cpu kernels.Backend) *Backend {
	b := &Backend{gpu: gpu, cpu: cpu}
	b.Each = contract.NewEach(gpu, b.onGPU)
	b.host = contract.NewEach(cpu, b.onCPU)
	return b
}

// Name names both.
func (b *Backend) Name() string { return b.gpu.Name() + ", experts on " + b.cpu.Name() }

// RowsAgree is set if the rows of both agree.
func (b *Backend) RowsAgree() bool { return kernels.RowsAgree(b.gpu) && kernels.RowsAgree(b.cpu) }

// Packer is nil, because products of both read a row, and they may need different precision.
func (b *Backend) Packer() kernels.Packer { return nil }

// Host says that the experts are the host's.
func (b *Backend) Host() kernels.Host {
	return kernels.Host{SlowReads: kernels.HostOf(b.gpu).SlowReads, Experts: true}
}

// Waits counts how often an op of the CPU waited for the GPU since New: at most twice in a
// layer, once without a group. Any goroutine may call it.
func (b *Backend) Waits() uint64 { return b.waits.Load() }

// AllocHost is the GPU's.
func (b *Backend) AllocHost(n int) ([]byte, error) {
	return b.fast.Alloc(b.Name(), n, func() (mem []byte, none struct{}, err error) {
		mem, err = kernels.AllocHost(b.gpu, n)
		return mem, none, err
	})
}

// Free frees memory of Alloc or AllocHost.
func (b *Backend) Free(mem []byte) {
	b.runQueue() // it may use mem
	if len(mem) == 0 {
		return
	}
	if x, _ := b.fast.Find(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))); x != nil {
		b.fast.Free(mem, func(contract.Allocation[struct{}]) {})
	}
	b.gpu.Free(mem)
}

// Map maps the file on both. The GPU takes only weights that its ops use.
func (b *Backend) Map(mapping []byte) error {
	return errors.Join(b.gpu.Map(mapping), b.cpu.Map(mapping))
}

// CanCompute reports whether both can multiply matrices of the type.
func (b *Backend) CanCompute(t gguf.Type) bool { return b.gpu.CanCompute(t) && b.cpu.CanCompute(t) }

// Prepare lets the GPU prepare for all but the routed experts, which it does not compute.
func (b *Backend) Prepare(u kernels.Uses) error {
	u.Experts = nil
	return kernels.Prepare(b.gpu, u)
}

// Hold lets the GPU hold all but the routed experts, which it does not compute.
func (b *Backend) Hold(used func() ([]kernels.Span, error)) error {
	return kernels.Hold(b.gpu, func() ([]kernels.Span, error) {
		spans, err := used()
		return slices.DeleteFunc(spans, func(s kernels.Span) bool { return s.Experts }), err
	})
}

// DeviceTime is the GPU's.
func (b *Backend) DeviceTime() (time.Duration, bool) { return kernels.DeviceTime(b.gpu) }

// Submit starts the GPU's ops and runs those of the CPU, which may need some of the GPU's
// before.
func (b *Backend) Submit() {
	if len(b.queue) == 0 {
		b.gpu.Submit()
	}
	b.runQueue()
}

// Flush waits until all ops have run, and reports the first failure of either backend.
func (b *Backend) Flush() error { return b.flush(b.gpu.Flush) }

// Reach is Flush; a failure of the GPU may be reported by the next one.
func (b *Backend) Reach() error { return b.flush(func() error { return kernels.Reach(b.gpu) }) }

func (b *Backend) flush(gpu func() error) error {
	b.runQueue()
	b.running, b.results = b.running[:0], b.results[:0]
	return errors.Join(b.err, gpu(), b.cpu.Flush())
}

// Close closes both, without running what is queued.
func (b *Backend) Close() error {
	b.queue = nil
	return errors.Join(b.gpu.Close(), b.cpu.Close())
}

// onGPU encodes an op of the GPU, once the queued ops that it depends on have run.
func (b *Backend) onGPU(op *contract.Op, run func()) {
	b.next = b.next[:0].of(op)
	switch {
	case b.conflicts(b.next):
		b.runQueue()
	case b.behind: // the host need not wait for this op
		b.wait()
	}
	b.running = append(b.running, b.next...)
	b.results = b.results.without(b.next)
	run()
}

// onCPU queues an op of the CPU.
func (b *Backend) onCPU(op *contract.Op, run func()) {
	x := extents(nil).of(op)
	if b.running.conflict(x) {
		if !b.behind { // the queued ops need not wait
			b.runQueue()
		}
		b.behind = true
	}
	b.queue = append(b.queue, queued{run, x})
	b.results = b.results.without(x)
	for _, e := range x {
		if e.written {
			b.results = append(b.results, e)
		}
	}
}

// conflicts reports whether an op with the extents x must not run before the queue.
func (b *Backend) conflicts(x extents) bool {
	for i := range b.queue {
		if b.queue[i].extents.conflict(x) {
			return true
		}
	}
	return false
}

// wait waits for the GPU's ops.
func (b *Backend) wait() {
	b.waits.Add(1)
	b.note(kernels.Reach(b.gpu))
	b.running, b.behind = b.running[:0], false
}

// runQueue runs the queued ops, while the GPU runs those that they do not need.
func (b *Backend) runQueue() {
	if len(b.queue) == 0 {
		return
	}
	if b.behind {
		b.wait()
	} else {
		b.gpu.Submit()
	}
	for i := range b.queue {
		if b.err == nil { // of a GPU that has failed nothing can be computed
			b.queue[i].run()
		}
	}
	clear(b.queue)
	b.queue = b.queue[:0]
}

func (b *Backend) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

// ExpertMask runs on the CPU.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	b.host.ExpertMask(weights, ids, n, start, end)
}

// ExpertCompact runs on the CPU.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	b.host.ExpertCompact(out, ids, rows, used, experts, start, end)
}

// ExpertGateUp runs on the CPU.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	b.host.ExpertGateUp(mid, b.readable(x, a.Rows*gate.Cols), gate, up, clamp, a)
}

// ExpertDown runs on the CPU.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	b.host.ExpertDown(out, mid, down, a)
}

// SumSlots runs where its slots were computed.
func (b *Backend) SumSlots(out, slots []float32, rows, used, cols int) {
	if b.computed(slots) {
		b.host.SumSlots(out, slots, rows, used, cols)
	} else {
		b.Each.SumSlots(out, slots, rows, used, cols)
	}
}

// SumExact runs where its terms were computed.
func (b *Backend) SumExact(sums []int64, terms []float32, rows, count, cols int, add bool) {
	if b.computed(terms) {
		b.host.SumExact(sums, terms, rows, count, cols, add)
	} else {
		b.Each.SumExact(sums, terms, rows, count, cols, add)
	}
}

// ToFloat16 runs where its input was computed.
func (b *Backend) ToFloat16(out []uint16, x []float32, n int) {
	if b.computed(x) {
		b.host.ToFloat16(out, x, n)
	} else {
		b.Each.ToFloat16(out, x, n)
	}
}

// computed reports whether the CPU has computed x since the last Flush.
func (b *Backend) computed(x []float32) bool {
	return len(x) > 0 && b.results.at(uintptr(unsafe.Pointer(unsafe.SliceData(x))))
}

// readable returns n elements of x, an input of the CPU, in memory that the host reads fast.
// If it is not there, the GPU copies it.
func (b *Backend) readable(x []float32, n int) []float32 {
	if n <= 0 || n > len(x) || !kernels.HostOf(b.gpu).SlowReads {
		return x
	}
	if home, _ := b.fast.Find(uintptr(unsafe.Pointer(unsafe.SliceData(x)))); home != nil {
		return x
	}
	if len(b.input) < n {
		if len(b.input) > 0 {
			call := contract.Clear(b.input, len(b.input))
			if b.conflicts(extents(nil).call(&call)) { // the queue reads the last copy
				b.runQueue()
			}
		}
		kernels.Release(b.gpu, b.input)
		var err error
		if b.input, err = kernels.MakeHost[float32](b.gpu, n); err != nil {
			b.note(err)
			b.input = nil
			return x
		}
	}
	call := contract.CopyColumns(b.input, x, 1, n, n, n)
	copied := extents(nil).call(&call)
	if b.conflicts(copied) {
		b.runQueue()
	}
	b.gpu.CopyColumns(b.input, x, 1, n, n, n) // not onGPU, because queued ops may wait for it too
	b.running = append(b.running, copied...)
	return b.input
}
