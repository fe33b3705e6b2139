// Package cost predicts how long a step will take on a group. It uses what each rank
// computes and exchanges in the step (a Trace), and lines that were fitted to
// measurements of this backend and this group. It measures nothing itself and imports
// nothing of the program.
//
// FitOp and Fit turn samples into a Line; Models and Links collect lines; Expect
// estimates a step from the traces of all ranks.
package cost

import (
	"maps"
	"math"
	"slices"
	"strings"

	"ringmaster/parallel/assign"
)

// Op is one call of an op of a backend.
type Op struct {
	// Kind names what has its own line: the op and the types of its weights.
	Kind string `json:"kind"`
	// Bytes is what the op must read and write, each byte once. Work is the
	// multiplications of a product with weights, or another number that grows with rows.
	Bytes float64 `json:"bytes"`
	Work  float64 `json:"work"`
	// Chosen is set for the two products of routed experts. It says what Bytes and Work
	// depend on, which are then zero.
	Chosen *Chosen `json:"chosen,omitempty"`
	// OnCPU is set for an op that the CPU runs beside a GPU, which runs the rank's other ops.
	OnCPU bool `json:"on_cpu,omitempty"`
}

// Chosen describes the routed experts of a layer on one rank. It is needed because the
// experts that a token chooses are not known beforehand.
type Chosen struct {
	Rows, Used int     // tokens, and experts of each
	Of         int     // experts of the layer
	Start, End int     // the rank's own experts
	Bytes      float64 // of the matrices of one expert that the op reads
	Work       float64 // of one token in one expert
	// Rule, if given, is how the chosen experts are assigned to ranks, and Rank is this one.
	// Without it a rank computes all of its own.
	Rule *assign.Rule `json:"-"`
	Rank int          `json:"-"`
}

// Mean is what the rank computes in a layer on average, if all experts are equally likely:
// experts that it reads, and rows in all of them.
func (c *Chosen) Mean() (experts, slots float64) {
	if c.Rule == nil {
		own, of := float64(c.End-c.Start), float64(c.Of)
		return own * (1 - math.Pow(1-float64(c.Used)/of, float64(c.Rows))), float64(c.Rows*c.Used) * own / of
	}
	n := max(1, 256/c.Rows)
	layers := make([]int, n)
	for i := range layers {
		layers[i] = i % mostLayers
	}
	e := c.Rule.Expect(assign.Routing{Experts: c.Of, Used: c.Used}, c.Rows, layers)
	return e.Experts[c.Rank], e.Slots[c.Rank]
}

// mostLayers is as many layers as models have.
const mostLayers = 60

// Route is the kind of the op in which rows choose their experts. It separates layers,
// because each has its own choice.
const Route = "Route"

// Exchange is one collective of a step.
type Exchange struct {
	Kind  string // of the collective
	Bytes int    // of its result on a rank
	// Root is the only rank that waits for the others, -1 if all wait.
	Root int
}

// Event is one action of a rank in a step: an op, the start of an exchange, the CPU's wait for
// the GPU, or the wait for the last started exchange.
type Event struct {
	Op    *Op
	Start *Exchange
	Reach bool // the CPU waits until it sees what the GPU computed; only with ops that are OnCPU
	// None of them: the wait.
}

// Trace is what one rank does in a step, in order. The traces of all ranks of a group
// have the same exchanges.
type Trace []Event

// Line is the time of an op or an exchange in seconds, fitted to measurements by Fit:
// Fixed + PerByte*bytes + PerWork*work.
type Line struct {
	Fixed   float64 `json:"fixed"`
	PerByte float64 `json:"per_byte"`
	PerWork float64 `json:"per_work"`
	// Points is how many measurements it was fitted to, and Sizes how many different
	// sizes these had. If there are no more sizes than coefficients, the line is
	// unchecked.
	Points int `json:"points"`
	Sizes  int `json:"sizes"`
	// Error is the relative error to expect at a size that was not measured, and of one
	// repetition (see Fit).
	Error float64 `json:"error"`
	// Knots, if any, are the measured sizes with their times. Between them the time is
	// interpolated, and the coefficients apply only below and above. They are needed
	// because an op that moves rows takes a different time per byte in every cache.
	Knots []Knot `json:"knots,omitempty"`
	// Many, if not nil, is the line of products with more Work per byte than From. It is
	// needed because products of several rows run other kernels than those of one.
	Many *Line   `json:"many,omitempty"`
	From float64 `json:"from,omitempty"`
}

