package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/record"
	"ringmaster/kernels/reference"
	"ringmaster/parallel/cost"
)

// TestResults: every op reaches the inner backend with its arguments, shown or not.
func TestResults(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		kerneltest.Around(t, func(inner kernels.Backend) kernels.Backend { return record.Wrap(inner) })
	})
	t.Run("shown", func(t *testing.T) {
		kerneltest.Around(t, func(inner kernels.Backend) kernels.Backend {
			b := record.Wrap(inner)
			b.Show(func(_ cost.Op, run func()) { run() }, true)
			return b
		})
	})
}

// floats allocates n numbers.
func floats(t *testing.T, b kernels.Backend, n int) []float32 {
	return kerneltest.OnDevice(t, b, make([]float32, n))
}

// TestShown: an op is shown with what its time depends on, and has no effect unless it
// is run.
func TestShown(t *testing.T) {
	b := record.Wrap(reference.New())
	defer func() { require.NoError(t, b.Close()) }()
	data := make([]byte, 4*3*8)
	require.NoError(t, b.Map(data))
	w := kernels.Weight{Name: "blk.7.attn_kv.weight", Type: gguf.F32, Cols: 8, Rows: 3, Slices: 1, Data: data}
	half := w.ColumnRange(4, 8)
	x, out := floats(t, b, 2*8), floats(t, b, 2*3)
	out[0] = 5
	var shown []cost.Op
	b.Show(func(op cost.Op, _ func()) { shown = append(shown, op) }, false)
	b.MatMul(x, 2, kernels.Product{W: w, Out: out})
	b.MatMul(x, 1, kernels.Product{W: half, Out: out})
	b.Add(x, x, x, 16)
	require.NoError(t, b.Flush())
	require.Equal(t, []cost.Op{
		{Kind: "MatMul F32", Bytes: 96, Work: 48},
		{Kind: "MatMul F32 columns", Bytes: 48, Work: 12},
		{Kind: "Add", Bytes: 3 * 64},
	}, shown)
	require.Equal(t, float32(5), out[0], "no op has run")
	b.Show(nil, false)
	b.MatMul(x, 2, kernels.Product{W: w, Out: out})
	require.NoError(t, b.Flush())
	require.Zero(t, out[0])
	require.Len(t, shown, 3)
}

// late is a backend that waits for arriving data at its next Flush.
type late struct {
	kernels.Backend
	wait    func() (bool, error)
	reached int
}

func (l *late) Await(wait func() (bool, error), use func()) error {
	use()
	l.wait = wait
	return nil
}

func (l *late) Reach() error {
	l.reached++
	_, err := l.wait()
	return err
}

// TestAwait: data is awaited as the inner backend does, and at once while ops are shown.
func TestAwait(t *testing.T) {
	inner := &late{Backend: reference.New()}
	b := record.Wrap(inner)
	defer func() { require.NoError(t, b.Close()) }()
	var order []string
	note := func(what string) func() { return func() { order = append(order, what) } }
	wait := func() (bool, error) { note("wait")(); return false, nil }
	require.NoError(t, kernels.Await(b, wait, note("use")))
	require.NoError(t, kernels.Reach(b))
	require.Equal(t, []string{"use", "wait"}, order)
	require.Equal(t, 1, inner.reached)
	b.Show(func(cost.Op, func()) {}, false)
	order = nil
	require.NoError(t, kernels.Await(b, wait, note("use")))
	require.Equal(t, []string{"wait", "use"}, order)
}

// TestExperts: the products of routed experts are shown with the choice, or with what
// it is drawn from.
func TestExperts(t *testing.T) {
	b := record.Wrap(reference.New())
	defer func() { require.NoError(t, b.Close()) }()
	const rows, used, experts, cols, width = 2, 2, 4, 8, 3
	data := make([]byte, experts*width*cols*4)
	require.NoError(t, b.Map(data))
	w := kernels.Weight{Name: "blk.0.ffn_gate_exps.weight", Type: gguf.F32, Cols: cols, Rows: width, Slices: experts, SliceBytes: width * cols * 4, Data: data}
	offsets := kerneltest.OnDevice(t, b, []int32{0, 2, 2, 3, 3}) // two slots of expert 0, one of expert 2
	slots := kerneltest.OnDevice(t, b, []int32{0, 2, 1, 0})
	weights := kerneltest.OnDevice(t, b, []float32{1, 1, 1, 0})
	a := kernels.ExpertArgs{Groups: kernels.ExpertGroups{Offsets: offsets, Slots: slots}, Weights: weights, Rows: rows, Used: used, Experts: experts, End: 3}
	var shown []cost.Op
	for _, chosen := range []bool{true, false} {
		b.Show(func(op cost.Op, _ func()) { shown = append(shown, op) }, chosen)
		b.ExpertGateUp(floats(t, b, rows*used*width), floats(t, b, rows*cols), w, w, 0, a)
	}
	one := float64(2 * width * cols)
	require.Equal(t, []cost.Op{
		{Kind: "ExpertGateUp F32", Bytes: 2 * 4 * one, Work: 3 * one},
		{Kind: "ExpertGateUp F32", Chosen: &cost.Chosen{Rows: rows, Used: used, Of: experts, End: 3, Bytes: 4 * one, Work: one}},
	}, shown)
}
