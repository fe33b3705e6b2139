// Package profile is a kernels.Backend that measures another one: for each kind of op how
// often it ran, for how long, and how many bytes it had to move. It flushes after every
// op, so that a time is that of one op on any backend.
//
//	b := profile.Wrap(inner, time.Now)
//	start := time.Now()
//	... // run steps on b
//	err := profile.Write(os.Stdout, b.Ops(), time.Since(start), steps)
package profile

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Op is what the ops of one kind took. Ops with weights are told apart by the names of
// their tensors without the number of the layer.
type Op struct {
	Name  string
	Calls int
	Time  time.Duration
	// GPU is the part of Time in which the device computed, by its own clock; 0 if it does not
	// tell, and on a CPU. The rest is the host's: encoding, committing and waiting.
	GPU time.Duration
	// Bytes are those the op cannot avoid: weights, and rows read and written, each
	// counted once. What lies in a cache already counts too.
	Bytes int64
	// Weights is the part of Bytes that is read of the model's tensors.
	Weights int64
	// Expected is what a cost model gave for the calls, see Expect.
	Expected time.Duration
}

// Backend measures the backend inside. Create it with Wrap.
type Backend struct {
	*contract.Each
	inner kernels.Backend
	now   func() time.Time
	ops   map[string]*Op
	next  time.Duration // expected of the next op
	err   error
}

var _ kernels.Backend = (*Backend)(nil)

// Wrap returns a backend that computes with inner, closes it, and takes times
// from now.
func Wrap(inner kernels.Backend, now func() time.Time) *Backend {
	b := &Backend{inner: inner, now: now, ops: map[string]*Op{}}
	b.Each = contract.NewEach(inner, b.do)
	return b
}

// Reset forgets what was measured.
func (b *Backend) Reset() { clear(b.ops) }

// Expect says what the next op is expected to take, for Op.Expected.
func (b *Backend) Expect(d time.Duration) { b.next = d }

// Ops lists what was measured since the last Reset, the longest time first.
func (b *Backend) Ops() []Op {
	var ops []Op
	for _, o := range b.ops {
		ops = append(ops, *o)
	}
	sortByTime(ops)
	return ops
}

// Sum returns the ops of a and b, those of one name added, the longest time first.
func Sum(a, b []Op) []Op {
	sum := slices.Clone(a)
	for _, o := range b {
		i := slices.IndexFunc(sum, func(s Op) bool { return s.Name == o.Name })
		if i < 0 {
			sum = append(sum, o)
			continue
		}
		s := &sum[i]
		s.Calls, s.Time, s.GPU, s.Bytes = s.Calls+o.Calls, s.Time+o.Time, s.GPU+o.GPU, s.Bytes+o.Bytes
		s.Weights, s.Expected = s.Weights+o.Weights, s.Expected+o.Expected
	}
	sortByTime(sum)
	return sum
}

// sortByTime sorts ops, the longest time first.
func sortByTime(ops []Op) {
	slices.SortFunc(ops, func(x, y Op) int {
		return cmp.Or(cmp.Compare(y.Time, x.Time), cmp.Compare(x.Name, y.Name))
	})
}

// Write prints ops of a measurement that took total and did steps steps, as a table of
// what one step took. The last lines are the time outside the ops and the whole. If the device
// told its own time, a column has it, and GB/s are those of this time. If a cost model expected
// something of an op, a column has that time and its part of the measured one; the line of the
// whole has the sum over the ops.
func Write(w io.Writer, ops []Op, total time.Duration, steps int) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	expects := slices.ContainsFunc(ops, func(o Op) bool { return o.Expected > 0 })
	onGPU := slices.ContainsFunc(ops, func(o Op) bool { return o.GPU > 0 })
	head := "calls\tms\t"
	if onGPU {
		head += "on GPU\t"
	}
	if expects {
		head += "expected\tof it\t"
	}
	fmt.Fprintln(t, head+"share\tMB\tGB/s\t op")
	n := float64(steps)
	line := func(calls int, d, gpu, expected, of time.Duration, bytes int64, name string) {
		rate, column, own := "", "", ""
		if d > 0 && bytes > 0 {
			rate = fmt.Sprintf("%.1f", float64(bytes)/1e9/cmp.Or(gpu, d).Seconds())
		}
		switch {
		case gpu > 0:
			own = fmt.Sprintf("%.3f\t", 1e3*gpu.Seconds()/n)
		case onGPU:
			own = "\t"
		}
		switch {
		case !expects:
		case expected > 0 && of > 0:
			column = fmt.Sprintf("%.3f\t%.2f\t", 1e3*expected.Seconds()/n, expected.Seconds()/of.Seconds())
		default:
			column = "\t\t"
		}
		fmt.Fprintf(t, "%.4g\t%.3f\t%s%s%.1f %%\t%.2f\t%s\t %s\n", float64(calls)/n, 1e3*d.Seconds()/n, own, column,
			100*d.Seconds()/total.Seconds(), float64(bytes)/1e6/n, rate, name)
	}
	var sum Op
	for _, o := range ops {
		line(o.Calls, o.Time, o.GPU, o.Expected, o.Time, o.Bytes, o.Name)
		sum.Calls, sum.Time, sum.GPU = sum.Calls+o.Calls, sum.Time+o.Time, sum.GPU+o.GPU
		sum.Bytes, sum.Expected = sum.Bytes+o.Bytes, sum.Expected+o.Expected
	}
	line(0, total-sum.Time, 0, 0, 0, 0, "(outside the ops)")
	line(sum.Calls, total, sum.GPU, sum.Expected, sum.Time, sum.Bytes, "(all)")
	return t.Flush()
}

// measure runs op to its end and adds it to the ops of that name. The op reads so many
// bytes of weights and moves so many of rows.
func (b *Backend) measure(name string, weights, rows int, op func()) {
	before, _ := kernels.DeviceTime(b.inner)
	start := b.now()
	op()
	err := b.inner.Flush()
	took := b.now().Sub(start)
	after, _ := kernels.DeviceTime(b.inner)
	if b.err == nil {
		b.err = err
	}
	o := b.ops[name]
	if o == nil {
		o = &Op{Name: name}
		b.ops[name] = o
	}
	o.Calls++
	o.Time += took
	o.GPU += after - before
	o.Expected += b.next
	b.next = 0
	o.Bytes += int64(weights + rows)
	o.Weights += int64(weights)
}

// label is the name of an op with weights.
func label(op string, weights ...kernels.Weight) string {
	for i, w := range weights {
		name := strings.TrimSuffix(w.Name, ".weight")
		if rest, ok := strings.CutPrefix(name, "blk."); ok {
			if _, after, ok := strings.Cut(rest, "."); ok {
				name = after
			}
		}
		sep := ", "
		if i == 0 {
			sep = " "
		}
		op += sep + name + ":" + w.Type.String()
	}
	return op
}

// Name is "profiled" and the name of the inner backend.
func (b *Backend) Name() string { return "profiled " + b.inner.Name() }

// Submit does nothing, because all ops have run.
func (b *Backend) Submit() {}

// Flush reports the first failure of an op. All have run.
func (b *Backend) Flush() error {
	if b.err == nil {
		b.err = b.inner.Flush()
	}
	return b.err
}
