//go:build unix

// Command correctness compares the answers of a cluster on this host with those of
// one rank. See scripts/correctness.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/groupplan"
	"ringmaster/tests/cluster/harness"
)

// errDiffer makes main exit with code 1 without a further message.
var errDiffer = errors.New("answers differ")

// options are the flags.
type options struct {
	program   string
	model     string
	ranks     int
	share     string
	reduce    []string
	prompts   []int
	tokens    int
	seed      uint64
	tolerance float64
	strict    bool
	limit     time.Duration
	flags     []string // after --, for every rank
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err != nil {
		if !errors.Is(err, errDiffer) {
			fmt.Fprintln(os.Stderr, "correctness:", err)
		}
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "correctness [flags] [-- flags of every rank]",
		Short: "Compare the answers of a cluster with those of one rank",
		Long: `Starts one rank and then a cluster of --ranks ranks on this host, sends both the
same prompts at temperature 0, and compares the answers.

With --reduce exact every token, its log-probability and those of the five most
likely alternatives must be identical.

With --reduce sum the cluster rounds partial sums to float16. That changes every
log-probability slightly, and where two experts or two tokens are almost equal a
different one may be chosen; after such a token the answers have nothing in common.
Therefore the cluster also evaluates the tokens of one rank, and the
log-probabilities at all positions are compared: their median difference must not
exceed --tolerance (with other weights it is about 9). The first differing token is
shown; it is an error only with --strict. The proof is --reduce exact.`,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.flags = args
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.program, "binary", "bin/ringmaster", "`file` of the program")
	f.StringVarP(&o.model, "model", "m", "", "GGUF `file`; default is the built-in model")
	f.IntVar(&o.ranks, "ranks", 2, "ranks of the cluster")
	f.StringVar(&o.share, "share", groupplan.AutoShare, "what the cluster divides, as for serve")
	f.StringSliceVar(&o.reduce, "reduce", []string{"exact", "sum"}, "values of --reduce to compare")
	f.IntSliceVar(&o.prompts, "prompts", []int{1, 130, 700, 3000}, "lengths of the prompts")
	f.IntVar(&o.tokens, "tokens", 300, "tokens of each answer")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the prompts")
	f.Float64Var(&o.tolerance, "tolerance", 0.1, "with --reduce sum, the largest median difference of log-probabilities")
	f.BoolVar(&o.strict, "strict", false, "with --reduce sum, treat a different token as an error")
	f.DurationVar(&o.limit, "limit", 30*time.Minute, "time limit of the whole run")
	return c
}

func (o *options) check() error {
	switch {
	case o.ranks < 1 || o.ranks > 64:
		return fmt.Errorf("--ranks is %d; expected 1 to 64", o.ranks)
	case o.tokens < 1:
		return fmt.Errorf("--tokens is %d; expected 1 or more", o.tokens)
	}
	for _, n := range o.prompts {
		if n < 1 {
			return fmt.Errorf("--prompts contains %d; expected 1 or more", n)
		}
	}
	for _, r := range o.reduce {
		if r != "exact" && r != "sum" {
			return fmt.Errorf("--reduce contains %q; expected exact or sum", r)
		}
	}
	return nil
}

// run compares with each value of --reduce.
func (o *options) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("--limit %v exceeded", o.limit))
	defer cancel()
	v, err := harness.ReadVocabulary(o.model)
	if err != nil {
		return err
	}
	prompts, err := o.makePrompts(v)
	if err != nil {
		return err
	}
	differ := false
	for _, reduce := range o.reduce {
		same, err := o.compare(ctx, v, reduce, prompts)
		if err != nil {
			return fmt.Errorf("--reduce %s: %w", reduce, err)
		}
		differ = differ || !same
	}
	if differ {
		return errDiffer
	}
	return nil
}

// makePrompts generates the prompts, shortened if the context has no room for the answer.
func (o *options) makePrompts(v *harness.Vocabulary) ([][]int32, error) {
	// A request for the log-probabilities of prompt and answer generates one more.
	room := v.Context - o.tokens - 1
	if room < 1 {
		return nil, fmt.Errorf("--tokens %d leaves no room for a prompt in the model's context of %d", o.tokens, v.Context)
	}
	var prompts [][]int32
	for i, n := range o.prompts {
		if n > room {
			fmt.Printf("prompt of %d tokens shortened to %d: the context has %d\n", n, room, v.Context)
			n = room
		}
		prompts = append(prompts, v.Prompt(o.seed+uint64(i), n))
	}
	return prompts, nil
}

