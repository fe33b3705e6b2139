package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/drafts"
	"ringmaster/model"
)

// TestRowCost: level and slope are found from steps of any numbers of rows, with noise and
// with single steps that take many times as long, and follow a change.
func TestRowCost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var c rowCost
	first, row := c.line()
	require.Equal(t, []float64{1, costUnknown}, []float64{first, row})
	for _, want := range [][2]float64{{0.04, 0.02}, {0.2, 0.02}} {
		for range 300 {
			drafts := max(0, r.IntN(9)-4)
			seconds := want[0] + want[1]*float64(drafts)
			seconds *= 0.8 + 0.4*r.Float64()
			if r.IntN(30) == 0 {
				seconds *= 20
			}
			c.learn(1+drafts, drafts, seconds)
		}
		first, row = c.line()
		require.InDelta(t, want[0], first, want[0]/4)
		require.InDelta(t, want[1], row, want[1]/2)
	}
	c.learn(0, 0, 1) // it only freed memory
	again, _ := c.line()
	require.Equal(t, first, again)
}

// TestRowCostOfMany: what a draft beside many sequences costs is known after a few steps, all
// of which have drafts, the time without them stays, and other numbers of sequences learn
// nothing of it.
func TestRowCostOfMany(t *testing.T) {
	var p pace
	took := func(sequences, drafts int, row float64) time.Duration {
		return time.Duration((0.01 + 0.002*float64(sequences) + row*float64(drafts)) * float64(time.Second))
	}
	for _, row := range []float64{0.004, 0.0005} {
		p.learn(0, 8, 0, took(8, 0, row))
		for i := range 20 {
			drafts := 3 + i%3
			p.learn(0, 8, drafts, took(8, drafts, row))
		}
		plain, known := p.step(0, 8)
		require.InDelta(t, took(8, 0, row).Seconds(), plain, 0.002)
		require.InDelta(t, row, known, row/4)
	}
	one, row := p.step(0, 1)
	require.Equal(t, []float64{1, costUnknown}, []float64{one, row})
	p.learn(0, 1, 0, took(1, 0, 0))
	p.learn(0, 1, 4, took(1, 4, 0.02))
	_, known := p.step(0, 8)
	require.InDelta(t, 0.0005, known, 0.0002)
}

// TestOdds: estimates begin at the prior, follow outcomes of the kind, and a request's own
// more.
func TestOdds(t *testing.T) {
	var o odds
	require.InDelta(t, 0.5, o.of(0, 3, tally{}), 1e-9)
	require.InDelta(t, 0.9, o.of(0, 40, tally{}), 1e-9)
	for range 400 {
		o[0][kindOf(40)].add(false)
	}
	require.Less(t, o.of(0, 40, tally{}), 0.1)
	require.InDelta(t, 0.5, o.of(0, 3, tally{}), 1e-9, "another kind")
	require.Greater(t, o.of(0, 40, tally{40, 40}), 0.7)
	require.LessOrEqual(t, o[0][kindOf(40)].tried, remembered)
}

// TestDraftsAmongManyAreTriedAgain: beside other sequences drafts that do not pay are run as
// rarely as alone, and again as soon as they do.
func TestDraftsAmongManyAreTriedAgain(t *testing.T) {
	const sequences, length = 4, 20000
	v, err := NewVirtual(model.Info{ContextLength: 2 * length, MaxTokens: 512}, nil, Options{MaxActive: sequences})
	require.NoError(t, err)
	v.Draft = func(_ uint64, follows []int32) drafts.Guess {
		return drafts.Guess{Tokens: follows[:min(len(follows), 3)], Match: 20}
	}
	now := time.Unix(0, 0)
	for i := range sequences {
		_, err := v.Submit(now, []int32{int32(i)}, make([]int32, length))
		require.NoError(t, err)
	}
	run := func(steps int, row float64) (guesses int) {
		for range steps {
			s, ok := v.Plan(now)
			require.True(t, ok)
			guesses += s.Drafts
			now = now.Add(time.Duration((0.01 + 0.01*row*float64(s.Prompt+s.Decoding+s.Drafts-1)) * float64(time.Second)))
			v.Commit(now)
		}
		return guesses
	}
	run(100, 1.5)
	few := run(10*hopeless, 1.5)
	require.Positive(t, few)
	require.LessOrEqual(t, few, 15)
	run(40*hopeless, 0.02)
	require.Greater(t, run(100, 0.02), 400)
}
