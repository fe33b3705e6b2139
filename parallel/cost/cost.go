// Package cost says how long a step will take on a group, before it has run: from
// what each rank computes and exchanges in it (a Trace), and from lines that were
// fitted to measurements of this backend and this group. It measures nothing itself
// and imports nothing of the program.
package cost

import "math"

// Op is one call of an op of a backend.
type Op struct {
	// Kind tells apart what has lines of its own: the op, and the types of its
	// weights.
	Kind string `json:"kind"`
	// Bytes is what has to be read and written, each byte once, and Work the
	// multiplications of a product with weights, or what else grows with rows.
	Bytes float64 `json:"bytes"`
	Work  float64 `json:"work"`
	// Chosen, of the two products of routed experts, says what Bytes and Work
	// depend on, which are zero then.
	Chosen *Chosen `json:"chosen,omitempty"`
}

// Chosen is the routed experts of a layer on one rank. Which of them a token chooses is
// not known beforehand.
type Chosen struct {
	Rows, Used int     // tokens, and experts of each
	Of         int     // experts of the layer
	Start, End int     // of them the rank's own
	Bytes      float64 // of the matrices of one expert that the op reads
	Work       float64 // of one token in one expert
}

// Route is the kind of the op in which rows choose their experts: what follows it
// depends on another choice than what came before.
const Route = "Route"

// Exchange is one collective of a step.
type Exchange struct {
	Kind  string // of the collective
	Bytes int    // of its result on a rank
	// Root is the rank that alone waits for the others, -1 if all do.
	Root int
}

// Event is one thing that a rank does in a step: an op, the start of an exchange, or
// the wait for the one that was started last.
type Event struct {
	Op    *Op
	Start *Exchange
	// Neither: the wait.
}

// Trace is what one rank does in a step, in order. The traces of all ranks of a group
// have the same exchanges.
type Trace []Event

// Line is the seconds of an op or an exchange, fitted to measurements by Fit:
// Fixed + PerByte*bytes + PerWork*work.
type Line struct {
	Fixed   float64 `json:"fixed"`
	PerByte float64 `json:"per_byte"`
	PerWork float64 `json:"per_work"`
	// Points is how many measurements it was fitted to, and Sizes how many
	// different sizes these had. With no more sizes than coefficients nothing
	// has checked the line.
	Points int `json:"points"`
	Sizes  int `json:"sizes"`
	// Error is the relative error to expect at a size that was not measured, and of
	// one repetition (see Fit).
	Error float64 `json:"error"`
	// Knots, if there are any, are the measured sizes with their times: between them
	// the time is interpolated, and the coefficients say only what is below and above.
	// What moves rows takes another time a byte in every cache.
	Knots []Knot `json:"knots,omitempty"`
	// Many, if not nil, is the line of products with more than From of Work for each
	// byte: those of several rows run other kernels than those of one.
	Many *Line   `json:"many,omitempty"`
	From float64 `json:"from,omitempty"`
}

// Knot is a size that was measured.
type Knot struct {
	Bytes   float64 `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Seconds is the time of an op or exchange of the given size.
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
	case i == 0: // no less than what a byte takes in the least size
		return math.Min(l.Knots[0].Seconds, math.Max(l.Fixed, l.Knots[0].Seconds*bytes/l.Knots[0].Bytes))
	case i == len(l.Knots):
		return l.Knots[i-1].Seconds * bytes / l.Knots[i-1].Bytes
	}
	a, b := l.Knots[i-1], l.Knots[i]
	return a.Seconds + (b.Seconds-a.Seconds)*(bytes-a.Bytes)/(b.Bytes-a.Bytes)
}

// at is Many if that is the line of such a product, else nil.
func (l Line) at(bytes, work float64) *Line {
	if l.Many != nil && work > l.From*bytes {
		return l.Many
	}
	return nil
}

// Checked reports whether there were more sizes than coefficients, so that Error says
// how far to trust the line.
func (l Line) Checked() bool {
	n := 0
	for _, c := range []float64{l.Fixed, l.PerByte, l.PerWork} {
		if c != 0 {
			n++
		}
	}
	return l.Sizes > n
}

// unchecked is the relative error that is assumed of a line that nothing has checked.
const unchecked = 0.25

// trust is the relative error to expect of the line.
func (l Line) trust() float64 {
	if l.Checked() {
		return l.Error
	}
	return math.Max(l.Error, unchecked)
}

// Model is the cost of ops on one rank.
type Model struct {
	Ops map[string]Line `json:"ops"` // by kind
	// Between is the seconds that pass between two ops, beyond their lines. It
	// is negative on a device that overlaps them.
	Between float64 `json:"between"`
	// Spread is the relative standard deviation of whole steps from one repetition to
	// the next: what all ops of a step have in common, such as a busy host.
	Spread float64 `json:"spread,omitempty"`
	// Other is the line of every other kind, nil if nothing is known of those.
	Other *Line `json:"other,omitempty"`
}

// line is the line of a kind of op.
func (m Model) line(kind string) (Line, bool) {
	if l, ok := m.Ops[kind]; ok {
		return l, true
	}
	if m.Other != nil {
		return *m.Other, true
	}
	return Line{}, false
}

// Seconds is what an op whose size is known takes, of a product of routed experts that of
// the experts that were chosen; false if nothing is known of its kind.
func (m Model) Seconds(o Op) (float64, bool) {
	l, ok := m.line(o.Kind)
	if !ok || o.Bytes == 0 && o.Work == 0 {
		return 0, ok
	}
	return math.Max(l.Seconds(o.Bytes, o.Work)+m.Between, 0), true
}

// Links is the cost of exchanges on one group, by their kind.
type Links map[string]Line

// InTwoPhases, behind a kind, names the line of its exchanges in another way, which the
// ranks take where it is shorter. What was measured has no such line: it is of the way
// that was taken.
const InTwoPhases = " in two phases"
