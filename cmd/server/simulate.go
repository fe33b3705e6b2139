package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/engine"
	"ringmaster/internal/bench"
	"ringmaster/internal/flags"
	"ringmaster/internal/simulate"
	"ringmaster/internal/usage"
	"ringmaster/model"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	groups            []int
	rates             []float64
	balance           []string
	seed              uint64
	duration, warmup  time.Duration
	prefill           float64
	decode            []simulate.Rate
	bench             string
	burst, turns      float64
	think             time.Duration
	prompt, answer    float64
	spread, keyed     float64
	shared            float64
	bound             float64
	points, maxconn   int
	retries           int
	retryAfter        time.Duration
	every, recover    time.Duration
	detect            time.Duration
	engine            engine.Options
	ctx, batch, cache int
	asJSON            bool
}

// newSimulate builds the command that simulates many groups.
func newSimulate() *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate --prefill 400 --decode 1=20,8=60 [--groups 1,10,100,1000]",
		Short: "Say what many groups behind a proxy would do, and what breaks first",
		Long: `Simulates groups behind a proxy in virtual time, one line for each combination of
--groups, --rate and --balance: conversations with turns arrive, the proxy chooses a
group as packaging/scaling/haproxy.cfg does (hash) or the one with the fewest requests
(leastconn), and each group has the scheduler, queue and prefix cache of a server.

How long a step takes is what bench measured: --bench with the lines of
ringmaster bench --json, or --prefill and --decode in tokens a second. --decode has the
rate of all sequences of a step together, for one or more numbers of sequences.

Lengths are log-normal, think times exponential, numbers of turns geometric. Equal
flags give equal output. Nothing is known of the network, of HAProxy's own time, or of
sequences that get slower as they get longer.`,
		Example: `  ringmaster simulate --prefill 400 --decode 1=20,8=60 --groups 1,10,100
  ringmaster bench --model F.gguf --decode 64 --sequences 1 --json > bench.json
  ringmaster bench --model F.gguf --decode 64 --prefill 0 --sequences 8 --json >> bench.json
  ringmaster simulate --bench bench.json --rate 0.01,0.02,0.05 --balance hash,leastconn`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stopped(cmd.Context(), o.run(cmd.Context(), cmd.OutOrStdout()))
		},
	}
	f := cmd.Flags()
	flags.Ints(f, &o.groups, "groups", []int{1}, flags.Within(1, simulate.MaxGroups), "`numbers` of groups")
	flags.Floats(f, &o.rates, "rate", []float64{0.02}, flags.AboveZero(), "new conversations a second for each group; `rates`")
	flags.SomeOf(f, &o.balance, "balance", []string{string(simulate.Hash)}, []string{string(simulate.Hash), string(simulate.LeastConn)}, "how the proxy chooses a group: hash, leastconn; `policies`")
	flags.Seed(f, &o.seed, "seed", 1, "`seed` of the random numbers, from 0 on")
	flags.Duration(f, &o.duration, "duration", 15*time.Minute, flags.AnyDuration(), "simulated time in which clients ask; what was asked is answered after it too")
	flags.Duration(f, &o.warmup, "warmup", 3*time.Minute, flags.FromDuration(0), "part of it at the start that is not in the figures; 0: none")
	flags.Float(f, &o.prefill, "prefill", 0, flags.AboveZero(), "`tokens` of a prompt that a group runs in a second")
	flags.TypedList(f, &o.decode, "decode", true, simulate.RateForm, simulate.ParseRate, "SEQUENCES=TOKENS a second of all of them; `rates`")
	flags.File(f, &o.bench, "bench", "`file` with lines of bench --json, in place of --prefill and --decode")
	flags.Float(f, &o.burst, "burst", 1, flags.FromFloat(1), "mean number of conversations that begin at the same moment")
	flags.Float(f, &o.turns, "turns", 5, flags.FromFloat(1), "mean number of requests of a conversation")
	flags.Duration(f, &o.think, "think", 20*time.Second, flags.FromDuration(0), "mean time from an answer to the next request; 0: at once")
	flags.Float(f, &o.prompt, "prompt", 300, flags.FromFloat(1), "mean `tokens` that a request adds to its conversation")
	flags.Float(f, &o.answer, "answer", 150, flags.FromFloat(1), "mean `tokens` of an answer")
	flags.Float(f, &o.spread, "spread", 1, flags.FromFloat(0), "standard deviation of these lengths, by the mean; 0: all alike")
	flags.Float(f, &o.keyed, "keyed", 1, flags.Within(0.0, 1.0), "share of conversations that the proxy can tell from others; 0: of none")
	flags.Float(f, &o.shared, "shared", 0, flags.Within(0.0, 1.0), "share of these that it takes for one, as those of a program that names only itself; 0: none")
	flags.Float(f, &o.bound, "bound", 2, flags.FromFloat(0), "most load of a group for a new request, by the average; 0: not bounded")
	flags.Int(f, &o.points, "points", 16, flags.From(1), "points of a group on the ring; HAProxy has 16 for each unit of weight")
	flags.Int(f, &o.maxconn, "maxconn", 1000, flags.From(0), "most requests under way in the proxy, others wait; 0: not limited")
	flags.Int(f, &o.retries, "retries", 2, flags.From(0), "how often a client repeats a request that was refused; 0: never")
	flags.Duration(f, &o.retryAfter, "retry-after", time.Second, flags.FromDuration(0), "after how long it does; 0: at once")
	flags.Duration(f, &o.every, "lost-every", 0, flags.FromDuration(0), "mean time of a group until it is lost; 0: never")
	flags.Duration(f, &o.recover, "recover", 2*time.Minute, flags.AnyDuration(), "until a lost group serves again")
	flags.Duration(f, &o.detect, "detect", time.Second, flags.FromDuration(0), "until the proxy knows that a group is lost; 0: at once")
	flags.Int(f, &o.engine.MaxActive, "max-active", 8, flags.From(1), "as of serve")
	flags.Int(f, &o.engine.QueueLength, "queue", 64, flags.From(0), "as of serve; 0: none")
	flags.Int(f, &o.engine.Sessions, "sessions", 8, flags.From(0), "as of serve; 0: none")
	flags.Duration(f, &o.engine.SessionTimeout, "session-timeout", time.Hour, flags.FromDuration(0), "as of serve; 0: without end")
	flags.Int(f, &o.ctx, "ctx,c", 16384, flags.From(2), "as of serve")
	flags.Int(f, &o.batch, "max-batch", 512, flags.From(1), "as of serve")
	flags.Int(f, &o.cache, "kv-tokens", 0, flags.From(0), "most `tokens` of all sequences of a group; 0: not limited")
	flags.Bool(f, &o.asJSON, "json", false, "print a line of JSON for each simulation")
	return cmd
}

