package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"

	"ringmaster/engine"
	"ringmaster/internal/testenv"
	"ringmaster/model"
)

// single returns a group as a queue with one server: every request is a prompt with a
// step of a millisecond for each token, and the first token is the end of its answer.
func single(rate float64, prompt Distribution, span time.Duration) Config {
	return Config{
		Groups: 1, Seed: 1, Duration: span, Warmup: span / 20,
		Workload: Workload{Rate: rate, Burst: 1, Turns: 1, Think: Constant(0), Prompt: prompt, Answer: Constant(1), Keyed: 1},
		Proxy:    Proxy{Policy: Hash, Bound: 1.5, Points: 16},
		Model:    model.Info{ContextLength: 1 << 20, MaxTokens: 1 << 20},
		Engine:   engine.Options{MaxActive: 1, QueueLength: 1 << 20, PrefillChunk: 1 << 20, CacheEntries: -1},
		Step:     func(prompt, _, _ int) time.Duration { return time.Duration(prompt) * time.Millisecond },
	}
}

// means returns the mean of xs and its standard error, by batches that are nearly
// independent of each other.
func means(xs []float64) (mean, err float64) {
	const batches = 25
	var of []float64
	for i := range batches {
		of = append(of, stat.Mean(xs[i*len(xs)/batches:(i+1)*len(xs)/batches], nil))
	}
	mean, dev := stat.MeanStdDev(of, nil)
	return mean, stat.StdErr(dev, batches)
}

// TestQueueingFormulas: with Poisson arrivals and one server the mean time in the system
// follows the Pollaczek-Khinchine formula (M/M/1 is a case of it), and the utilisation is
// the product of rate and mean service time.
func TestQueueingFormulas(t *testing.T) {
	span := 3000 * time.Second
	if testenv.At(testenv.Full) {
		span = 40000 * time.Second
	}
	for _, c := range []struct {
		name   string
		prompt Distribution
		mean   float64 // of the service time in s, and of its square
		square float64
	}{
		// The ceiling of an exponential variable is geometric with p = 1-exp(-1/200).
		{"M/M/1", Exponential(200), 0.2005, 0.0804002},
		{"M/D/1", Constant(200), 0.2, 0.04},
		{"M/G/1", LogNormal(200, 1.5), 0, 0},
	} {
		for _, rate := range []float64{1, 3, 4} {
			var waits, queued, service, squares []float64
			config := single(rate, c.prompt, span)
			config.Trace = func(r Request) {
				if r.Asked < config.Warmup {
					return
				}
				s := float64(r.Prompt) / 1000
				queued = append(queued, (r.Started - r.Asked).Seconds())
				waits, service, squares = append(waits, (r.Ended-r.Asked).Seconds()), append(service, s), append(squares, s*s)
				require.Equal(t, Answered, r.Outcome)
			}
			report, err := Run(config)
			require.NoError(t, err)
			if c.mean == 0 {
				c.mean, c.square = stat.Mean(service, nil), stat.Mean(squares, nil)
			}
			load := rate * c.mean
			want := c.mean + rate*c.square/(2*(1-load))
			if c.name == "M/M/1" {
				require.InEpsilon(t, 1/(1/c.mean-rate), want, 0.005, "the formula of M/M/1 is a case of the other")
			}
			mean, deviation := means(waits)
			t.Logf("%s, rate %v: %.4f s ± %.4f, by the formula %.4f s; utilisation %.3f, by the formula %.3f", c.name, rate, mean, deviation, want, report.Utilisation, load)
			require.InDelta(t, want, mean, 4*deviation, "%s at a rate of %v", c.name, rate)
			waited, deviation := means(queued)
			require.InDelta(t, want-c.mean, waited, 4*deviation, "waiting, %s at a rate of %v", c.name, rate)
			require.Less(t, deviation, 0.2*want, "enough was simulated to tell")
			require.InDelta(t, load, report.Utilisation, 0.03)
		}
	}
}

