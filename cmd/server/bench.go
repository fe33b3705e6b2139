package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/model"
)

// decodeDepth is how many tokens a sequence has before decode is measured,
// unless --depth says otherwise.
const decodeDepth = 128

func newBench(o *modelOptions) *cobra.Command {
	var b bench
	var prefill []int
	var decode int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the speed of prefill and decode",
		Long: `bench measures the time to the first token of a prompt of one token, counted
from the start of loading; the prefill of N tokens from empty, for each N given;
and the decode of M tokens one by one after 128 (--depth), of one sequence or of
several in one step (--sequences). The tokens are drawn at random with a fixed
seed.
Beside the decode stand the bytes of weights it reads for a token, and the rate at
which the same threads read memory when they do nothing else, measured in turns
with it (--stream; the cpu backend on one machine). It takes a buffer of 1 GiB or
more for that, which the memory at the end does not count.
In a group it also prints what each rank computed and how long it waited for the
others; memory and bytes are those of rank 0.
With --profile it prints what each op of a step took; the ops then run one at a
time, which costs a little.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if slices.ContainsFunc(prefill, func(n int) bool { return n < 0 }) || decode < 0 || b.depth < 0 || b.repeat < 1 || b.sequences < 1 {
				return fmt.Errorf("--prefill %d, --decode %d, --depth %d, --repeat %d and --sequences %d must be 0, 0, 0, 1 and 1 or more",
					prefill, decode, b.depth, b.repeat, b.sequences)
			}
			if o.cluster.inJob() {
				return o.follow(cmd.Context())
			}
			start := time.Now()
			o.profile = true
			l, err := o.load(cmd.Context(), cmd.ErrOrStderr(), b.sequences)
			if err != nil {
				return err
			}
			defer l.close()
			b.l, b.threads, b.w = l, l.threads, cmd.OutOrStdout()
			return b.run(cmd.Context(), start, prefill, decode)
		},
	}
	cmd.Flags().IntSliceVar(&prefill, "prefill", []int{512}, "tokens of the prefills, with commas between; 0 measures none")
	cmd.Flags().IntVar(&decode, "decode", 64, "tokens of the decode; 0 measures none")
	cmd.Flags().IntVar(&b.depth, "depth", decodeDepth, "tokens of a sequence before the decode")
	cmd.Flags().IntVar(&b.sequences, "sequences", 1, "sequences that decode together, a token of each in a step")
	cmd.Flags().IntVar(&b.repeat, "repeat", 3, "repetitions")
	cmd.Flags().BoolVar(&b.json, "json", false, "print a JSON line for each measurement")
	cmd.Flags().BoolVar(&b.layers, "layers", false, "in a group, print the times of each layer")
	cmd.Flags().BoolVar(&b.profile, "profile", false, "print what each op took (of rank 0, in a group)")
	cmd.Flags().BoolVar(&b.stream, "stream", true, "measure how fast the threads read memory, beside the decode")
	return cmd
}

// bench runs measurements on a loaded model.
type bench struct {
	l                *loaded
	repeat           int
	depth, sequences int
	threads          int
	w                io.Writer
	json             bool
	layers           bool
	profile, stream  bool
	firstToken       time.Duration // from the start of loading
	peakMiB          float64       // before the buffer of a stream read
	buffered         bool          // a stream read had its buffer
	next             model.SeqID
}

// run measures and prints. start is when loading began; lengths are those of
// prefills, and 0 of a prefill or of decode measures none.
func (b *bench) run(ctx context.Context, start time.Time, lengths []int, decode int) error {
	var all []*measurement
	for _, n := range lengths {
		all = append(all, &measurement{What: "prefill", N: n, Sequences: 1})
	}
	all = append(all, &measurement{What: "decode", N: decode, Sequences: b.sequences, Depth: b.depth})
	all = slices.DeleteFunc(all, func(m *measurement) bool { return m.N == 0 })
	for _, m := range all {
		if limit := b.l.model.Info().ContextLength; m.N+m.Depth > limit {
			return fmt.Errorf("%s of %d tokens after %d does not fit the context of %d", m.What, m.N, m.Depth, limit)
		}
	}
	if err := b.first(ctx); err != nil {
		return err
	}
	b.firstToken = time.Since(start)
	for _, m := range all {
		m.Threads, m.LoadS, m.FirstTokenS = b.threads, b.l.took.Seconds(), b.firstToken.Seconds()
		if err := b.measure(ctx, m); err != nil {
			return err
		}
		b.memory(m)
		if err := b.print(m); err != nil {
			return err
		}
	}
	if b.json || len(all) == 0 {
		return nil
	}
	return b.printWhole(all[len(all)-1])
}

// first runs a prompt of one token.
func (b *bench) first(ctx context.Context) error {
	r := b.newRunner(&measurement{N: 1, Sequences: 1})
	if err := r.advance(ctx, 0, 1, 1); err != nil {
		return err
	}
	return r.drop(ctx)
}

// measure fills in what m measures. The first repetition touches the pages of
// the file; it is not counted, but the bytes of a decode are those that it read.
func (b *bench) measure(ctx context.Context, m *measurement) error {
	info := b.l.model.Info()
	// Repetitions after the same tokens go back to them, where a sequence can
	// go back so far.
	again := m.Depth > 0 && m.N <= info.Rewind
	atOnce := info.MaxTokens
	if m.What == "decode" {
		atOnce = 1
	}
	ops := b.l.profile
	var s stream
	defer s.close()
	var r *runner
	for i := range b.repeat + 1 {
		if r == nil {
			r = b.newRunner(m)
			if err := r.advance(ctx, 0, m.Depth, info.MaxTokens/m.Sequences); err != nil {
				return err
			}
		}
		was, err := b.reports(ctx)
		if err != nil {
			return err
		}
		if i <= 1 {
			ops.Profile.Reset()
		}
		ops.Measure(i == 0 || b.profile)
		start := time.Now()
		err = r.advance(ctx, m.Depth, m.N, atOnce)
		took := time.Since(start).Seconds()
		ops.Measure(false)
		if err != nil {
			return err
		}
		is, err := b.reports(ctx)
		if err != nil {
			return err
		}
		if i > 0 {
			m.Seconds = append(m.Seconds, took)
			m.Ranks = addTimes(m.Ranks, between(was, is))
			s.read(1)
		} else if m.What == "decode" {
			m.BytesPerToken = weightBytes(ops.Profile.Ops()) / int64(m.N*m.Sequences)
			s = b.openStream()
			s.read(1)
		}
		if !again || i == b.repeat {
			if err := r.drop(ctx); err != nil {
				return err
			}
			r = nil
		}
	}
	if b.profile {
		m.ops = ops.Profile.Ops()
	}
	s.report(m)
	return nil
}