// Knot is a measured size.
type Knot struct {
	Bytes   float64 `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Seconds returns the time of an op or exchange of the given size.
func (l Line) Seconds(bytes, work float64) float64 {
	if part := l.at(bytes, work); part != nil {
		return math.Max(part.Seconds(bytes, work), l.Fixed+l.PerByte*bytes)
	}
	i := 0
	for i < len(l.Knots) && l.Knots[i].Bytes < bytes {
		i++
	}
	switch {
	case len(l.Knots) == 0:
		return l.Fixed + l.PerByte*bytes + l.PerWork*work
	case i == 0: // at least the time per byte of the smallest size
		return math.Min(l.Knots[0].Seconds, math.Max(l.Fixed, l.Knots[0].Seconds*bytes/l.Knots[0].Bytes))
	case i == len(l.Knots):
		return l.Knots[i-1].Seconds * bytes / l.Knots[i-1].Bytes
	}
	a, b := l.Knots[i-1], l.Knots[i]
	return a.Seconds + (b.Seconds-a.Seconds)*(bytes-a.Bytes)/(b.Bytes-a.Bytes)
}

// at returns Many if it is the line of such a product, otherwise nil.
func (l Line) at(bytes, work float64) *Line {
	if l.Many != nil && work > l.From*bytes {
		return l.Many
	}
	return nil
}

// Checked reports whether the line was fitted to more sizes than coefficients, so that
// Error says how far to trust it.
func (l Line) Checked() bool {
	n := 0
	for _, c := range []float64{l.Fixed, l.PerByte, l.PerWork} {
		if c != 0 {
			n++
		}
	}
	return l.Sizes > n
}

// unchecked is the assumed relative error of an unchecked line.
const unchecked = 0.25

// trust returns the relative error to expect of the line.
func (l Line) trust() float64 {
	if l.Checked() {
		return l.Error
	}
	return math.Max(l.Error, unchecked)
}

// product is the op that multiplies by several matrices, of one type or of several.
const product = "MatMul "

// Model is the cost of ops on one rank.
type Model struct {
	Ops map[string]Line `json:"ops"` // by kind
	// Between is the time in seconds between two ops, beyond their lines. It is negative
	// on a device that overlaps them.
	Between float64 `json:"between"`
	// Wait is the time in seconds from the end of ops until the host sees their results, which
	// every exchange, the CPU's part of a layer and the end of a step need. It is nearly zero on
	// a CPU.
	Wait float64 `json:"wait,omitempty"`
	// Short is the noise of ops that take less than LongOp, and Long of the others. They
	// differ because an interruption is a greater part of a short op.
	Short Noise `json:"short"`
	Long  Noise `json:"long"`
	// Spread is the relative standard deviation of whole steps between repetitions. It
	// covers what affects all ops of a step, such as a busy host.
	Spread float64 `json:"spread,omitempty"`
	// Other is the line of every other kind, nil if unknown.
	Other *Line `json:"other,omitempty"`
	// CPU is the line of ops that are OnCPU, nil if they have those of their kinds. It is only
	// supposed, never measured, so no rank sends it.
	CPU *Line `json:"-"`
}

// LongOp is the seconds of an op from which it has the noise of long ones.
const LongOp = 1e-3

// Noise is how runs of an op differ, relative to its median and weighted by time.
type Noise struct {
	Excess float64 `json:"excess,omitempty"` // of the mean; lines go through medians
	Jitter float64 `json:"jitter,omitempty"` // standard deviation of one run: ranks wait for each other's at every exchange
}

// MostJitter is the greatest Noise.Jitter, so that no op takes a negative time.
const MostJitter = 0.5

// Bounds of the other numbers of a Model, so that every time is finite: those that a rank
// has measured are far below.
const (
	mostSeconds = 3600.0 // of an op without its size
	mostPerUnit = 1.0    // seconds
	mostOff     = 10.0   // relative
	mostBytes   = 1 << 60
)

// Bounded returns the model with every number within its bounds. It is for a model that
// another rank has sent.
func (m Model) Bounded() Model {
	ops := make(map[string]Line, len(m.Ops))
	for kind, l := range m.Ops {
		ops[kind] = l.bounded()
	}
	m.Ops = ops
	if m.Other != nil {
		other := m.Other.bounded()
		m.Other = &other
	}
	within(&m.Between, -mostSeconds, mostSeconds)
	within(&m.Wait, 0, mostSeconds)
	within(&m.Spread, 0, mostOff)
	for _, n := range []*Noise{&m.Short, &m.Long} {
		within(&n.Excess, 0, mostOff)
		within(&n.Jitter, 0, MostJitter)
	}
	return m
}

// within moves x into its bounds.
func within(x *float64, least, most float64) { *x = min(max(*x, least), most) }

// bounded is Model.Bounded for a line.
func (l Line) bounded() Line {
	within(&l.Fixed, 0, mostSeconds)
	within(&l.PerByte, 0, mostPerUnit)
	within(&l.PerWork, 0, mostPerUnit)
	within(&l.Error, 0, mostOff)
	within(&l.From, 0, mostBytes)
	l.Knots = slices.Clone(l.Knots)
	for i := range l.Knots {
		within(&l.Knots[i].Bytes, 1, mostBytes)
		within(&l.Knots[i].Seconds, 0, mostSeconds)
	}
	if l.Many != nil {
		many := l.Many.bounded()
		l.Many = &many
	}
	return l
}

// lineOf returns the line of an op.
func (m Model) lineOf(o *Op) (Line, bool) {
	if o.OnCPU && m.CPU != nil {
		return *m.CPU, true
	}
	return m.line(o.Kind)
}

// noise returns the noise of an op of so many seconds.
func (m Model) noise(seconds float64) Noise {
	if seconds < LongOp {
		return m.Short
	}
	return m.Long
}

// line returns the line of a kind of op. A product without one of its own has that of the product
// with the most types in common, because a step of another placement multiplies a row by other
// matrices at once.
func (m Model) line(kind string) (Line, bool) {
	if l, ok := m.Ops[kind]; ok {
		return l, true
	}
	if types, ok := strings.CutPrefix(kind, product); ok {
		best, most := "", 0
		for _, other := range slices.Sorted(maps.Keys(m.Ops)) {
			others, ok := strings.CutPrefix(other, product)
			if !ok {
				continue
			}
			common := 0
			for t := range strings.SplitSeq(types, "+") {
				if slices.Contains(strings.Split(others, "+"), t) {
					common++
				}
			}
			if common > most {
				best, most = other, common
			}
		}
		if most > 0 {
			return m.Ops[best], true
		}
	}
	if m.Other != nil {
		return *m.Other, true
	}
	return Line{}, false
}

// Seconds returns the time of an op of known size; for a product of routed experts that
// is the size of the chosen experts. It returns false if its kind is unknown.
func (m Model) Seconds(o Op) (float64, bool) {
	l, ok := m.lineOf(&o)
	if !ok || o.Bytes == 0 && o.Work == 0 {
		return 0, ok
	}
	return math.Max(l.Seconds(o.Bytes, o.Work)+m.Between, 0), true
}

// Links has the cost of exchanges on one group, by kind.
type Links map[string]Line

// InTwoPhases, behind a kind, names the line of its exchanges by another algorithm, which
// the ranks use where it is faster. Measurements have no such line, because they already
// contain the algorithm that was used.
const InTwoPhases = " in two phases"
