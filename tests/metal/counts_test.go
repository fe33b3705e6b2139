//go:build cgo && (linux || darwin)

package metal_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/gpu/counting"
	"ringmaster/metal"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/tests/whole"
)

// TestCounts counts what steps of V4 Flash, with routed experts of 2 bits, ask of the GPU of a
// Mac: from the real lists of dispatches at the real widths, on a device that runs nothing. A
// count that grows fails. After an improvement lower the limits to what is printed.
func TestCounts(t *testing.T) {
	f := whole.Preset(t, "flash", twoBits)
	for _, c := range []struct {
		name   string
		ranks  int
		how    parallel.Share
		reduce parallel.Reduce
		at, n  int // the position of the step, and its tokens
		most   gpu.Counts
		views  int // buffers of weights of a rank
	}{
		{"one rank decode 4096", 1, 0, parallel.Sum, 4096, 1, gpu.Counts{Dispatches: 777, Stages: 650, Light: 304, Buffers: 6, Waits: 1}, 5},
		{"two ranks experts", 2, parallel.ShareExperts, parallel.Sum, 4096, 1, gpu.Counts{Dispatches: 949, Stages: 865, Light: 473, Buffers: 88, Waits: 44}, 135},
		{"two ranks all", 2, parallel.ShareAll, parallel.Sum, 4096, 1, gpu.Counts{Dispatches: 949, Stages: 822, Light: 476, Buffers: 88, Waits: 87}, 309},
		{"two ranks all exact", 2, parallel.ShareAll, parallel.Exact, 4096, 1, gpu.Counts{Dispatches: 992, Stages: 865, Light: 519, Buffers: 88, Waits: 87}, 309},
		{"one rank prefill 2048", 1, 0, parallel.Sum, 2048, 2048, gpu.Counts{Dispatches: 1799, Stages: 1315, Light: 583, Buffers: 771, Waits: 1}, 5},
	} {
		o := decoder.OpenOptions{MaxTokens: 2048, Context: 8192, Reduce: c.reduce}
		backends, models := make([]*counting.Backend, c.ranks), make([]decoder.Decoder, c.ranks)
		for r := range c.ranks {
			b, err := counting.Open(metal.Numbers())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			backends[r], models[r] = b, whole.Open(t, f, b, o)
			for at := 0; at < c.at; at += o.MaxTokens { // alone, without exchanges
				require.NoError(t, stepOf(models[r], at, o.MaxTokens))
			}
		}
		if c.ranks > 1 {
			plan, err := arch.Plan(f, o, 1)
			require.NoError(t, err)
			placement, err := plan.Place(c.how, []float64{1, 1})
			require.NoError(t, err)
			for r, g := range memory.Groups(c.ranks) {
				require.NoError(t, models[r].Join(g, placement))
			}
		}
		for _, m := range models {
			require.NoError(t, m.HoldWeights())
		}
		before := backends[0].Counts()
		errs := make([]error, c.ranks)
		var all sync.WaitGroup
		for r := range c.ranks {
			all.Go(func() { errs[r] = stepOf(models[r], c.at, c.n) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		got := backends[0].Counts().Minus(before)
		fmt.Printf("counts: %s: %v\n", c.name, got)
		for r, b := range backends {
			held, own := b.WeightBuffers()
			t.Logf("%s, rank %d: %d buffers of weights", c.name, r, held)
			require.LessOrEqual(t, held, c.views, "%s, rank %d: buffers of weights", c.name, r)
			require.Zero(t, own, "%s, rank %d: weights that HoldWeights has not named", c.name, r)
		}
		t.Logf("%s, dispatches by kernel:%s", c.name, byKernel(got.Of))
		for what, pair := range map[string][2]int{
			"dispatches": {got.Dispatches, c.most.Dispatches}, "stages": {got.Stages, c.most.Stages}, "light stages": {got.Light, c.most.Light},
			"command buffers": {got.Buffers, c.most.Buffers}, "waits": {got.Waits, c.most.Waits},
		} {
			if pair[0] > pair[1] {
				t.Errorf("%s: %d %s, at most %d before", c.name, pair[0], what, pair[1])
			}
		}
	}
}

// stepOf runs a step of n tokens of sequence 1 and commits it.
func stepOf(m decoder.Decoder, at, n int) error { return helpedStep(m, at, n, nil) }

// helpedStep is stepOf with model.Step.Help.
func helpedStep(m decoder.Decoder, at, n int, help []int) error {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(at+i)%1000 + 5
	}
	s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids, Want: model.WantLast}}, Help: help}
	_, err := m.Forward(context.Background(), s)
	if err == nil {
		m.Commit(s)
	}
	return err
}

// byKernel lists the kernels, the most frequent first.
func byKernel(of map[string]int) string {
	var text strings.Builder
	for _, kernel := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], strings.Compare(a, b)) }) {
		fmt.Fprintf(&text, " %s %d,", kernel, of[kernel])
	}
	return strings.TrimSuffix(text.String(), ",")
}
