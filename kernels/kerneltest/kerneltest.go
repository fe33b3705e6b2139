// Package kerneltest holds one table of cases for every op and runs any
// kernels.Backend through it. It compares results with package reference within
// stated tolerances, and rows in chunks of any size with all rows at once bit
// for bit (or, if the backend's rows do not agree, with the reference). Memory
// that an op must not read is filled with NaN, and memory that it must not
// write is checked afterwards.
package kerneltest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/reference"
)

// Open creates a backend. The tests close it.
type Open func(t testing.TB) kernels.Backend

// opCase is one op, or a few that belong together, on one set of inputs.
type opCase struct {
	op, name string
	rows     int
	// chunks are the numbers of rows per call for which the results are
	// compared bit for bit with all rows at once. nil means 1, 2 and 3.
	chunks []int
	// repeatable ops are called twice for each chunk: running a step twice has
	// the same effect as running it once.
	repeatable bool
	// setup allocates inputs and outputs for all rows, registers the outputs
	// and returns the function that encodes the rows [from, to). No call has
	// more rows than chunk, which determines the size of rings.
	setup func(m *mem, chunk int) func(from, to int)
}

// tables holds all cases by op.
func tables() []opCase {
	var all []opCase
	for _, table := range [][]opCase{
		denseCases(), elementCases(), streamCases(), cacheCases(), attendCases(), indexCases(), expertCases(), matmulCases(),
	} {
		all = append(all, table...)
	}
	return all
}

// Slow is a backend on a device in software, which is slow: Run takes fewer chunks.
type Slow interface {
	kernels.Backend
	Slow()
}

// references are the results of package reference by the name of the case, computed once
// for all backends of a process.
var references sync.Map

// want returns what package reference computes, always from the same random numbers.
func (c *opCase) want(t *testing.T) []output {
	t.Helper()
	name := c.op + "/" + c.name
	if kept, ok := references.Load(name); ok {
		return kept.([]output)
	}
	want := c.run(t, func(testing.TB) kernels.Backend { return reference.New() }, c.rows)
	references.Store(name, want)
	return want
}

// chunksFor returns the numbers of rows per call for a backend.
func (c *opCase) chunksFor(slow bool) []int {
	switch {
	case c.chunks == nil && !slow:
		return []int{1, 2, 3}
	case c.chunks == nil:
		return []int{1, 3}
	case slow && slices.Equal(c.chunks, oddChunks) && !testenv.At(testenv.Exhaustive):
		return []int{1, 5, 129} // a row alone, across a block, across the window
	default:
		return c.chunks
	}
}

// Run runs the backend through the cases of the named ops, or of all ops.
func Run(t *testing.T, open Open, ops ...string) {
	b := open(t)
	rowsAgree := kernels.RowsAgree(b)
	_, slow := b.(Slow)
	require.NoError(t, b.Close())
	for _, c := range tables() {
		if !chosen(c.op, ops) {
			continue
		}
		t.Run(c.op+"/"+c.name, func(t *testing.T) {
			want := c.want(t)
			got := c.run(t, open, c.rows)
			compare(t, want, got)
			for _, n := range c.chunksFor(slow || !rowsAgree) {
				switch {
				case n >= c.rows:
				case rowsAgree:
					requireSame(t, fmt.Sprintf("in chunks of %d rows", n), got, c.run(t, open, n))
				default:
					compare(t, want, c.run(t, open, n))
				}
			}
		})
	}
	if len(ops) == 0 {
		t.Run("Misuse", func(t *testing.T) { misuse(t, open) })
	}
}

// Same requires that two backends give the same bits in every case of the named
// ops, or of all ops: for one backend with different numbers of threads.
func Same(t *testing.T, one, other Open, ops ...string) {
	for _, c := range tables() {
		if chosen(c.op, ops) {
			t.Run(c.op+"/"+c.name, func(t *testing.T) {
				requireSame(t, "on the other backend", c.run(t, one, c.rows), c.run(t, other, c.rows))
			})
		}
	}
}

func chosen(op string, ops []string) bool {
	for _, o := range ops {
		if o == op {
			return true
		}
	}
	return len(ops) == 0
}

// run computes all rows in chunks and returns copies of the outputs.
func (c *opCase) run(t *testing.T, open Open, chunk int) []output {
	t.Helper()
	m := newMem(t, open(t), c.op+"/"+c.name)
	defer m.close()
	encode := c.setup(m, max(chunk, 1))
	for from := 0; from < c.rows; from += chunk {
		to := min(from+chunk, c.rows)
		encode(from, to)
		if c.repeatable {
			encode(from, to)
		}
	}
	require.NoError(t, m.b.Flush())
	m.checkGuards()
	return m.results()
}

// tolerance bounds an error: |got-want| <= rel * max(|want|, root mean square
// of the whole output) + the smallest normal float32, below which a device may
// flush numbers to zero. The zero value requires the same bits.
type tolerance struct {
	rel  float64
	rms  float64 // if not 0, bounds the root mean square of the errors, relative to that of the output
	half int     // the output is float16: allow this many units in the last place more
}

// output is what an op wrote.
type output struct {
	name   string
	values []float64
	bits   []uint32
	tol    tolerance
	check  func(t *testing.T, got []float64) // instead of a comparison with want
}

func compare(t *testing.T, want, got []output) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		g := got[i]
		require.Equal(t, w.name, g.name)
		require.Len(t, g.values, len(w.values))
		if w.check != nil {
			w.check(t, g.values)
			continue
		}
		w.compare(t, g)
	}
}

func (w *output) compare(t *testing.T, g output) {
	t.Helper()
	square, errors := 0.0, 0.0
	for i, v := range w.values {
		if !math.IsNaN(v) {
			square += v * v
			errors += (v - g.values[i]) * (v - g.values[i])
		}
	}
	rms := math.Sqrt(square / float64(max(1, len(w.values))))
	for i, v := range w.values {
		if w.bits[i] == g.bits[i] {
			continue
		}
		bound := 0.0
		if w.tol.rel > 0 {
			bound = w.tol.rel*math.Max(math.Abs(v), rms) + 0x1p-126
		}
		if w.tol.half > 0 {
			bound += float64(w.tol.half) * math.Max(math.Abs(v)*0x1p-10, 0x1p-24)
		}
		if d := math.Abs(g.values[i] - v); !(d <= bound) {
			require.Failf(t, "wrong result", "%s[%d] is %v, reference %v, difference %.3g, allowed %.3g (root mean square %.3g)",
				w.name, i, g.values[i], v, d, bound, rms)
		}
	}
	if w.tol.rms > 0 {
		rel := math.Sqrt(errors/float64(len(w.values))) / rms
		require.LessOrEqual(t, rel, w.tol.rms, "%s: root mean square of the errors", w.name)
	}
}

func requireSame(t *testing.T, how string, want, got []output) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		for j, bits := range w.bits {
			if g := got[i].bits[j]; g != bits {
				require.Failf(t, "other bits", "%s[%d] %s is %v (%#x), else %v (%#x)",
					w.name, j, how, got[i].values[j], g, w.values[j], bits)
			}
		}
	}
}

// seeded is a random source that depends on the name alone.
func seeded(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}
