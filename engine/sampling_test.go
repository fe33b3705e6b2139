package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawMany counts the tokens of n draws, each with a new sampler.
func drawMany(n int, p Sampling, row []float32, banned ...int32) map[int32]int {
	got := map[int32]int{}
	var mem scratch
	for seed := range uint64(n) {
		got[newSampler(p, seed).draw(row, banned, &mem)]++
	}
	return got
}

func ids(counts map[int32]int) (ids []int32) {
	for id := range counts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// shares returns a row of logits that has probabilities in these proportions at
// temperature 1.
func shares(w ...float64) (row []float32) {
	for _, x := range w {
		row = append(row, float32(math.Log(x)))
	}
	return row
}

func TestWhichTokensCanBeDrawn(t *testing.T) {
	row := shares(0.1, 0.4, 0.2, 0.3)
	for name, c := range map[string]struct {
		p      Sampling
		banned []int32
		row    []float32
		want   []int32
	}{
		"greedy":                       {Sampling{}, nil, row, []int32{1}},
		"greedy, of equals the lowest": {Sampling{}, nil, []float32{1, 5, 5}, []int32{1}},
		"greedy, banned":               {Sampling{}, []int32{1}, row, []int32{3}},
		"all":                          {Sampling{Temperature: 1}, nil, row, []int32{0, 1, 2, 3}},
		"banned":                       {Sampling{Temperature: 1}, []int32{0, 3}, row, []int32{1, 2}},
		"top_k 2":                      {Sampling{Temperature: 1, TopK: 2}, nil, row, []int32{1, 3}},
		"top_k of equals":              {Sampling{Temperature: 1, TopK: 2}, nil, []float32{1, 1, 1}, []int32{0, 1}},
		"top_k beyond the vocabulary":  {Sampling{Temperature: 1, TopK: 9}, nil, row, []int32{0, 1, 2, 3}},
		"top_p 0.69":                   {Sampling{Temperature: 1, TopP: 0.69}, nil, row, []int32{1, 3}},
		"top_p 0.71":                   {Sampling{Temperature: 1, TopP: 0.71}, nil, row, []int32{1, 2, 3}},
		"top_p tiny":                   {Sampling{Temperature: 1, TopP: 1e-9}, nil, row, []int32{1}},
		"top_p 1":                      {Sampling{Temperature: 1, TopP: 1}, nil, row, []int32{0, 1, 2, 3}},
		// Of the tokens that top_k leaves (0.4 and 0.3) the first has
		// probability 0.57.
		"top_p after top_k":      {Sampling{Temperature: 1, TopK: 2, TopP: 0.56}, nil, row, []int32{1}},
		"top_p after top_k, two": {Sampling{Temperature: 1, TopK: 2, TopP: 0.58}, nil, row, []int32{1, 3}},
		"min_p":                  {Sampling{Temperature: 1, MinP: 0.6}, nil, row, []int32{1, 3}},
		"min_p 1":                {Sampling{Temperature: 1, MinP: 1}, nil, row, []int32{1}},
		"min_p after top_k":      {Sampling{Temperature: 1, MinP: 0.4, TopK: 3}, nil, row, []int32{1, 2, 3}},
		"min_p within top_k":     {Sampling{Temperature: 1, MinP: 0.6, TopK: 3}, nil, row, []int32{1, 3}},
		"tiny temperature":       {Sampling{Temperature: 1e-300}, nil, row, []int32{1}},
		"bias":                   {Sampling{LogitBias: map[int32]float64{0: 100}}, nil, row, []int32{0}},
		"bias away":              {Sampling{Temperature: 1, LogitBias: map[int32]float64{1: -100}}, nil, row, []int32{0, 2, 3}},
		"nothing left":           {Sampling{Temperature: 1, TopK: 2}, []int32{0, 1}, []float32{1, 2}, []int32{0}},
	} {
		require.Equal(t, c.want, ids(drawMany(500, c.p, c.row, c.banned...)), name)
	}
}

func TestDrawsFollowTheWeights(t *testing.T) {
	const n = 20000
	for name, p := range map[string]Sampling{
		"plain":       {Temperature: 1},
		"heap":        {Temperature: 1, TopK: 3, TopP: 0.999999},
		"temperature": {Temperature: 2},
	} {
		w := []float64{0.5, 0.3, 0.15, 0.05}
		if p.TopK == 3 {
			w[3] = 0
		}
		total := 0.0
		for i := range w {
			w[i] = math.Pow(w[i], 1/p.Temperature)
			total += w[i]
		}
		got := drawMany(n, p, shares(0.5, 0.3, 0.15, 0.05))
		for i, x := range w {
			// Five standard deviations; the seeds are fixed.
			want := x / total
			if d := math.Abs(float64(got[int32(i)])/n - want); d > 5*math.Sqrt(want*(1-want)/n) {
				t.Errorf("%s: token %d drawn %d times of %d, want a share of %.3f", name, i, got[int32(i)], n, want)
			}
		}
	}
}

func TestPenaltiesCountTheAnswerOnly(t *testing.T) {
	var mem scratch
	row := []float32{3, 2.4, 1}
	s := newSampler(Sampling{FrequencyPenalty: 0.5}, 0)
	var got []int32
	for range 5 {
		got = append(got, s.draw(row, nil, &mem))
	}
	// 3; 2.5 is still more than 2.4; 2.0 is not; then 1.9, 1.9; ...
	require.Equal(t, []int32{0, 0, 1, 0, 1}, got, "frequency")
	s, got = newSampler(Sampling{PresencePenalty: 1.5}, 0), nil
	for range 4 {
		got = append(got, s.draw(row, nil, &mem))
	}
	// 3; then 1.5 < 2.4; then 1.5, 0.9, 1: the penalty applies only once.
	require.Equal(t, []int32{0, 1, 0, 0}, got, "presence")
	require.Equal(t, []float32{3, 2.4, 1}, row, "the row was changed")
}

// TestCutsAgainstASort compares the partial selection with a full sort on
// random rows, many of them with ties.
func TestCutsAgainstASort(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var mem scratch
	for round := range 2000 {
		n := 1 + random.IntN(60)
		if round%100 < 2 { // several parts
			n = partLen*random.IntN(5) + random.IntN(3) + 1
		}
		row := make([]float32, n)
		for i := range row {
			row[i] = float32(random.IntN(12))
			if round%2 == 0 {
				row[i] = float32(random.NormFloat64())
			}
		}
		p := Sampling{Temperature: 0.2 + 2*random.Float64()}
		if random.IntN(2) == 0 {
			p.TopK = 1 + random.IntN(len(row))
		}
		if random.IntN(2) == 0 {
			p.TopP = random.Float64()
		}
		if random.IntN(3) == 0 {
			p.MinP = random.Float64()
		}
		allowed := sortedCuts(row, p)
		for seed := range uint64(20) {
			id := newSampler(p, seed).draw(row, nil, &mem)
			require.Contains(t, allowed, id, "round %d: %v with %+v", round, row, p)
		}
	}
}

// sortedCuts returns the tokens that the cuts leave, by definition.
func sortedCuts(row []float32, p Sampling) []int32 {
	order := make([]int32, len(row))
	w := make([]float64, len(row))
	top := float64(slices.Max(row))
	for i := range row {
		order[i] = int32(i)
		w[i] = math.Exp((float64(row[i]) - top) / p.Temperature)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case w[a] > w[b]:
			return -1
		case w[a] < w[b]:
			return 1
		}
		return 0
	})
	if p.TopK > 0 {
		order = order[:min(p.TopK, len(order))]
	}
	if p.TopP > 0 {
		total, sum := 0.0, 0.0
		for _, id := range order {
			total += w[id]
		}
		n := 0
		for ; n < len(order) && sum < p.TopP*total; n++ {
			sum += w[order[n]]
		}
		order = order[:max(n, 1)]
	}
	for len(order) > 1 && w[order[len(order)-1]] < p.MinP {
		order = order[:len(order)-1]
	}
	return order
}

func TestLargest(t *testing.T) {
	row := []float32{1, 9, 3, 9, 4}
	for n, want := range [][]int32{nil, {1}, {1, 3}, {1, 3, 4}} {
		require.Equal(t, want, largest(row, n), "%d largest", n)
	}
	require.Equal(t, []int32{1, 3, 4, 2, 0}, largest(row, 20), "20 largest of 5")
}

// BenchmarkDraw samples one token of DeepSeek's vocabulary.
func BenchmarkDraw(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, 129280)
	for i := range row {
		row[i] = float32(3 * random.NormFloat64())
	}
	for name, p := range map[string]Sampling{
		"greedy":    {},
		"plain":     {Temperature: 1},
		"top_k=40":  {Temperature: 1, TopK: 40},
		"top_p=0.9": {Temperature: 1, TopP: 0.9},
		"flat":      {Temperature: 2, TopP: 0.99},
	} {
		b.Run(name, func(b *testing.B) {
			var mem scratch
			s := newSampler(p, 1)
			for b.Loop() {
				s.draw(row, nil, &mem)
			}
		})
	}
	b.Run("logprobs=20", func(b *testing.B) {
		for b.Loop() {
			logSum(row)
			largest(row, 20)
		}
	})
}
