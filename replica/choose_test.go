package replica

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/distributed/memory"
	"ringmaster/engine/enginetest"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// chosen connects a group of ranks whose programs were formed with the settings and
// measure with f, and returns the placement that each starts with, or its error. Rank 0
// chooses c.
func chosen(t *testing.T, size int, s Settings, c Choice, f func(*distributed.Group, parallel.Placement) (calibrate.Costs, error)) ([]parallel.Placement, []error) {
	text := encoded(t, s)
	network, ranks := memory.NewNetwork(), make([]*fakeRank, size)
	load := func(s Settings, rank int) (Rank, error) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: s.MaxTokens})
		ranks[rank] = &fakeRank{Model: m, settings: s, number: rank, flip: -1}
		return ranks[rank], nil
	}
	planner := &fakePlanner{choice: c}
	out, errs := make([]parallel.Placement, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		var program cluster.Program
		var transport distributed.Transport
		if r == 0 {
			p := NewProgram(&fakeHost{load, f}, planner)
			program, transport = p, p.Transport(network)
		} else {
			w := NewWorker(r, &fakeHost{load, f})
			program, transport = w, w.Transport(network)
		}
		require.NoError(t, program.Form(t.Context(), text))
		wg.Go(func() {
			g, err := transport.Connect(t.Context(), distributed.Link{Rank: r, Size: size, GroupID: "test", Epoch: 1,
				Token: bytes.Repeat([]byte{1}, 32), Addrs: make([]string, size), OpTimeout: time.Minute})
			if err == nil {
				err = program.Start(cluster.Epoch{Number: 1, Rank: r, Group: g, Done: t.Context()})
				out[r] = ranks[r].placement
				err = errors.Join(err, g.Close())
			}
			errs[r] = err
		})
	}
	wg.Wait()
	if s.Measure && errs[0] == nil {
		require.Len(t, planner.costs.Models, size, "rank 0 chooses by what was measured")
	}
	return out, errs
}

// TestChoose: every rank has the placement that rank 0 has chosen, and without Measure
// that of the settings.
func TestChoose(t *testing.T) {
	one, other := upTo(1, 2, 4), upTo(2, 3, 4)
	s := Settings{Context: 4096, MaxTokens: 64, Reduce: parallel.Sum, Placement: one, Measure: true, Alternatives: []parallel.Placement{other}}
	var mu sync.Mutex
	var measured []parallel.Placement
	measure := func(g *distributed.Group, p parallel.Placement) (calibrate.Costs, error) {
		mu.Lock()
		defer mu.Unlock()
		measured = append(measured, p)
		if g.Rank() > 0 {
			return calibrate.Costs{}, nil
		}
		return calibrate.Costs{Models: make([]cost.Model, g.Size())}, nil
	}
	for choice, want := range s.placements() {
		got, errs := chosen(t, 3, s, Choice{Placement: choice, Rows: 48, Speeds: []int{3, 0, 2}}, measure)
		for r := range got {
			require.NoError(t, errs[r])
			require.Equal(t, want.DivideRows(48).WithSpeeds([]int{3, 0, 2}), got[r])
		}
	}
	require.Len(t, measured, 6)
	for _, p := range measured {
		require.Equal(t, other, p, "all rows of a step are measured")
	}
	_, errs := chosen(t, 3, s, Choice{Placement: 2, Rows: 48}, measure)
	for _, err := range errs {
		require.ErrorContains(t, err, "placement 2 of 2, steps divided from 48 rows")
	}
	_, errs = chosen(t, 3, s, Choice{Speeds: []int{1, 1 << 20, 1}}, measure)
	for _, err := range errs {
		require.ErrorContains(t, err, "the speed of rank 1 is 1048576")
	}
	gone := errors.New("the device is gone")
	lost := func(*distributed.Group, parallel.Placement) (calibrate.Costs, error) { return calibrate.Costs{}, gone }
	_, errs = chosen(t, 3, s, Choice{}, lost)
	for _, err := range errs {
		require.ErrorIs(t, err, gone)
	}
	s.Measure = false
	got, errs := chosen(t, 3, s, Choice{}, lost)
	for r := range got {
		require.NoError(t, errs[r])
		require.Equal(t, one, got[r])
	}
}

// TestChooseStages: stages that are chosen split the group, on all of which ranks are measured
// without stages, and rank 0 has the budget of its layers.
func TestChooseStages(t *testing.T) {
	whole := upTo(1, 2, 8)
	layers := []parallel.Range{{Start: 0, End: 1}, {Start: 1, End: 2}, {Start: 2, End: 3}}
	stages := parallel.InStages(layers, []parallel.Placement{upTo(8), upTo(8), upTo(8)})
	s := Settings{Context: 4096, MaxTokens: 64, Reduce: parallel.Sum, Placement: whole, Measure: true, Alternatives: []parallel.Placement{upTo(2, 4, 8), stages}, SequenceBudget: 1 << 20}
	measure := func(g *distributed.Group, p parallel.Placement) (calibrate.Costs, error) {
		if p.Staged() {
			return calibrate.Costs{}, errors.New("stages are measured")
		}
		if g.Rank() > 0 {
			return calibrate.Costs{}, nil
		}
		return calibrate.Costs{Models: make([]cost.Model, g.Size())}, nil
	}
	got, errs := chosen(t, 3, s, Choice{Placement: 2, SequenceBudget: 1 << 19}, measure)
	for r := range got {
		require.NoError(t, errs[r])
		require.Equal(t, stages, got[r])
	}
}

// TestAlternatives: they travel with the settings and are checked like the placement.
func TestAlternatives(t *testing.T) {
	s := goodSettings
	s.Measure, s.Alternatives = true, []parallel.Placement{upTo(1, 2, 3, 256)}
	b, err := s.Encode()
	require.NoError(t, err)
	got, err := ParseSettings(b)
	require.NoError(t, err)
	require.Equal(t, s, got)
	require.True(t, goodSettings.loadAlike(s))

	s.Alternatives = []parallel.Placement{upTo(1, 2, 3, 255)}
	_, err = s.Encode()
	require.ErrorContains(t, err, "experts")
	s.Alternatives = []parallel.Placement{upTo(100, 256)}
	_, err = s.Encode()
	require.Error(t, err)
	s.Alternatives = make([]parallel.Placement, mostAlternatives+1)
	_, err = s.Encode()
	require.ErrorContains(t, err, "alternatives is 9, expected at most 8")
}
