package profile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/profile"
	"ringmaster/kernels/reference"
)

// TestResults: every op reaches the inner backend with its arguments.
func TestResults(t *testing.T) {
	kerneltest.Around(t, func(inner kernels.Backend) kernels.Backend { return profile.Wrap(inner, time.Now) })
}

func TestTable(t *testing.T) {
	var clock time.Time
	now := func() time.Time { // an op takes a millisecond
		clock = clock.Add(time.Millisecond / 2)
		return clock
	}
	b := profile.Wrap(reference.New(), func() time.Time { now(); return now() })
	f32 := func(n int) []float32 { return kerneltest.OnDevice(t, b, make([]float32, n)) }
	data := make([]byte, 2*3*4*2*4) // experts, rows, cols, gate and up, float32
	require.NoError(t, b.Map(data))
	w := kernels.Weight{Name: "blk.7.ffn_gate_exps.weight", Type: gguf.F32, Cols: 4, Rows: 3, Slices: 4, SliceBytes: 48, Data: data}
	one := w
	one.Name, one.Slices = "blk.7.attn_kv.weight", 1
	b.Add(f32(8), f32(8), f32(8), 8)
	b.Reset()
	for range 2 {
		b.MatMul(f32(8), 2, kernels.Product{W: one, Out: f32(6)})
	}
	args := kernels.ExpertArgs{
		Groups: kernels.ExpertGroups{
			Offsets: kerneltest.OnDevice(t, b, []int32{0, 0, 1, 1, 2}), Slots: kerneltest.OnDevice(t, b, []int32{1, 0}),
		},
		Weights: kerneltest.OnDevice(t, b, []float32{0, 0.5}), // slot 0, of expert 3, is not ours
		Rows:    1, Used: 2, Experts: 4, End: 4,
	}
	b.ExpertGateUp(f32(6), f32(4), w, w, 0, args)
	require.NoError(t, b.Flush())

	ops := b.Ops()
	require.Equal(t, []profile.Op{
		{Name: "MatMul attn_kv:F32", Calls: 2, Time: 2 * time.Millisecond, Bytes: 2 * (48 + 4*2*4 + 4*2*3), Weights: 2 * 48},
		{Name: "ExpertGateUp ffn_gate_exps:F32, ffn_gate_exps:F32", Calls: 1, Time: time.Millisecond, Bytes: 2*48 + 4*4 + 4*3, Weights: 2 * 48},
	}, ops)
	var text strings.Builder
	require.NoError(t, profile.Write(&text, ops, 4*time.Millisecond, 2))
	require.Equal(t, []string{
		"calls ms share MB GB/s op",
		"1 1.000 50.0 % 0.00 0.0 MatMul attn_kv:F32",
		"0.5 0.500 25.0 % 0.00 0.0 ExpertGateUp ffn_gate_exps:F32, ffn_gate_exps:F32",
		"0 0.500 25.0 % 0.00 (outside the ops)",
		"1.5 2.000 100.0 % 0.00 0.0 (all)",
	}, lines(text.String()))

	// With a cost model each op has what was expected of it beside it.
	b.Reset()
	for _, expected := range []time.Duration{time.Millisecond, time.Millisecond / 2, 0} {
		b.Expect(expected)
		b.MatMul(f32(8), 2, kernels.Product{W: one, Out: f32(6)})
	}
	b.Add(f32(8), f32(8), f32(8), 8) // nothing is expected of it
	text.Reset()
	require.NoError(t, profile.Write(&text, b.Ops(), 5*time.Millisecond, 1))
	require.Equal(t, []string{
		"calls ms expected of it share MB GB/s op",
		"3 3.000 1.500 0.50 60.0 % 0.00 0.0 MatMul attn_kv:F32",
		"1 1.000 20.0 % 0.00 0.0 Add",
		"0 1.000 20.0 % 0.00 (outside the ops)",
		"4 5.000 1.500 0.38 100.0 % 0.00 0.0 (all)",
	}, lines(text.String()))
	require.NoError(t, b.Close())
}

