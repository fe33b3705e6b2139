package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/model"
)

// decodeDepth is how many tokens a sequence has before decode is measured.
const decodeDepth = 128

// measurement is one line of bench --json.
type measurement struct {
	What    string    `json:"what"` // prefill or decode
	N       int       `json:"n"`    // tokens
	Threads int       `json:"threads"`
	Seconds []float64 `json:"seconds"` // of each repetition
	LoadS   float64   `json:"load_s"`
	PeakMiB float64   `json:"peak_mib"`
	// Ranks are the times of each rank of a group during the repetitions.
	Ranks []rankTimes `json:"ranks,omitempty"`
}

func newBench(o *modelOptions) *cobra.Command {
	var prefill, decode, repeat int
	var asJSON, layers bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the speed of prefill and decode",
		Long: `bench measures the prefill of N tokens from empty, and the decode of M tokens one
by one after 128. The tokens are drawn at random with a fixed seed. In a group it
also prints what each rank computed and how long it waited for the others.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prefill < 0 || decode < 0 || repeat < 1 {
				return fmt.Errorf("--prefill %d, --decode %d and --repeat %d must be 0, 0 and 1 or more", prefill, decode, repeat)
			}
			if o.cluster.inJob() {
				return o.follow(cmd.Context())
			}
			l, err := o.load(cmd.Context(), cmd.ErrOrStderr(), 1)
			if err != nil {
				return err
			}
			defer l.close()
			b := bench{l: l, repeat: repeat, threads: l.backend.Threads(), w: cmd.OutOrStdout(), json: asJSON, layers: layers}
			return b.run(cmd.Context(), prefill, decode)
		},
	}
	cmd.Flags().IntVar(&prefill, "prefill", 512, "tokens of the prefill; 0 measures none")
	cmd.Flags().IntVar(&decode, "decode", 64, "tokens of the decode; 0 measures none")
	cmd.Flags().IntVar(&repeat, "repeat", 3, "repetitions")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON line for each measurement")
	cmd.Flags().BoolVar(&layers, "layers", false, "in a group, print the times of each layer")
	return cmd
}

// bench runs measurements on a loaded model.
type bench struct {
	l       *loaded
	repeat  int
	threads int
	w       io.Writer
	json    bool
	layers  bool
	next    model.SeqID
}

func (b *bench) run(ctx context.Context, prefill, decode int) error {
	for _, m := range []struct {
		what      string
		n, before int
		one       bool // one token a step
	}{{"prefill", prefill, 0, false}, {"decode", decode, decodeDepth, true}} {
		if m.n == 0 {
			continue
		}
		if limit := b.l.model.Info().ContextLength; m.n+m.before > limit {
			return fmt.Errorf("%s of %d tokens does not fit the context of %d", m.what, m.n, limit)
		}
		// The first repetition touches the pages of the file; it is not counted.
		if _, _, err := b.once(ctx, m.n, m.before, m.one); err != nil {
			return err
		}
		var seconds []float64
		var ranks []rankTimes
		for range b.repeat {
			s, r, err := b.once(ctx, m.n, m.before, m.one)
			if err != nil {
				return err
			}
			seconds = append(seconds, s)
			ranks = addTimes(ranks, r)
		}
		if err := b.print(measurement{What: m.what, N: m.n, Threads: b.threads, Seconds: seconds,
			LoadS: b.l.took.Seconds(), PeakMiB: peakMiB(), Ranks: ranks}); err != nil {
			return err
		}
	}
	return nil
}

// once times n tokens after before others in a new sequence; in a group it also
// gives what each rank did in that time.
func (b *bench) once(ctx context.Context, n, before int, one bool) (float64, []rankTimes, error) {
	info := b.l.model.Info()
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]int32, before+n)
	for i := range tokens {
		tokens[i] = r.Int32N(int32(info.Vocab))
	}
	b.next++
	run := func(pos, n int) error {
		s := model.Step{Entries: []model.Entry{{Seq: b.next, Pos: pos, Tokens: tokens[pos : pos+n], Want: model.WantLast}}}
		if _, err := b.l.model.Forward(ctx, s); err != nil {
			return err
		}
		b.l.model.Commit(s)
		return nil
	}
	for pos := 0; pos < before; {
		k := min(before-pos, info.MaxTokens)
		if err := run(pos, k); err != nil {
			return 0, nil, err
		}
		pos += k
	}
	was, err := b.reports(ctx)
	if err != nil {
		return 0, nil, err
	}
	start := time.Now()
	for pos := before; pos < before+n; {
		k := min(before+n-pos, info.MaxTokens)
		if one {
			k = 1
		}
		if err := run(pos, k); err != nil {
			return 0, nil, err
		}
		pos += k
	}
	took := time.Since(start).Seconds()
	is, err := b.reports(ctx)
	if err != nil {
		return 0, nil, err
	}
	drop := model.Step{Drop: []model.SeqID{b.next}}
	if _, err := b.l.model.Forward(ctx, drop); err != nil {
		return 0, nil, err
	}
	b.l.model.Commit(drop)
	return took, between(was, is), nil
}

func (b *bench) print(m measurement) error {
	if b.json {
		return json.NewEncoder(b.w).Encode(m)
	}
	sorted := slices.Sorted(slices.Values(m.Seconds))
	median := sorted[len(sorted)/2]
	if _, err := fmt.Fprintf(b.w, "%-8s %5d tokens  %d threads  %8.2f t/s (median of %d, %.2f to %.2f)  load %.2f s  peak %.0f MiB\n",
		m.What, m.N, m.Threads, float64(m.N)/median, len(sorted),
		float64(m.N)/sorted[len(sorted)-1], float64(m.N)/sorted[0], m.LoadS, m.PeakMiB); err != nil {
		return err
	}
	if len(m.Ranks) == 0 {
		return nil
	}
	return printRanks(b.w, m.Ranks, b.layers)
}
