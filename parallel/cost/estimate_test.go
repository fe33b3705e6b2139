package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel/assign"
)

var (
	// One second for a byte, half a second for a unit of work.
	unit  = Model{Ops: map[string]Line{"mul": {PerByte: 1, PerWork: 0.5, Points: 9, Sizes: 9}, Route: {Points: 9, Sizes: 9}}}
	wires = Links{Message: {Fixed: 2}, "sum": {Fixed: 3, PerByte: 1, Points: 9, Sizes: 9}, "gather": {Fixed: 1, Points: 9, Sizes: 9}}
	wait  = Event{}
)

func mul(bytes float64) Event { return Event{Op: &Op{Kind: "mul", Bytes: bytes}} }

func start(kind string, bytes, root int) Event {
	return Event{Start: &Exchange{Kind: kind, Bytes: bytes, Root: root}}
}

// TestExpect: ranks meet in exchanges, which overlap with the work between start and
// wait; a step begins and ends with a message.
func TestExpect(t *testing.T) {
	for name, test := range map[string]struct {
		traces  []Trace
		seconds float64
		waiting []float64
	}{
		"alone":                 {[]Trace{{mul(5), mul(2)}}, 7, []float64{0}},
		"the slower decides":    {[]Trace{{mul(1), start("sum", 4, -1), wait, mul(1)}, {mul(10), start("sum", 4, -1), wait}}, 2 + 10 + 7 + 2, []float64{18, 7}},
		"hidden by work":        {[]Trace{{mul(5), start("sum", 0, -1), mul(4), wait}, {mul(3), start("sum", 0, -1), mul(1), wait}}, 5 + 3 + 2, []float64{0, 2}},
		"only the root waits":   {[]Trace{{mul(1), start("gather", 0, 0), wait}, {mul(9), start("gather", 0, 0), wait}}, 2 + 9 + 2, []float64{11, 0}},
		"one after the other":   {[]Trace{{start("sum", 0, -1), wait, start("sum", 1, -1), wait}, {start("sum", 0, -1), wait, start("sum", 1, -1), wait}}, 2 + 3 + 4 + 2, []float64{9, 7}},
		"nothing to do at all":  {[]Trace{{}, {}}, 2 + 2, []float64{0, 0}},
		"three ranks, one late": {[]Trace{{start("sum", 0, -1), wait}, {start("sum", 0, -1), wait}, {mul(6), start("sum", 0, -1), wait}}, 2 + 6 + 3 + 2, []float64{11, 9, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			models := make([]Model, len(test.traces))
			for r := range models {
				models[r] = unit
			}
			got, err := Expect(test.traces, models, wires)
			require.NoError(t, err)
			require.InDelta(t, test.seconds, got.Seconds, 1e-9)
			require.InDeltaSlice(t, test.waiting, got.Waiting, 1e-9)
			require.Empty(t, got.Unknown)
		})
	}
}

// TestChosen: with one row the rank with more of the chosen experts decides the
// time; with many rows every rank has its part.
func TestChosen(t *testing.T) {
	layer := func(rows, start_, end int) Trace {
		return Trace{{Op: &Op{Kind: Route}},
			{Op: &Op{Kind: "mul", Chosen: &Chosen{Rows: rows, Used: 6, Of: 64, Start: start_, End: end, Bytes: 1}}},
			start("gather", 0, -1), wait}
	}
	repeat := func(n int, t Trace) (out Trace) {
		for range n {
			out = append(out, t...)
		}
		return out
	}
	links := Links{Message: {}, "gather": {}}
	one, err := Expect([]Trace{repeat(100, layer(1, 0, 64))}, []Model{unit}, links)
	require.NoError(t, err)
	require.InDelta(t, 600, one.Seconds, 1e-9, "6 different experts in each layer")

	two, err := Expect([]Trace{repeat(100, layer(1, 0, 32)), repeat(100, layer(1, 32, 64))}, []Model{unit, unit}, links)
	require.NoError(t, err)
	require.InDelta(t, 389, two.Seconds, 8, "the busiest of two halves of 64 has 3.89 of 6")
	require.InDelta(t, 600, two.Compute[0]+two.Compute[1], 1e-6)

	again, err := Expect([]Trace{repeat(100, layer(1, 0, 32)), repeat(100, layer(1, 32, 64))}, []Model{unit, unit}, links)
	require.NoError(t, err)
	require.Equal(t, two, again, "an estimate is a function of its arguments")

	many, err := Expect([]Trace{layer(512, 0, 16), layer(512, 16, 64)}, []Model{unit, unit}, links)
	require.NoError(t, err)
	require.InDelta(t, 48, many.Seconds, 1e-6)
	require.InDelta(t, 32, many.Waiting[0], 1e-6)
	require.InDelta(t, 48.0/32, many.Imbalance, 1e-9, "the ranks read 16 and 48 experts")
}

