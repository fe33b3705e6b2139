package exact

import (
	"context"
	"fmt"
	"math"
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
)

// routes is a backend that keeps what its router and its indexer choose.
type routes struct {
	kernels.Backend
	all  [][][]int // [layers with experts][tokens][used]
	read [][][]int // [layers with an indexer that chose][tokens][up to top k]
}

// IndexTopK implements kernels.Backend.
func (r *routes) IndexTopK(a kernels.IndexArgs) {
	r.Backend.IndexTopK(a)
	if r.Flush() != nil {
		return // the step reports it
	}
	var read [][]int
	for t := range a.Rows {
		var row []int
		for _, s := range a.Selected[t*a.TopK:][:a.TopK] {
			if s >= 0 {
				row = append(row, int(s))
			}
		}
		read = append(read, row)
	}
	r.read = append(r.read, read)
}

// Route implements kernels.Backend.
func (r *routes) Route(a kernels.RouteArgs) {
	r.Backend.Route(a)
	if r.Flush() != nil {
		return // the step reports it
	}
	var chosen [][]int
	for t := range a.Rows {
		var row []int
		for _, e := range a.IDs[t*a.Used:][:a.Used] {
			row = append(row, int(e))
		}
		slices.Sort(row)
		chosen = append(chosen, row)
	}
	r.all = append(r.all, chosen)
}

// Ours runs token ids as one sequence and one step of our forward pass on the CPU.
// The regrets are left 0.
func Ours(ctx context.Context, f *gguf.File, ids []int) (Run, error) {
	b, err := cpu.New(1)
	if err != nil {
		return Run{}, err
	}
	defer b.Close()
	r := &routes{Backend: b}
	m, err := arch.Open(f, r, decoder.OpenOptions{MaxTokens: len(ids)})
	if err != nil {
		return Run{}, err
	}
	defer m.Close()
	r.all, r.read = nil, nil // of the rehearsal
	tokens := make([]int32, len(ids))
	for i, id := range ids {
		tokens[i] = int32(id)
	}
	rows, err := m.Forward(ctx, model.Step{Entries: []model.Entry{{Seq: 1, Tokens: tokens, Want: model.WantAll}}})
	if err != nil {
		return Run{}, err
	}
	var run Run
	for _, row := range rows {
		wide := make([]float64, len(row))
		for i, v := range row {
			wide[i] = float64(v)
		}
		run.Logits = append(run.Logits, wide)
	}
	dense, _ := f.Uint(f.Architecture() + ".leading_dense_block_count")
	layers, _ := f.Uint(f.Architecture() + ".block_count")
	if int(layers-dense) != len(r.all) {
		return Run{}, fmt.Errorf("%s: %d layers chose experts, expected %d", f.Path(), len(r.all), layers-dense)
	}
	run.Chosen = append(make([][][]int, dense), r.all...)
	run.Read = make([][][]int, layers)
	for layer := range run.Read {
		if len(r.read) > 0 && indexed(f, layer) {
			run.Read[layer], r.read = r.read[0], r.read[1:]
		}
	}
	if len(r.read) > 0 {
		return Run{}, fmt.Errorf("%s: %d layers more than have an indexer chose positions", f.Path(), len(r.read))
	}
	return run, nil
}

// Distance is the root mean square of the difference relative to the standard deviation
// of want, and the share of tokens with the same index of the largest logit.
func Distance(got, want [][]float64) (far, same float64) {
	var diff, sum, square, n float64
	for t, row := range want {
		for i, v := range row {
			d := got[t][i] - v
			diff, sum, square, n = diff+d*d, sum+v, square+v*v, n+1
		}
		if largest(row, 1)[0] == largest(got[t], 1)[0] {
			same++
		}
	}
	return math.Sqrt(diff / n / (square/n - sum*sum/n/n)), same / float64(len(want))
}

// Differing is how many tokens of how many, layer by layer, have other experts.
func Differing(a, b [][][]int) (differ, of int) {
	for layer := range a {
		for t := range a[layer] {
			of++
			if !slices.Equal(a[layer][t], b[layer][t]) {
				differ++
			}
		}
	}
	return differ, of
}