// busy returns a configuration that reaches everything: bursts, several turns, full
// queues, evictions, losses, requests without a conversation, a proxy with few
// connections.
func busy(groups int) Config {
	step, err := Rates(400, []Rate{{1, 20}, {8, 60}})
	if err != nil {
		panic(err)
	}
	return Config{
		Groups: groups, Seed: 7, Duration: 600 * time.Second, Warmup: 60 * time.Second,
		Workload: Workload{Rate: 0.12 * float64(groups), Burst: 3, Turns: 5, Think: Exponential(15),
			Prompt: LogNormal(150, 1), Answer: LogNormal(60, 1), Keyed: 0.9},
		Proxy:  Proxy{Policy: Hash, Bound: 1.5, Points: 16},
		Client: Client{Retries: 2, RetryAfter: time.Second},
		Model:  model.Info{ContextLength: 4096, MaxTokens: 512},
		Engine: engine.Options{MaxActive: 4, QueueLength: 8, PrefillChunk: 256, CacheEntries: 4},
		Step:   step,
	}
}

// TestEveryRequestEnds: every request ends once, times are in order, the report's counts
// match the trace, and every kind of fault occurs.
func TestEveryRequestEnds(t *testing.T) {
	seen := map[string]bool{}
	for _, policy := range []Policy{Hash, LeastConn} {
		config := busy(4)
		config.Workload.Rate *= 2
		config.Proxy.Policy, config.Proxy.Connections = policy, 24
		config.Losses = Losses{Every: 100 * time.Second, Recover: 60 * time.Second, Detect: time.Second}
		config.Memory = tokenMemory(7000)
		counts, turns := map[Outcome]int{}, map[[2]int]bool{}
		config.Trace = func(r Request) {
			key := [2]int{r.Conversation, r.Turn}
			require.False(t, turns[key], "%v ends twice", key)
			turns[key] = true
			require.True(t, r.Turn == 1 || turns[[2]int{r.Conversation, r.Turn - 1}], "%v before the turn before", key)
			if r.Outcome == Answered {
				require.LessOrEqual(t, r.Asked, r.Started)
				require.Less(t, r.Started, r.First)
				require.LessOrEqual(t, r.First, r.Ended)
				require.Less(t, r.Cached, r.Prompt)
			}
			if r.Asked >= config.Warmup {
				counts[r.Outcome]++
			}
		}
		report, err := Run(config)
		require.NoError(t, err)
		require.Equal(t, map[Outcome]int{Answered: report.Answered, Refused: report.Refused, Broken: report.Broken}, counts)
		require.Equal(t, report.Requests, report.Answered+report.Refused+report.Broken)
		require.NotZero(t, report.Broken)
		require.NotZero(t, report.Refused)
		require.NotZero(t, report.Emptied)
		require.InDelta(t, 0.5, report.Utilisation, 0.5)
		require.LessOrEqual(t, report.Busiest, 1.0)
		for _, b := range report.Breaks {
			seen[b.What] = true
		}
		t.Log(report.First())
	}
	for _, f := range []fault{evicted, queueFull, proxyFull, groupLost} {
		require.True(t, seen[faultTexts[f]], "never: %s", faultTexts[f])
	}
}

// tokenMemory is a budget of so many tokens.
type tokenMemory int64

func (m tokenMemory) SequenceBytes(length int) int64 { return int64(length) }
func (m tokenMemory) CheckpointBytes() int64         { return 0 }
func (m tokenMemory) SequenceBudget() int64          { return int64(m) }

