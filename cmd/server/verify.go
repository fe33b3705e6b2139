package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/internal/flags"
	"ringmaster/internal/forecast"
	"ringmaster/internal/program"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
	"ringmaster/internal/verify"
	"ringmaster/kernels/cpu"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/node"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	api                    verify.API
	record, report, reduce string
	asJSON                 bool
	group                  groupChecks
	given                  func(name string) bool // on the command line
}

// newVerify builds the command that examines a server that runs.
func newVerify() *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify [--url URL [--against URL | --recorded FILE]] [--coordinator HOST:PORT]",
		Short: "Check a server that runs: its answers, token by token, its speed, its ranks and links",
		Long: `Asks a server the same prompts at temperature 0 in several ways and compares tokens
and log-probabilities: twice in turn, alone and all at once, and with another server
(one rank with the same model) or with what was recorded of one. It measures prefill
and decode. Every figure and verdict goes into the report.

With --reduce exact all must be the same to the last bit. With --reduce sum ranks
round partial sums: the median difference of log-probabilities decides.

With --coordinator it examines the group itself, between the steps of its requests:
what each rank has in memory of the model and computes with it is compared, bit by bit,
with another rank that does the same from its own file (with --model, with this host
too), and data of known content is sent over each link in both directions. What
differs is named by rank, layer and kind. Without --url the API is not asked then.

Exit code 0: all passed; 5: something differs or is too slow; 1: a server could not
be asked; 2: the command cannot work as it was given.`,
		Example: `  ringmaster verify --url http://10.0.0.1:8080 --against http://10.0.0.9:8080
  ringmaster verify --url http://one:8080 --record one.json
  ringmaster verify --url http://many:8080 --recorded one.json --report report.json
  ringmaster verify --coordinator 10.0.0.1:9000 --cluster-key-file cluster.key --link 10g --soak 10s`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			return stopped(cmd.Context(), o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	flags.URL(f, &o.api.URL, "url", defaultURL, "`address` of the server to examine")
	flags.Text(f, &o.api.Key, "api-key", "", "its `key`")
	flags.URL(f, &o.api.Against, "against", "", "`address` of a server to compare with, such as one rank")
	flags.Text(f, &o.api.AgainstKey, "against-key", "", "that server's `key`")
	settings.MarkSecret(f, "api-key", "against-key")
	flags.File(f, &o.api.Recorded, "recorded", "`file` of --record to compare with")
	flags.Out(f, &o.record, "record", "", "write the answers to a new `file`")
	flags.Out(f, &o.report, "report", "", "write the report as JSON to a `file`")
	flags.OneOf(f, &o.reduce, "reduce", "sum", reduceWords, "how the group adds: sum or exact")
	flags.Int(f, &o.api.Tokens, "tokens", 120, flags.Within(2, 4096), "tokens of each answer")
	flags.Float(f, &o.api.Tolerance, "tolerance", 0.1, flags.FromFloat(0), "with --reduce sum, the largest median difference of log-probabilities; 0: none may differ")
	flags.Float(f, &o.api.Decode, "expect-decode", 0, flags.FromFloat(0), "least tokens/s of one sequence; 0 is any")
	flags.Duration(f, &o.api.Limit, "timeout", 10*time.Minute, flags.AnyDuration(), "longest time for one request")
	o.group.register(f)
	flags.Bool(f, &o.asJSON, "json", false, "print the report as JSON")
	return cmd
}

func (o *verifyOptions) check() error {
	if o.api.Against != "" && o.api.Recorded != "" {
		return usage.Errorf("give --against or --recorded, not both")
	}
	return o.group.check(o.given)
}

// asksAPI reports whether the server is asked as its clients do: unless only the group is
// to be examined.
func (o *verifyOptions) asksAPI() bool {
	return o.group.cluster.Coordinator == "" || o.given("url") || o.api.Against != "" || o.api.Recorded != "" || o.record != ""
}

// run examines, writes the files, prints, and says by its error what failed.
func (o *verifyOptions) run(ctx context.Context, w, progress io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	for flag, path := range map[string]string{"record": o.record, "report": o.report} {
		if err := flags.CheckOut(flag, path); err != nil {
			return err
		}
	}
	o.api.Exact = o.reduce == "exact"
	report, made := &verify.Report{Verdict: verify.Pass}, (*verify.Record)(nil)
	if o.asksAPI() {
		var err error
		if report, made, err = o.api.Ask(ctx); err != nil {
			return err
		}
	}
	if o.group.cluster.Coordinator != "" {
		if err := o.group.run(ctx, report, o.api.Limit, progress); err != nil {
			return err
		}
	}
	report.Time, report.Program = time.Now().UTC(), program.Version()
	if err := o.write(w, report, made); err != nil {
		return err
	}
	if report.Verdict != verify.Pass {
		return &verdict{5, "verify: not everything passed"}
	}
	return nil
}