// TestSum: ops of one name are added, in the order of their times.
func TestSum(t *testing.T) {
	a := []profile.Op{{Name: "x", Calls: 1, Time: 3, Bytes: 10, Weights: 4, Expected: 2}, {Name: "y", Calls: 1, Time: 2}}
	b := []profile.Op{{Name: "z", Calls: 2, Time: 9}, {Name: "y", Calls: 3, Time: 5, Bytes: 1}, {Name: "x", Calls: 1, Time: 1, Bytes: 10, Weights: 4, Expected: 5}}
	require.Equal(t, []profile.Op{
		{Name: "z", Calls: 2, Time: 9},
		{Name: "y", Calls: 4, Time: 7, Bytes: 1},
		{Name: "x", Calls: 2, Time: 4, Bytes: 20, Weights: 8, Expected: 7},
	}, profile.Sum(a, b))
	require.Equal(t, b, profile.Sum(nil, b))
	require.EqualValues(t, 2, a[1].Time, "the ops that are added stay as they were")
}

// TestSwitch: ops are counted while it is on, and run all the time.
func TestSwitch(t *testing.T) {
	s := profile.NewSwitch(noAgreement{reference.New()}, time.Now)
	x, one := kerneltest.OnDevice(t, s, make([]float32, 2)), kerneltest.OnDevice(t, s, []float32{1, 2})
	for i, on := range []bool{false, true, true, false} {
		s.Measure(on)
		s.Add(x, x, one, 2)
		require.NoError(t, s.Flush())
		require.Equal(t, []float32{float32(i + 1), float32(2 * (i + 1))}, x)
	}
	ops := s.Profile.Ops()
	require.Len(t, ops, 1)
	require.Equal(t, 2, ops[0].Calls)
	require.False(t, kernels.RowsAgree(s))
	require.True(t, kernels.RowsAgree(profile.NewSwitch(reference.New(), time.Now)))
	require.Equal(t, reference.New().Name(), s.Name())
	require.NoError(t, s.Close())
}

// noAgreement is a backend that says of itself that its rows do not agree.
type noAgreement struct{ kernels.Backend }

func (noAgreement) RowsAgree() bool { return false }

// lines are the lines of a table with single blanks.
func lines(s string) []string {
	var out []string
	for _, l := range strings.Split(strings.TrimSpace(s), "\n") {
		out = append(out, strings.Join(strings.Fields(l), " "))
	}
	return out
}

// clocked is a backend with a device of its own clock: each op takes it a quarter of a
// millisecond.
type clocked struct {
	kernels.Backend
	flushes time.Duration
}

func (c *clocked) Flush() error {
	c.flushes++
	return c.Backend.Flush()
}

func (c *clocked) DeviceTime() (time.Duration, bool) { return c.flushes * time.Millisecond / 4, true }

// TestDeviceTime: an op has the time on the device beside the host's, and its rate is that of the
// device's time.
func TestDeviceTime(t *testing.T) {
	var clock time.Time
	b := profile.Wrap(&clocked{Backend: reference.New()}, func() time.Time {
		clock = clock.Add(time.Millisecond)
		return clock
	})
	x := kerneltest.OnDevice(t, b, make([]float32, 25000))
	b.Reset()
	for range 2 {
		b.Add(x[:10000], x[10000:], x[10000:], 10000)
	}
	require.Equal(t, time.Millisecond/2, b.Ops()[0].GPU)
	var text strings.Builder
	require.NoError(t, profile.Write(&text, b.Ops(), 4*time.Millisecond, 2))
	require.Equal(t, []string{
		"calls ms on GPU share MB GB/s op",
		"1 1.000 0.250 50.0 % 0.12 0.5 Add",
		"0 1.000 50.0 % 0.00 (outside the ops)",
		"1 2.000 0.250 100.0 % 0.12 0.5 (all)",
	}, lines(text.String()))
	require.Equal(t, time.Millisecond, profile.Sum(b.Ops(), b.Ops())[0].GPU)
	require.NoError(t, b.Close())
}