// TestSameSeedSameReport: equal configurations give equal reports, other seeds others.
func TestSameSeedSameReport(t *testing.T) {
	run := func(seed uint64) *Report {
		config := busy(3)
		config.Seed = seed
		config.Losses = Losses{Every: 200 * time.Second, Recover: 20 * time.Second, Detect: time.Second}
		report, err := Run(config)
		require.NoError(t, err)
		return report
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// TestMoreHelps: under the same work, more of what is scarce makes nothing worse.
func TestMoreHelps(t *testing.T) {
	run := func(change func(*Config)) *Report {
		config := busy(4)
		change(&config)
		report, err := Run(config)
		require.NoError(t, err)
		return report
	}
	base := run(func(*Config) {})
	groups := run(func(c *Config) { c.Groups = 8 })
	require.Less(t, groups.FirstToken.P95, base.FirstToken.P95)
	require.Less(t, groups.Utilisation, base.Utilisation)
	require.LessOrEqual(t, groups.Refused, base.Refused)
	fast := run(func(c *Config) {
		step := c.Step
		c.Step = func(prompt, decoding, drafts int) time.Duration { return step(prompt, decoding, drafts) / 2 }
	})
	require.Less(t, fast.FirstToken.P50, base.FirstToken.P50)
	require.Less(t, fast.Between.P50, base.Between.P50)
	cache := run(func(c *Config) { c.Engine.CacheEntries = 64 })
	require.Greater(t, cache.Cached, base.Cached)
	require.Less(t, cache.Evicted, base.Evicted)
	light := run(func(c *Config) { c.Workload.Rate /= 2 })
	require.Less(t, light.FirstToken.P95, base.FirstToken.P95)
	require.Less(t, light.Utilisation, base.Utilisation)
	least := run(func(c *Config) { c.Proxy.Policy = LeastConn; c.Engine.CacheEntries = 64 })
	require.Greater(t, cache.Waiting.P99, light.Waiting.P50)
	hot := run(func(c *Config) { c.Workload.Shared, c.Proxy.Bound, c.Engine.CacheEntries = 0.9, 0, 64 })
	require.Greater(t, hot.Imbalance, 1.2*cache.Imbalance, "a common key puts its conversations on one group")
	bounded := run(func(c *Config) { c.Workload.Shared, c.Proxy.Bound, c.Engine.CacheEntries = 0.9, 1.25, 64 })
	require.Less(t, bounded.Imbalance, hot.Imbalance, "which is what the bound is for")
	require.Less(t, least.Cached, cache.Cached, "affinity is what keeps prefix caches warm")
	require.Greater(t, least.Moved, cache.Moved)
}

// TestNothingBreaks: a group with spare time answers everything, caches every later turn
// and reports so.
func TestNothingBreaks(t *testing.T) {
	config := busy(2)
	config.Workload.Rate, config.Workload.Burst, config.Workload.Keyed = 0.01, 1, 1
	config.Engine.CacheEntries = 16
	report, err := Run(config)
	require.NoError(t, err)
	require.Equal(t, "nothing", report.First())
	require.NotZero(t, report.Later)
	require.Equal(t, report.Requests, report.Answered)
	require.InDelta(t, 0.05, report.Between.P50, 0.001, "alone, a token takes what was measured")
}

// TestRates: interpolation within the measurements and beyond.
func TestRates(t *testing.T) {
	step, err := Rates(100, []Rate{{4, 40}, {1, 20}})
	require.NoError(t, err)
	for _, c := range []struct {
		prompt, decoding, drafts int
		seconds                  float64
	}{{0, 1, 0, 0.05}, {0, 4, 0, 0.1}, {0, 2, 0, 0.05 + 0.05/3}, {0, 7, 0, 0.15}, {50, 0, 0, 0.5}, {50, 4, 0, 0.6}, {0, 1, 3, 0.1}, {50, 4, 10, 0.7}} {
		require.InDelta(t, c.seconds, step(c.prompt, c.decoding, c.drafts).Seconds(), 1e-6, "%+v", c)
	}
	one, err := Rates(100, []Rate{{2, 40}})
	require.NoError(t, err)
	require.InDelta(t, 0.05, one(0, 1, 0).Seconds(), 1e-6)
	require.InDelta(t, 0.1, one(0, 4, 0).Seconds(), 1e-6)
	for name, rates := range map[string][]Rate{"none": nil, "twice": {{1, 2}, {1, 3}}, "no speed": {{1, 0}}, "no sequence": {{0, 1}}, "infinite": {{1, math.Inf(1)}}} {
		_, err := Rates(100, rates)
		require.Error(t, err, name)
	}
	_, err = Rates(math.NaN(), []Rate{{1, 1}})
	require.Error(t, err)
}

// TestBadConfigurations: each is named.
func TestBadConfigurations(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"groups":        func(c *Config) { c.Groups = 0 },
		"warm-up":       func(c *Config) { c.Warmup = c.Duration },
		"times":         func(c *Config) { c.Step = nil },
		"retries":       func(c *Config) { c.Client.Retries = -1 },
		"drafts":        func(c *Config) { c.Drafts = math.NaN() },
		"recovery":      func(c *Config) { c.Losses = Losses{Every: time.Second} },
		"conversations": func(c *Config) { c.Workload.Rate = math.NaN() },
		"bursts":        func(c *Config) { c.Workload.Burst = 0.5 },
		"turns":         func(c *Config) { c.Workload.Turns = 0 },
		"key":           func(c *Config) { c.Workload.Keyed = 2 },
		"common key":    func(c *Config) { c.Workload.Shared = -1 },
		"policy":        func(c *Config) { c.Proxy.Policy = "random" },
		"bound":         func(c *Config) { c.Proxy.Bound = 0.5 },
		"points":        func(c *Config) { c.Proxy.Points = 0 },
		"connections":   func(c *Config) { c.Proxy.Connections = -1 },
		"MaxActive":     func(c *Config) { c.Engine.MaxActive = -3 },
	} {
		config := busy(1)
		change(&config)
		_, err := Run(config)
		require.ErrorContains(t, err, want)
	}
}

// TestRing: a group that goes down gives away only its own conversations, a loaded group
// only new ones, and requests without a conversation take turns.
func TestRing(t *testing.T) {
	groups := make([]*group, 8)
	for i := range groups {
		groups[i] = &group{index: i}
	}
	p := newProxy(Proxy{Policy: Hash, Bound: 1.5, Points: 16}, groups)
	before := map[uint64]*group{}
	for key := range uint64(2000) {
		before[mix(key)] = p.choose(&conversation{key: mix(key), keyed: true})
	}
	groups[3].state = down
	moved := 0
	for key, g := range before {
		now := p.choose(&conversation{key: key, keyed: true})
		require.NotSame(t, groups[3], now)
		if g == groups[3] {
			moved++
		} else {
			require.Same(t, g, now)
		}
	}
	require.NotZero(t, moved)
	groups[3].state = up
	for key, g := range before {
		require.Same(t, g, p.choose(&conversation{key: key, keyed: true}))
	}
	// 16 requests, 14 of them on one group: of 17 x 1.5, 26 slots, each has 4.
	for _, g := range groups {
		g.load = 0
	}
	groups[2].load, groups[5].load = 14, 2
	for key, g := range before {
		now := p.choose(&conversation{key: key, keyed: true})
		require.NotSame(t, groups[2], now)
		if g != groups[2] {
			require.Same(t, g, now)
		}
	}
	turns := map[*group]int{}
	for range 16 {
		turns[p.choose(&conversation{})]++
	}
	for _, g := range groups {
		require.Equal(t, 2, turns[g])
	}
	least := newProxy(Proxy{Policy: LeastConn, Points: 1}, groups)
	require.Same(t, groups[0], least.choose(&conversation{}))
	require.Same(t, groups[1], least.choose(&conversation{}), "of equals in turn")
	for _, g := range groups {
		g.state = down
	}
	require.Nil(t, p.choose(&conversation{}))
}