// write writes the files that were asked for, and prints.
func (o *verifyOptions) write(w io.Writer, report *verify.Report, made *verify.Record) error {
	for _, file := range []struct {
		path string
		text func() ([]byte, error)
	}{{o.report, report.JSON}, {o.record, made.JSON}} {
		if file.path == "" {
			continue
		}
		text, err := file.text()
		if err == nil {
			err = os.WriteFile(file.path, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if !o.asJSON {
		return report.Write(w)
	}
	text, err := report.JSON()
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// groupChecks are the flags by which verify examines a group from within.
type groupChecks struct {
	cluster clusterOptions // coordinator, keyFile and encrypt
	verify.GroupChecks
	link  forecast.Link
	model node.Options // file, threads and level
}

func (o *groupChecks) register(f *pflag.FlagSet) {
	flags.Address(f, &o.cluster.Coordinator, "coordinator", "", "examine the group of the leader at `HOST:PORT`: ranks and links")
	flags.File(f, &o.cluster.keyFile, "cluster-key-file", "`file` with the secret that all ranks share")
	o.cluster.registerEncrypt(f)
	flags.Bool(f, &o.Recompute, "recompute", true, "with --coordinator, compute each rank's part of the model on another rank too")
	flags.Duration(f, &o.Soak, "soak", 2*time.Second, flags.Within(0, time.Hour), "with --coordinator, how long data is sent over each link in each direction; 0 is not at all")
	flags.Typed(f, &o.link, "link", "", forecast.LinkForm, forecast.ParseLink, "what is expected of a link, as for plan: `NAME`, or a rate with a latency such as 3GB/s,20us")
	flags.Duration(f, &o.Pause, "pause", 100*time.Millisecond, flags.Within(time.Millisecond, 5*time.Second), "how long requests to the group should wait at once for what it examines")
	flags.Float(f, &o.Rest, "rest", 1, flags.Within(0.0, 1000.0), "by which factor of such a pause the group is left alone after it; 0: not at all")
	flags.File(f, &o.model.File.Path, "model,m", "the model's GGUF `file` on this host, which then decides which rank is wrong")
	flags.Int(f, &o.model.Threads, "threads,t", 0, flags.Within(0, cpu.MaxThreads), "threads of this host's kernels with --model; 0 is one per core")
	flags.WordOf(f, &o.model.Level, "simd", "auto", simdWords, cpu.ParseLevel, "their instruction set: auto, portable, avx2, avx512, amx or neon, that of the ranks, for results to be compared")
	registerActivations(f, &o.model.Activations, "bits of their activations: 15 or 8, those of the ranks")
	flags.Seed(f, &o.Seed, "seed", 0, "of the data; 0 is another each time")
}

// check validates the flags; given are those of the command line.
func (o *groupChecks) check(given func(name string) bool) error {
	if o.cluster.Coordinator == "" {
		for _, name := range []string{"cluster-key-file", "recompute", "soak", "link", "pause", "rest", "model", "threads", "simd", "activations", "seed"} {
			if given(name) {
				return usage.Errorf("--%s examines a group: give --coordinator HOST:PORT, where rank 0 listens for the other ranks", name)
			}
		}
		return nil
	}
	if err := o.cluster.checkEncrypt(); err != nil {
		return usage.Wrap(err)
	}
	if !o.Recompute && o.Soak == 0 {
		return usage.Errorf("--recompute=false and --soak 0 leave nothing to examine of the group; leave --coordinator out")
	}
	return nil
}

// run examines the group and adds to the report. An error means that it could not be
// examined.
func (o *groupChecks) run(ctx context.Context, r *verify.Report, limit time.Duration, progress io.Writer) error {
	key, err := o.cluster.key()
	if err != nil {
		return usage.Wrap(err)
	}
	if o.link.Rate > 0 {
		o.Expected = &verify.Expected{Name: o.link.String(), Rate: o.link.Rate, Latency: o.link.Latency}
	}
	host, end, err := o.arbiter(ctx)
	if err != nil {
		return err
	}
	defer end()
	r.Coordinator = o.cluster.Coordinator
	conn, err := cluster.Examine(ctx, cluster.Config{Coordinator: o.cluster.Coordinator, Key: key, Encrypt: o.cluster.Encrypt.TCP()})
	if err != nil {
		return err
	}
	defer conn.Close()
	return o.Run(ctx, conn, host, r, limit, progress)
}

// arbiter opens the model of --model, and returns nil without one. It needs no memory for
// it beyond what is mapped.
func (o *groupChecks) arbiter(ctx context.Context) (h *verify.Host, end func(), err error) {
	if o.model.File.Path == "" {
		return nil, func() {}, nil
	}
	o.model.Compute.Backend = node.CPUBackend
	n := node.New(o.model)
	if err = n.Open(ctx); err != nil {
		return nil, nil, err
	}
	d, err := arch.Open(n.File, n.Backend, decoder.OpenOptions{Context: 2, MaxTokens: 64})
	if err != nil {
		n.Close()
		return nil, nil, usage.Wrap(err)
	}
	n.Model = d
	return &verify.Host{Arbiter: d, Path: o.model.File.Path, Fingerprint: gguf.Fingerprint(n.File), Kernels: n.Kernels}, n.Close, nil
}
