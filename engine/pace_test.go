package engine

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

// TestPace: whatever a step costs, chunks of a prompt beside decoding sequences settle
// where the step takes the target, and where that cannot be, twice what decoding takes.
func TestPace(t *testing.T) {
	const target, most = 150 * time.Millisecond, 256
	for name, tc := range map[string]struct {
		fixed float64                 // seconds of the sequences that decode
		stale float64                 // what was learned before; 0: the same
		cost  func(n float64) float64 // seconds that n tokens of a prompt add
		want  float64                 // seconds of a step, at most
	}{
		"in proportion":              {0.03, 0, func(n float64) float64 { return n * 0.0013 }, 0.15},
		"the first tokens cost most": {0.03, 0, func(n float64) float64 { return 0.02 * math.Sqrt(n) }, 0.15},
		"fast":                       {0.01, 0, func(n float64) float64 { return n * 1e-4 }, 0.01 + most*1e-4},
		"decoding takes the target":  {0.2, 0, func(n float64) float64 { return n * 0.002 }, 0.4},
		"slow":                       {0.1, 0, func(n float64) float64 { return n * 0.05 }, 0.1 + paceLeast*0.05},
		"fewer decoded before":       {0.2, 0.03, func(n float64) float64 { return n * 0.002 }, 0.4},
		"more decoded before":        {0.03, 0.2, func(n float64) float64 { return n * 0.0013 }, 0.15},
	} {
		t.Run(name, func(t *testing.T) {
			p := pace{target: target}
			seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
			require.Equal(t, most, p.bound(most), "nothing is known")
			before := cmp.Or(tc.stale, tc.fixed)
			p.learn(0, 7, 0, seconds(before))
			p.learn(most, 0, 0, seconds(before+tc.cost(most)))
			took := 0.0
			for range 1000 {
				p.learn(0, 0, 0, time.Microsecond) // it only freed memory
				p.learn(3, 0, 0, seconds(tc.fixed+tc.cost(3)))
				n := p.bound(most)
				if n == 0 {
					p.learn(0, 7, 0, seconds(tc.fixed))
					continue
				}
				require.True(t, n == most || n%paceGrain == 0 && n > 0, n)
				took = tc.fixed + tc.cost(float64(n))
				p.learn(n, 7, 0, seconds(took))
			}
			require.LessOrEqual(t, took, tc.want*1.05)
			require.Greater(t, took, tc.want*0.9, "a prompt gets what is left")
		})
	}
	p := pace{token: 1, fixed: 1}
	require.Equal(t, most, p.bound(most), "without a target")
	p.target = target
	require.Equal(t, 5, p.bound(5), "a small budget of tokens")
}

// TestTokenLatency: seven answers beside a prompt of 4,000 tokens get their next token
// within the target once the cost is known; without a target a chunk delays them.
func TestTokenLatency(t *testing.T) {
	for _, tc := range []struct{ latency, want time.Duration }{{0, 155 * time.Millisecond}, {-1, 363 * time.Millisecond}} {
		v, err := NewVirtual(model.Info{ContextLength: 8192, MaxTokens: 512}, nil, Options{TokenLatency: tc.latency})
		require.NoError(t, err)
		now := time.Unix(0, 0)
		step := func() (VirtualStep, []VirtualToken, time.Duration) {
			s, ok := v.Plan(now)
			require.True(t, ok)
			took := 30*time.Millisecond + time.Duration(s.Prompt)*1300*time.Microsecond
			now = now.Add(took)
			return s, v.Commit(now), took
		}
		for n := range 7 {
			_, err := v.Submit(now, chat(n, 10), make([]int32, 1000))
			require.NoError(t, err)
		}
		for range 5 {
			step()
		}
		_, err = v.Submit(now, chat(9, 4000), make([]int32, 1))
		require.NoError(t, err)
		longest, done := time.Duration(0), false
		for i := 0; !done; i++ {
			s, tokens, took := step()
			require.Equal(t, 7, s.Decoding, "each step has a token of each answer")
			if i > 3 {
				longest = max(longest, took)
			}
			for _, token := range tokens {
				done = done || token.Request == 8
			}
		}
		require.LessOrEqual(t, longest, tc.want)
		require.Greater(t, longest, tc.want*9/10)
	}
}