// TestImbalance: what the busiest rank of a layer reads of the chosen experts over the mean
// is what others computed (docs/distributed-benchmark.md, the bound): 3.93 of 6 for two
// halves of 256, and almost exactly the mean for a chunk.
func TestImbalance(t *testing.T) {
	layers := func(rows, ranks, n int) (all []Trace) {
		for r := range ranks {
			var trace Trace
			for range n {
				c := &Chosen{Rows: rows, Used: 6, Of: 256, Start: r * 256 / ranks, End: (r + 1) * 256 / ranks, Bytes: 7}
				trace = append(trace, Event{Op: &Op{Kind: Route}}, Event{Op: &Op{Kind: "mul", Chosen: c}}, start("gather", 0, -1), wait)
			}
			all = append(all, trace)
		}
		return all
	}
	for _, c := range []struct {
		rows, ranks   int
		want, allowed float64
	}{
		{1, 1, 1, 1e-12},
		{1, 2, 3.93 / 3, 0.02}, {1, 4, 2.80 / 1.5, 0.03}, {1, 8, 2.16 / 0.75, 0.05},
		{512, 2, 1, 0.01},
	} {
		e, err := Expect(layers(c.rows, c.ranks, 100), slices.Repeat([]Model{unit}, c.ranks), Links{Message: {}, "gather": {}})
		require.NoError(t, err)
		require.InDelta(t, c.want, e.Imbalance, c.allowed, "%d rows, %d ranks", c.rows, c.ranks)
	}
	e, err := Expect([]Trace{{mul(1)}}, []Model{unit}, nil)
	require.NoError(t, err)
	require.InDelta(t, 1, e.Imbalance, 1e-12, "no experts")
}

// TestWait: a rank's results are seen late before each exchange and at the end of a step; the
// ops that overlap with an exchange do not wait.
func TestWait(t *testing.T) {
	late := unit
	late.Wait = 10
	links := Links{Message: {}, "sum": {Fixed: 3}}
	trace := Trace{mul(5), start("sum", 0, -1), mul(4), wait, mul(1)}
	e, err := Expect([]Trace{trace, trace}, []Model{late, unit}, links)
	require.NoError(t, err)
	require.InDelta(t, 5+10+3+1+10, e.Seconds, 1e-9)
	require.InDeltaSlice(t, []float64{10 + 3 - 4, 10 + 3 - 4}, e.Waiting, 1e-9)
	e, err = Expect([]Trace{{mul(5), mul(2)}}, []Model{late}, nil)
	require.NoError(t, err)
	require.InDelta(t, 7+10, e.Seconds, 1e-9, "one rank waits once")
}

// TestCopies: with all experts on both ranks, each computes half of the chosen ones, and a
// rank of twice the speed two thirds of the work.
func TestCopies(t *testing.T) {
	all := assign.Set(slices.Repeat([]byte{0xff}, 8))
	layer := func(rank, rows int, by *assign.Assigner) Trace {
		out := Trace{}
		for range 100 {
			out = append(out, Event{Op: &Op{Kind: Route}}, Event{Op: &Op{Kind: "mul", Chosen: &Chosen{Rows: rows, Used: 6, Of: 64, End: 64, Bytes: 1,
				Rule: &assign.Rule{By: by, How: assign.Together}, Rank: rank}}}, start("gather", 0, -1), wait)
		}
		return out
	}
	of := func(rows int, speeds ...int) Estimate {
		ranks := []assign.Rank{{Own: [2]int{0, 32}, Copies: []assign.Set{all}, Speed: speeds[0]}, {Own: [2]int{32, 64}, Copies: []assign.Set{all}, Speed: speeds[1]}}
		e, err := Expect([]Trace{layer(0, rows, assign.New(64, ranks)), layer(1, rows, assign.New(64, ranks))}, []Model{unit, unit}, Links{Message: {}, "gather": {}})
		require.NoError(t, err)
		return e
	}
	require.InDelta(t, 300, of(1, 1, 1).Seconds, 1e-9)
	require.Equal(t, []float64{0, 0}, of(1, 1, 1).Waiting)
	require.InDelta(t, 400, of(1, 2, 1).Compute[0], 1e-6)
	require.InDelta(t, 3200, of(512, 1, 1).Seconds, 200, "a chunk reads all experts once, on either rank")
}

