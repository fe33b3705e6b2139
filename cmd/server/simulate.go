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
	"ringmaster/internal/picture"
	"ringmaster/internal/server"
	"ringmaster/internal/simulate"
	"ringmaster/internal/usage"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	simulate.Sweep
	prefill float64
	decode  []simulate.Rate
	bench   string
	asJSON  bool
	svg     string
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
	flags.Ints(f, &o.Groups, "groups", []int{1}, flags.Within(1, simulate.MaxGroups), "`numbers` of groups")
	flags.Floats(f, &o.Rates, "rate", []float64{0.02}, flags.AboveZero(), "new conversations a second for each group; `rates`")
	flags.SomeOf(f, &o.Balance, "balance", []string{string(simulate.Hash)}, []string{string(simulate.Hash), string(simulate.LeastConn)}, "how the proxy chooses a group: hash, leastconn; `policies`")
	flags.Seed(f, &o.Seed, "seed", 1, "`seed` of the random numbers, from 0 on")
	flags.Duration(f, &o.Duration, "duration", 15*time.Minute, flags.AnyDuration(), "simulated time in which clients ask; what was asked is answered after it too")
	flags.Duration(f, &o.Warmup, "warmup", 3*time.Minute, flags.FromDuration(0), "part of it at the start that is not in the figures; 0: none")
	flags.Float(f, &o.prefill, "prefill", 0, flags.AboveZero(), "`tokens` of a prompt that a group runs in a second")
	flags.TypedList(f, &o.decode, "decode", true, simulate.RateForm, simulate.ParseRate, "SEQUENCES=TOKENS a second of all of them; `rates`")
	flags.File(f, &o.bench, "bench", "`file` with lines of bench --json, in place of --prefill and --decode")
	flags.Float(f, &o.Burst, "burst", 1, flags.FromFloat(1), "mean number of conversations that begin at the same moment")
	flags.Float(f, &o.Turns, "turns", 5, flags.FromFloat(1), "mean number of requests of a conversation")
	flags.Duration(f, &o.Think, "think", 20*time.Second, flags.FromDuration(0), "mean time from an answer to the next request; 0: at once")
	flags.Float(f, &o.Prompt, "prompt", 300, flags.FromFloat(1), "mean `tokens` that a request adds to its conversation")
	flags.Float(f, &o.Answer, "answer", 150, flags.FromFloat(1), "mean `tokens` of an answer")
	flags.Float(f, &o.Spread, "spread", 1, flags.FromFloat(0), "standard deviation of these lengths, by the mean; 0: all alike")
	flags.Float(f, &o.Drafts, "drafts", 0, flags.Within(0.0, 1.0), "share of drafts that are right, as of serve; a draft takes what a further sequence does, beside prompts what a token of theirs does; 0: none")
	flags.Float(f, &o.Keyed, "keyed", 1, flags.Within(0.0, 1.0), "share of conversations that the proxy can tell from others; 0: of none")
	flags.Float(f, &o.Shared, "shared", 0, flags.Within(0.0, 1.0), "share of these that it takes for one, as those of a program that names only itself; 0: none")
	flags.Float(f, &o.Bound, "bound", 2, flags.FromFloat(0), "most load of a group for a new request, by the average; 0: not bounded")
	flags.Int(f, &o.Points, "points", 16, flags.From(1), "points of a group on the ring; HAProxy has 16 for each unit of weight")
	flags.Int(f, &o.Connections, "maxconn", 1000, flags.From(0), "most requests in the proxy at once, others wait; 0: not limited")
	flags.Int(f, &o.Retries, "retries", 2, flags.From(0), "how often a client repeats a request that was refused; 0: never")
	flags.Duration(f, &o.RetryAfter, "retry-after", time.Second, flags.FromDuration(0), "after how long it does; 0: at once")
	flags.Duration(f, &o.Every, "lost-every", 0, flags.FromDuration(0), "mean time of a group until it is lost; 0: never")
	flags.Duration(f, &o.Recover, "recover", 2*time.Minute, flags.AnyDuration(), "until a lost group serves again")
	flags.Duration(f, &o.Detect, "detect", time.Second, flags.FromDuration(0), "until the proxy knows that a group is lost; 0: at once")
	d := engine.Defaults()
	flags.Int(f, &o.Engine.MaxActive, "max-active", d.MaxActive, flags.From(1), "as of serve")
	flags.Int(f, &o.Engine.QueueLength, "queue", d.QueueLength, flags.From(0), "as of serve; 0: none")
	flags.Int(f, &o.Engine.CacheEntries, "cache-entries", d.CacheEntries, flags.From(0), "as of serve; 0: none")
	flags.Duration(f, &o.Engine.CacheTimeout, "cache-timeout", d.CacheTimeout, flags.FromDuration(0), "as of serve; 0: without end")
	flags.Duration(f, &o.Engine.TokenLatency, "token-latency", d.TokenLatency, flags.FromDuration(0), "as of serve; 0: not bounded")
	flags.Int(f, &o.Context, "ctx,c", 16384, flags.From(2), "as of serve")
	flags.Int(f, &o.MaxTokens, "max-batch", 512, flags.From(1), "as of serve")
	flags.Int(f, &o.Cache, "kv-tokens", 0, flags.From(0), "most `tokens` of all sequences of a group; 0: not limited")
	flags.Bool(f, &o.asJSON, "json", false, "print a line of JSON for each simulation")
	flags.Out(f, &o.svg, "svg", "", "`file` for a picture of the times by --rate, a line for each number of groups and policy")
	return cmd
}

// run simulates every combination and prints each as soon as it is known.
func (o *simulateOptions) run(ctx context.Context, w io.Writer) error {
	if err := flags.CheckOut("svg", o.svg); err != nil {
		return err
	}
	step, err := o.times()
	if err != nil {
		return usage.Wrap(err)
	}
	o.Engine = server.Limits(o.Engine)
	configs, err := o.Configs(step)
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
		reports = append(reports, r)
		if o.asJSON {
			if err := json.NewEncoder(w).Encode(r); err != nil {
				return err
			}
		}
	}
	if o.svg != "" {
		if err := picture.Write(o.svg, simulate.Charts(reports)...); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	if o.asJSON {
		return nil
	}
	return simulate.WriteReports(w, reports)
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