// compare runs one rank and the cluster and reports whether they agree.
func (o *options) compare(ctx context.Context, v *harness.Vocabulary, reduce string, prompts [][]int32) (bool, error) {
	one := make([]*harness.Answer, len(prompts))
	err := o.with(ctx, 1, reduce, func(c *harness.Client) (err error) {
		for i, p := range prompts {
			if one[i], err = harness.Ask(ctx, c, p, o.tokens); err != nil {
				return fmt.Errorf("prompt of %d tokens: %w", len(p), err)
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("one rank: %w", err)
	}
	good := true
	err = o.with(ctx, o.ranks, reduce, func(c *harness.Client) error {
		for i, p := range prompts {
			start := time.Now()
			many, err := harness.Ask(ctx, c, p, o.tokens)
			if err != nil {
				return fmt.Errorf("prompt of %d tokens: %w", len(p), err)
			}
			took := time.Since(start).Round(time.Millisecond)
			if reduce == "exact" {
				good = o.printExact(harness.CompareExact(one[i], many, len(p)), took) && good
				continue
			}
			verdict, err := harness.CompareSum(ctx, c, v, p, one[i], many)
			if err != nil {
				return fmt.Errorf("prompt of %d tokens: %w", len(p), err)
			}
			good = o.printSum(verdict, took) && good
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("%d ranks: %w", o.ranks, err)
	}
	return good, nil
}

// auto is the line in which rank 0 says what --share auto chose. With --reduce exact that
// changes no bit; with sum it decides which sums are rounded.
var auto = regexp.MustCompile(`(?m)^--share auto .*$`)

// with runs do on a cluster of the given size.
func (o *options) with(ctx context.Context, size int, reduce string, do func(*harness.Client) error) error {
	flags := []string{"--reduce", reduce}
	if size > 1 {
		// The limit is long, because all ranks share one host, which may delay one of
		// them.
		flags = append(flags, "--peer-timeout", "1m", "--share", o.share)
	}
	c, err := harness.NewCluster(harness.Options{Program: o.program, Model: o.model, Size: size, Flags: append(flags, o.flags...)})
	if err != nil {
		return err
	}
	defer c.Close()
	if err = c.StartAll(ctx); err == nil {
		if chosen := auto.FindString(c.Rank(0).Log.String()); chosen != "" {
			fmt.Println(chosen)
		}
		err = do(c.Client)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.Logs())
	}
	return nil
}

// printExact prints the result of --reduce exact and reports whether it is good.
func (o *options) printExact(v harness.Verdict, took time.Duration) bool {
	head := fmt.Sprintf("exact  1 and %d ranks  prompt %4d  ", o.ranks, v.Prompt)
	switch {
	case v.Position >= 0:
		fmt.Printf("%sDIFFERENT: token %d of %d: one rank %s, %d ranks %s\n", head, v.Position, v.Tokens, name(v.One), o.ranks, name(v.Many))
	case v.Bits >= 0:
		fmt.Printf("%sDIFFERENT BITS: the tokens are the same, but at token %d one rank has %s, %d ranks %s\n", head, v.Bits, name(v.One), o.ranks, name(v.Many))
	default:
		fmt.Printf("%ssame %d tokens, same bits  (%v)\n", head, v.Tokens, took)
		return true
	}
	return false
}

// printSum prints the result of --reduce sum and reports whether it is good. The median
// decides, because rounding changes all log-probabilities slightly, and much where it
// changes the selected experts: at few positions in a trained model, at many with random
// weights.
func (o *options) printSum(v harness.Verdict, took time.Duration) bool {
	head := fmt.Sprintf("sum    1 and %d ranks  prompt %4d  ", o.ranks, v.Prompt)
	rest := fmt.Sprintf("log-probabilities of all %d tokens differ by %.2g (median), %.2g (95 %%), %.2g (max); %d other top tokens  (%v)",
		v.Tokens, v.Quantile(0.5), v.Quantile(0.95), v.Quantile(1), v.Flips, took)
	first := ""
	if v.Position >= 0 {
		gap := "not among the top five of one rank"
		if close, known := v.Gap(); known {
			gap = fmt.Sprintf("log-probability lower by %.2g on one rank", close)
		}
		first = fmt.Sprintf("token %d of %d: one rank %s, %d ranks %s (%s); ", v.Position, v.Tokens, name(v.One), o.ranks, name(v.Many), gap)
	}
	switch {
	case v.Quantile(0.5) > o.tolerance:
		fmt.Printf("%sDIFFERENT: %s%s; the median must not exceed %.2g\n", head, first, rest, o.tolerance)
		return false
	case v.Position < 0:
		fmt.Printf("%ssame %d tokens; %s\n", head, v.Tokens, rest)
		return true
	}
	what := "same except for rounding"
	if o.strict {
		what = "DIFFERENT"
	}
	fmt.Printf("%s%s: %s%s\n", head, what, first, rest)
	return !o.strict
}

// name formats a token with its log-probability.
func name(t harness.Token) string {
	return fmt.Sprintf("%s (%s)", strconv.Quote(strings.ToValidUTF8(t.Name, "\uFFFD")), strconv.FormatFloat(t.Logprob, 'g', -1, 64))
}
