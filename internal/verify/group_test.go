package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/replica"
)

// group is a leader of three ranks with 6 experts in layers 1 and 2 and 5 blocks.
type group struct {
	size   int
	epoch  uint32
	change func(rank int, s *model.Sum, everyone bool) // the errors of a rank
	links  func(x replica.Traffic) replica.Finding     // of the sender
	fail   string
	asked  []replica.Task
	after  func(g *group)
}

func sums(p model.Piece) (out []model.Sum) {
	for i := p.From; i < p.To; i++ {
		if p.Layer < 0 {
			out = append(out, model.Sum{Name: fmt.Sprintf("t%d", i), Layer: -1, Expert: -1, Rows: 4, Weights: 7, Result: 8})
			continue
		}
		out = append(out, model.Sum{Name: fmt.Sprintf("blk.%d.down", p.Layer), Layer: p.Layer, Expert: i, Weights: uint32(10 + i)},
			model.Sum{Name: model.ExpertOutput, Layer: p.Layer, Expert: i, Result: uint32(20 + i)})
	}
	return out
}

func (g *group) Ask(_ context.Context, request []byte) ([]byte, error) {
	var r Request
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	a := Reply{Epoch: g.epoch, Took: time.Microsecond, Error: g.fail}
	switch {
	case r.Task == nil:
		a.Group = &Group{Extent: model.Extent{Layers: []int{1, 2}, Experts: 6, Blocks: 5}, Transport: "tcp"}
		for i := range g.size {
			a.Group.Ranks, a.Group.Kernels = append(a.Group.Ranks, i), append(a.Group.Kernels, "k")
			a.Group.Experts = append(a.Group.Experts, [2]int{6 / g.size * i, 6 / g.size * (i + 1)})
		}
	case r.Task.Links != nil:
		g.asked = append(g.asked, *r.Task)
		a.Found = make([]replica.Finding, g.size)
		a.Found[r.Task.Links.From] = g.links(*r.Task.Links)
	default:
		g.asked = append(g.asked, *r.Task)
		p := r.Task.Piece
		for rank := range g.size {
			f := replica.Finding{Rank: rank}
			for _, s := range sums(p) {
				owner := s.Expert / (6 / g.size)
				if p.Layer >= 0 && !r.Task.Everyone && rank != owner && rank != (owner+1)%g.size {
					continue
				}
				if g.change != nil {
					g.change(rank, &s, r.Task.Everyone)
				}
				f.Sums = append(f.Sums, s)
			}
			a.Found = append(a.Found, f)
		}
	}
	if g.after != nil {
		g.after(g)
	}
	return json.Marshal(a)
}

// host is an arbiter that is right.
type host struct{}

func (host) Examine(p model.Piece) ([]model.Sum, error) { return sums(p), nil }

func examine(t *testing.T, g *group, h Arbiter, kernels string) (Check, []Difference, error) {
	x := &Examination{Asker: g, Limit: time.Minute, Pause: time.Second, Rest: 1}
	_, err := x.Look(t.Context())
	require.NoError(t, err)
	return x.Recompute(t.Context(), h, kernels, 5)
}

// wrong changes what one rank finds of one expert, and what follows from it.
func wrong(rank, layer, expert int, weights bool) func(int, *model.Sum, bool) {
	return func(r int, s *model.Sum, _ bool) {
		if r != rank || s.Layer != layer || s.Expert != expert {
			return
		}
		if s.Name == model.ExpertOutput {
			s.Result++
		} else if weights {
			s.Weights++
		}
	}
}