// TestError: the estimate lists unknown kinds.
func TestError(t *testing.T) {
	noisy := Model{Ops: map[string]Line{"mul": {PerByte: 1, Points: 5, Sizes: 5, Error: 0.1}, "once": {PerByte: 1, Points: 1, Sizes: 1}}}
	e, err := Expect([]Trace{{mul(1), mul(1)}}, []Model{noisy}, nil)
	require.NoError(t, err)
	require.InDelta(t, 0.1, e.Error, 1e-9, "the same line twice errs the same way")
	e, err = Expect([]Trace{{{Op: &Op{Kind: "once", Bytes: 1}}}}, []Model{noisy}, nil)
	require.NoError(t, err)
	require.InDelta(t, unchecked, e.Error, 1e-9)
	e, err = Expect([]Trace{{mul(1), {Op: &Op{Kind: "new"}}}}, []Model{noisy}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, e.Unknown)
	require.InDelta(t, 1, e.Error, 1e-9)
	noisy.Other = &Line{PerByte: 2}
	e, err = Expect([]Trace{{{Op: &Op{Kind: "new", Bytes: 3}}}}, []Model{noisy}, nil)
	require.NoError(t, err)
	require.Empty(t, e.Unknown)
	require.InDelta(t, 6, e.Seconds, 1e-9)

	_, err = Expect([]Trace{{start("sum", 1, -1), wait}, {start("sum", 2, -1), wait}}, []Model{unit, unit}, wires)
	require.ErrorContains(t, err, "rank 1 has different exchanges")
	_, err = Expect([]Trace{{}}, nil, wires)
	require.ErrorContains(t, err, "1 traces and 0 models")
}

// TestNoise: ops take longer than their lines by the excess; with jitter ranks wait for each
// other at exchanges, and one rank takes as long as without.
func TestNoise(t *testing.T) {
	var step Trace
	for range 400 {
		step = append(step, mul(1), start("sum", 0, -1), wait)
	}
	links := Links{Message: {}, "sum": {}}
	noisy := unit
	noisy.Short, noisy.Long.Excess = Noise{1, 0}, 0.1 // each op takes a second
	e, err := Expect([]Trace{step, step}, []Model{noisy, noisy}, links)
	require.NoError(t, err)
	require.InDelta(t, 440, e.Seconds, 1e-9)
	require.InDeltaSlice(t, []float64{0, 0}, e.Waiting, 1e-9)

	noisy.Long.Jitter = 0.3
	e, err = Expect([]Trace{step, step}, []Model{noisy, noisy}, links)
	require.NoError(t, err)
	// The greater of two uniform deviations is on average a third of their range above the
	// mean, here sqrt(3)*0.3/3.
	require.InDelta(t, 440+400*0.3/math.Sqrt(3), e.Seconds, 3)
	require.InDelta(t, 440, e.Compute[0], 3)
	require.InDelta(t, 400*0.3/math.Sqrt(3), e.Waiting[1], 3)
	alone, err := Expect([]Trace{step}, []Model{noisy}, links)
	require.NoError(t, err)
	require.InDelta(t, 440, alone.Seconds, 3)
	short, err := Expect([]Trace{{mul(LongOp / 2)}}, []Model{{Other: &Line{PerByte: 1}, Short: Noise{Excess: 1}}}, nil)
	require.NoError(t, err)
	require.InDelta(t, LongOp, short.Seconds, 1e-12)
}