// tokenBudget is a budget for sequences that is counted in tokens.
type tokenBudget int64

// SequenceBytes is the length.
func (b tokenBudget) SequenceBytes(length int) int64 { return int64(length) }

// SequenceBudget is the budget.
func (b tokenBudget) SequenceBudget() int64 { return int64(b) }

// run simulates every combination and prints each as soon as it is known.
func (o *simulateOptions) run(ctx context.Context, w io.Writer) error {
	configs, err := o.configs()
	if err != nil {
		return usage.Wrap(err)
	}
	var reports []*simulate.Report
	for _, c := range configs {
		c.Context = ctx
		r, err := simulate.Run(c)
		if err != nil {
			return usage.Wrap(err)
		}
		if !o.asJSON {
			reports = append(reports, r)
		} else if err := json.NewEncoder(w).Encode(r); err != nil {
			return err
		}
	}
	if o.asJSON {
		return nil
	}
	return simulate.WriteReports(w, reports)
}

// configs are the simulations that the flags ask for.
func (o *simulateOptions) configs() (all []simulate.Config, err error) {
	step, err := o.times()
	if err != nil {
		return nil, err
	}
	opts := limitsOf(o.engine, o.batch)
	var memory model.Sized
	if o.cache > 0 {
		memory = tokenBudget(o.cache)
	}
	for _, groups := range o.groups {
		for _, rate := range o.rates {
			// A conversation is there while its client thinks, and longer.
			turns := min(o.turns, float64(o.ctx)) - 1
			if n := o.burst + rate*float64(groups)*min(o.duration.Seconds(), turns*o.think.Seconds()); n > simulate.MostAtOnce {
				return nil, fmt.Errorf("%d groups with %.4g conversations a second each, which think %v between %.4g requests, and bursts of %.4g have %.3g conversations at once, at most %d can be simulated; lower --groups, --rate, --think, --turns, --duration or --burst",
					groups, rate, o.think, o.turns, o.burst, n, simulate.MostAtOnce)
			}
			for _, policy := range o.balance {
				all = append(all, simulate.Config{
					Groups: groups, Seed: o.seed, Duration: o.duration, Warmup: o.warmup,
					Workload: simulate.Workload{
						Rate: rate * float64(groups), Burst: o.burst, Turns: o.turns, Think: simulate.Exponential(o.think.Seconds()),
						Prompt: simulate.LogNormal(o.prompt, o.spread), Answer: simulate.LogNormal(o.answer, o.spread), Keyed: o.keyed, Shared: o.shared,
					},
					Proxy:  simulate.Proxy{Policy: simulate.Policy(policy), Bound: o.bound, Points: o.points, Connections: o.maxconn},
					Client: simulate.Client{Retries: o.retries, RetryAfter: o.retryAfter},
					Losses: simulate.Losses{Every: o.every, Recover: o.recover, Detect: o.detect},
					Model:  model.Info{ContextLength: o.ctx, MaxTokens: o.batch}, Memory: memory, Engine: opts, Step: step,
				})
			}
		}
	}
	return all, nil
}

// times are those of a step, from what was measured.
func (o *simulateOptions) times() (simulate.StepTime, error) {
	prefill, decode := o.prefill, o.decode
	switch given := prefill != 0 || len(o.decode) > 0; {
	case o.bench != "" && given:
		return nil, errors.New("--bench gives the rates; leave --prefill and --decode out")
	case o.bench != "":
		var err error
		if prefill, decode, err = bench.ReadRates(o.bench); err != nil {
			return nil, err
		}
	case prefill == 0 || len(o.decode) == 0:
		return nil, errors.New("how fast is a group? Give --bench with the output of ringmaster bench --json, or --prefill and --decode")
	}
	return simulate.Rates(prefill, decode)
}