// TestWhoIsWrong: the rank, the layer and the kind are named, by a majority or by the
// host; consequences are not.
func TestWhoIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		change  func(int, *model.Sum, bool)
		host    bool
		kernels string
		want    []string
	}{
		"no rank":                        {3, nil, false, "", nil},
		"the owner's weights":            {3, wrong(1, 2, 3, true), false, "", []string{"rank 1: layer 2, down of expert 3: other weights in memory than the others have"}},
		"the witness's weights":          {3, wrong(2, 2, 3, true), false, "", []string{"rank 2: layer 2, down of expert 3: other weights in memory than the others have"}},
		"the owner computes":             {3, wrong(0, 1, 1, false), false, "", []string{"rank 0: layer 1, expert output of expert 1: the same weights and another result"}},
		"one of two":                     {2, wrong(1, 1, 5, true), false, "", []string{"layer 1, down of expert 5: rank 0 and rank 1 have other weights in memory, one of them wrong ones"}},
		"one of two, by the host":        {2, wrong(1, 1, 5, true), true, "k", []string{"rank 1: layer 1, down of expert 5: other weights in memory than the others have"}},
		"a result, by the host":          {2, wrong(1, 1, 5, false), true, "k", []string{"rank 1: layer 1, expert output of expert 5: the same weights and another result"}},
		"a result, and the host differs": {2, wrong(1, 1, 5, false), true, "other", []string{"layer 1, expert output of expert 5: rank 0 and rank 1 have the same weights and another result"}},
		"another weight": {3, func(r int, s *model.Sum, _ bool) {
			if r == 0 && s.Name == "t4" {
				s.Weights, s.Result = 1, 2
			}
		}, false, "", []string{"rank 0: t4, rows 0 to 3: other weights in memory than the others have"}},
		"all ranks": {2, func(_ int, s *model.Sum, _ bool) {
			if s.Name == "t0" {
				s.Weights = 1
			}
		}, true, "k", []string{"rank 0, rank 1: t0, rows 0 to 3: other weights in memory than the others have"}},
		"one rank alone": {1, wrong(0, 1, 2, true), true, "k", []string{"rank 0: layer 1, down of expert 2: other weights in memory than the others have"}},
	} {
		t.Run(name, func(t *testing.T) {
			var h Arbiter
			if c.host {
				h = host{}
			}
			check, found, err := examine(t, &group{size: c.size, change: c.change}, h, c.kernels)
			require.NoError(t, err)
			var got []string
			for _, d := range found {
				got = append(got, d.String())
			}
			require.Equal(t, c.want, got)
			require.Equal(t, map[bool]string{true: Pass, false: Fail}[len(got) == 0], check.Verdict, check.Detail)
			require.EqualValues(t, 2*2*6+5, check.Figures["sums"])
		})
	}
	check, _, err := examine(t, &group{size: 1}, nil, "")
	require.NoError(t, err)
	require.Equal(t, NotChecked, check.Verdict)
}

// TestEndsOfAnExamination: a difference that does not recur, a group that re-forms and
// one that fails are errors, never a verdict.
func TestEndsOfAnExamination(t *testing.T) {
	once := wrong(1, 2, 3, true)
	for want, g := range map[string]*group{
		"agreed when they were asked again": {size: 3, change: func(r int, s *model.Sum, everyone bool) {
			if !everyone {
				once(r, s, everyone)
			}
		}},
		"epoch 1, was 0": {size: 3, after: func(g *group) {
			if len(g.asked) == 2 {
				g.epoch = 1
			}
		}},
		"the group: rank 2 is lost": {size: 3, after: func(g *group) {
			if len(g.asked) == 2 {
				g.fail = "rank 2 is lost"
			}
		}},
	} {
		_, _, err := examine(t, g, nil, "")
		require.ErrorContains(t, err, want)
	}
}

// TestSoakFaults: rates and latencies cover all pieces, corrupt bytes are counted, and a
// link that falls short of the expectation is named with its direction.
func TestSoakFaults(t *testing.T) {
	g := &group{size: 3, links: func(x replica.Traffic) replica.Finding {
		rate, latency := 1e9, 20*time.Microsecond
		if x.From == 2 && x.To == 0 {
			rate = 5e7
		}
		if x.From == 0 && x.To == 2 {
			latency = time.Millisecond
		}
		f := replica.Finding{Took: time.Duration(float64(x.Bytes*x.Messages) / rate * 1e9), Retransmits: 1}
		if x.Echo {
			f.Trips, f.Retransmits = slices.Repeat([]time.Duration{2 * latency}, x.Messages), 0
		} else if x.From == 1 && x.To == 2 {
			f.Corrupt = 3
		}
		return f
	}}
	x := &Examination{Asker: g, Limit: time.Minute, Pause: 100 * time.Millisecond}
	_, err := x.Look(t.Context())
	require.NoError(t, err)
	c, links, err := x.Soak(t.Context(), 200*time.Millisecond, &Expected{"test", 1e9, 20e-6}, 1)
	require.NoError(t, err)
	require.Len(t, links, 6)
	require.Equal(t, Fail, c.Verdict)
	whys := map[[2]int]string{}
	for _, l := range links {
		require.GreaterOrEqual(t, l.Took, 200*time.Millisecond)
		if l.Why != "" {
			whys[[2]int{l.From, l.To}] = l.Why
		}
	}
	require.Len(t, whys, 3)
	require.Equal(t, "50.00 MB/s where 1.00 GB/s is expected (test)", whys[[2]int{2, 0}])
	require.Equal(t, "1ms for a message of 8 bytes where 20µs is expected (test)", whys[[2]int{0, 2}])
	require.Contains(t, whys[[2]int{1, 2}], "bytes arrived changed")
	c, links, err = x.Soak(t.Context(), time.Millisecond, nil, 1)
	require.NoError(t, err)
	require.Equal(t, Fail, c.Verdict)
	require.Contains(t, c.Detail, "from rank 1 to rank 2: ")
	require.Len(t, links, 6)
}
