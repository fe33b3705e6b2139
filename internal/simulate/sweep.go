package simulate

import (
	"fmt"
	"time"

	"ringmaster/engine"
	"ringmaster/model"
)

// Sweep is one simulation for each combination of numbers of groups, rates and policies.
type Sweep struct {
	Groups  []int
	Rates   []float64 // new conversations per second for each group
	Balance []string  // policies of the proxy

	Seed                   uint64
	Duration, Warmup       time.Duration
	Burst, Turns           float64       // means: conversations that begin together, requests of a conversation
	Think                  time.Duration // mean time from an answer to the next request
	Prompt, Answer         float64       // mean tokens
	Spread                 float64       // standard deviation of these lengths, relative to the mean
	Drafts                 float64       // chance of the next token of an answer to be guessed; 0: no drafts
	Keyed, Shared          float64       // fractions of conversations that the proxy can distinguish, and that it takes for one
	Bound                  float64       // highest load of a group for a new request, relative to the average
	Points, Connections    int           // of the proxy
	Retries                int
	RetryAfter             time.Duration
	Every, Recover, Detect time.Duration // losses of groups
	Engine                 engine.Options
	Context, MaxTokens     int // of the model
	Cache                  int // most tokens of all sequences of a group; 0: not limited
}

// Configs returns the simulations of a sweep with steps that take such times.
func (s *Sweep) Configs(step StepTime) (all []Config, err error) {
	var memory model.Sized
	if s.Cache > 0 {
		memory = tokenBudget(s.Cache)
	}
	for _, groups := range s.Groups {
		for _, rate := range s.Rates {
			// A conversation exists while its client thinks, and longer.
			turns := min(s.Turns, float64(s.Context)) - 1
			if n := s.Burst + rate*float64(groups)*min(s.Duration.Seconds(), turns*s.Think.Seconds()); n > MostAtOnce {
				return nil, fmt.Errorf("%d groups with %.4g conversations a second each, which think %v between %.4g requests, and bursts of %.4g have %.3g conversations at once, at most %d can be simulated; lower --groups, --rate, --think, --turns, --duration or --burst",
					groups, rate, s.Think, s.Turns, s.Burst, n, MostAtOnce)
			}
			for _, policy := range s.Balance {
				all = append(all, Config{
					Groups: groups, Seed: s.Seed, Duration: s.Duration, Warmup: s.Warmup,
					Workload: Workload{
						Rate: rate * float64(groups), Burst: s.Burst, Turns: s.Turns, Think: Exponential(s.Think.Seconds()),
						Prompt: LogNormal(s.Prompt, s.Spread), Answer: LogNormal(s.Answer, s.Spread), Keyed: s.Keyed, Shared: s.Shared,
					},
					Proxy:  Proxy{Policy: Policy(policy), Bound: s.Bound, Points: s.Points, Connections: s.Connections},
					Client: Client{Retries: s.Retries, RetryAfter: s.RetryAfter},
					Losses: Losses{Every: s.Every, Recover: s.Recover, Detect: s.Detect},
					Model:  model.Info{ContextLength: s.Context, MaxTokens: s.MaxTokens}, Memory: memory, Engine: s.Engine, Step: step, Drafts: s.Drafts,
				})
			}
		}
	}
	return all, nil
}

// tokenBudget is a budget for sequences that is counted in tokens.
type tokenBudget int64

// SequenceBytes returns the length.
func (b tokenBudget) SequenceBytes(length int) int64 { return int64(length) }

// CheckpointBytes returns 0: the simulation does not count the memory of checkpoints.
func (b tokenBudget) CheckpointBytes() int64 { return 0 }

// SequenceBudget returns the budget.
func (b tokenBudget) SequenceBudget() int64 { return int64(b) }
