package parallel_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

var sizes = parallel.Sizes{Experts: 256, Heads: 8, Shared: 4, Vocabulary: 1000}

// TestPlacement: a rank reads the placement that the leader made, and it covers
// the model.
func TestPlacement(t *testing.T) {
	p, err := parallel.ByExperts(sizes, []float64{2, 1, 1})
	require.NoError(t, err)
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.Equal(t, `[{"experts":[0,128],"heads":[0,8],"shared":[0,4],"vocabulary":[0,1000],"weight":2},`+
		`{"experts":[128,192],"heads":[0,8],"shared":[0,4],"vocabulary":[1000,1000],"weight":1},`+
		`{"experts":[192,256],"heads":[0,8],"shared":[0,4],"vocabulary":[1000,1000],"weight":1}]`, string(text))
	var again parallel.Placement
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, p, again)
	require.NoError(t, again.Check(sizes, 3))
	require.Equal(t, sizes, again.Sizes())
	require.Equal(t, "[128, 192)", p[1].Experts.String())

	p, err = parallel.Place(parallel.ShareAll, sizes, []float64{2, 1, 1})
	require.NoError(t, err)
	text, err = json.Marshal(p)
	require.NoError(t, err)
	require.Equal(t, `[{"experts":[0,128],"heads":[0,4],"shared":[0,2],"vocabulary":[0,500],"weight":2},`+
		`{"experts":[128,192],"heads":[4,6],"shared":[2,3],"vocabulary":[500,750],"weight":1},`+
		`{"experts":[192,256],"heads":[6,8],"shared":[3,4],"vocabulary":[750,1000],"weight":1}]`, string(text))
	require.NoError(t, p.Check(sizes, 3))
	require.Equal(t, sizes, p.Sizes())
	for _, how := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
		again, err := parallel.ParseShare(how.String())
		require.NoError(t, err)
		require.Equal(t, how, again)
	}
	_, err = parallel.ParseShare("half")
	require.ErrorContains(t, err, `"half"; expected experts or all`)

	_, err = parallel.ByExperts(sizes, []float64{1, -1})
	require.ErrorContains(t, err, "the share of rank 1 is -1")
	require.Error(t, json.Unmarshal([]byte(`[{"experts":[1]}]`), &again))
	require.Error(t, json.Unmarshal([]byte(`[{"experts":[1,2,3]}]`), &again))
	require.Error(t, json.Unmarshal([]byte(`[{"experts":["1",2]}]`), &again))
}

// TestCopies: copies and speeds travel with a placement, and a rank's range covers them.
func TestCopies(t *testing.T) {
	p, err := parallel.ByExperts(sizes, []float64{2, 1, 1})
	require.NoError(t, err)
	require.False(t, p.Copies())
	require.False(t, p.Assigner(sizes.Experts).Copies())
	require.Equal(t, p[1].Experts, p[1].Held())
	p[1].Copies, p[1].Speed, p[2].Waits = []assign.Set{{0: 1 << 3, 130 / 8: 1 << (130 % 8)}, nil}, 7, true
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.Contains(t, string(text), `"weight":1,"copies":["0800000000000000000000000000000004",""],"speed":7}`)
	var again parallel.Placement
	require.NoError(t, json.Unmarshal(text, &again))
	require.NoError(t, again.Check(sizes, 3))
	require.True(t, again.Copies())
	require.True(t, again.Waits())
	require.True(t, again.Assigner(sizes.Experts).Copies())
	require.Equal(t, parallel.Range{Start: 3, End: 192}, again[1].Held())
	require.Equal(t, parallel.Range{Start: 3, End: 131}, parallel.Part{Copies: again[1].Copies}.Held())
	require.ErrorContains(t, make(parallel.Placement, 65).Check(sizes, 65), "at most 64")
}

// TestPlacementsThatAreRefused: the errors name what is wrong.
func TestPlacementsThatAreRefused(t *testing.T) {
	for want, change := range map[string]func(p parallel.Placement) parallel.Placement{
		"2 ranges of experts for 3 ranks":   func(p parallel.Placement) parallel.Placement { return p[:2] },
		"among 0 ranks":                     func(p parallel.Placement) parallel.Placement { return nil },
		"rank 1 gets experts 87 to 171":     func(p parallel.Placement) parallel.Placement { p[1].Experts.Start++; return p },
		"ranges of experts end at 257":      func(p parallel.Placement) parallel.Placement { p[2].Experts.End++; return p },
		"rank 1 gets heads 0 to 4":          func(p parallel.Placement) parallel.Placement { p[1].Heads.End = 4; return p },
		"rank 1 gets shared 0 to 3":         func(p parallel.Placement) parallel.Placement { p[1].Shared.End = 3; return p },
		"rank 0 gets vocabulary -1 to 1000": func(p parallel.Placement) parallel.Placement { p[0].Vocabulary.Start = -1; return p },
		"ranges of vocabulary end at 1001":  func(p parallel.Placement) parallel.Placement { p[2].Vocabulary.End++; return p },
		"the speed of rank 1 is -1":         func(p parallel.Placement) parallel.Placement { p[1].Speed = -1; return p },
		"rank 1 has a copy of expert 256": func(p parallel.Placement) parallel.Placement {
			p[1].Copies = []assign.Set{append(make(assign.Set, 256/8), 1)}
			return p
		},
		"rank 0 has copies in 2000 layers": func(p parallel.Placement) parallel.Placement { p[0].Copies = make([]assign.Set, 2000); return p },
		"the weight of rank 2 is 0":        func(p parallel.Placement) parallel.Placement { p[2].Weight = 0; return p },
	} {
		p, err := parallel.ByExperts(sizes, []float64{1, 1, 1})
		require.NoError(t, err)
		require.NoError(t, p.Check(sizes, 3))
		err = change(p).Check(sizes, 3)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, distributed.ErrArgument)
	}
	divided, err := parallel.ByExperts(sizes, []float64{1, 1})
	require.NoError(t, err)
	divided[0].Heads, divided[1].Heads = parallel.Range{Start: 0, End: 3}, parallel.Range{Start: 3, End: 8}
	require.NoError(t, divided.Check(sizes, 2))
}
