package simulate

import (
	"container/heap"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefusesWhatIsTooLarge: numbers that are each valid but together exceed any host are
// refused before the simulation, with the number.
func TestRefusesWhatIsTooLarge(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"are 1.2e+09 requests, at most 10000000": func(c *Config) {
			c.Workload.Rate, c.Workload.Turns, c.Duration = 1e6, 5, 4*time.Minute
		},
		"are 1.58e+09 requests":                          func(c *Config) { c.Workload.Rate, c.Workload.Turns, c.Duration = 1, 5, 10*365*24*time.Hour },
		"bursts of 1e+09 conversations, at most 1000000": func(c *Config) { c.Workload.Rate, c.Workload.Burst = 1e-9, 1e9 },
		"may be repeated 1000000000 times each":          func(c *Config) { c.Client = Client{Retries: 1e9, RetryAfter: 1} },
		"have 655360000 points on the ring":              func(c *Config) { c.Groups, c.Proxy.Points = 10000, 1<<16 },
		"e+14 losses":                                    func(c *Config) { c.Losses = Losses{Every: 1, Recover: 1}; c.Groups = 1000 },
	} {
		config := busy(1)
		change(&config)
		config.Step = func(int, int, int) time.Duration { panic("it was simulated") }
		_, err := Run(config)
		require.ErrorContains(t, err, want)
	}
}

// TestEndsWhenItOutgrows: a simulation that outgrows its expected size ends.
func TestEndsWhenItOutgrows(t *testing.T) {
	long := busy(1)
	long.Model.ContextLength, long.Workload.Prompt = 1e9, Constant(9e8)
	_, err := Run(long)
	require.ErrorContains(t, err, "900000")
	require.ErrorContains(t, err, "tokens of conversations at once, at most 268435456")

	never := busy(1)
	never.Duration = 100_000 * time.Second
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	never.Context = ctx
	n := 0
	never.Step = func(int, int, int) time.Duration {
		if n++; n == 10 {
			cancel(stop)
		}
		return time.Second
	}
	_, err = Run(never)
	require.ErrorIs(t, err, stop)
}

// TestLongTimes: times beyond any clock become the longest time, not a short one.
func TestLongTimes(t *testing.T) {
	step, err := Rates(1e-9, []Rate{{1, 1e-9}})
	require.NoError(t, err)
	require.Equal(t, longest, step(1<<30, 1, 0))
	require.Equal(t, longest, seconds(1e300))
	config := busy(1)
	config.Step, config.Warmup = step, 0
	r, err := Run(config)
	require.NoError(t, err)
	require.Greater(t, r.FirstToken.P50, 1e8)
}

// TestLoadIsForgotten: what has ended no longer counts, so that a long simulation of few
// conversations at once stays within the bounds.
func TestLoadIsForgotten(t *testing.T) {
	s, err := run(busy(3))
	require.NoError(t, err)
	require.Positive(t, s.load.requests)
	for len(s.events) > 0 { // clients that still think
		heap.Pop(&s.events).(*event).run()
	}
	kept := 0
	for _, g := range s.groups {
		require.Len(t, g.kept, 8)
		for _, n := range g.kept {
			kept += n
		}
	}
	require.Zero(t, s.load.conversations)
	require.Equal(t, kept, s.load.tokens)
}
