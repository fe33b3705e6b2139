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

	"ringmaster/kernels/profile"
	"ringmaster/model"
)

// decodeDepth is how many tokens a sequence has before decode is measured,
// unless --depth says otherwise.
const decodeDepth = 128

// measurement is one line of bench --json.
type measurement struct {
	What      string    `json:"what"` // prefill or decode
	N         int       `json:"n"`    // tokens of a sequence
	Sequences int       `json:"sequences"`
	Depth     int       `json:"depth"` // tokens before them
	Threads   int       `json:"threads"`
	Seconds   []float64 `json:"seconds"` // of each repetition
	LoadS     float64   `json:"load_s"`
	PeakMiB   float64   `json:"peak_mib"`
	// Ranks are the times of each rank of a group during the repetitions.
	Ranks []rankTimes `json:"ranks,omitempty"`

	ops []profile.Op // of all repetitions, with --profile
}

func newBench(o *modelOptions) *cobra.Command {
	var b bench
	var prefill, decode int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the speed of prefill and decode",
		Long: `bench measures the prefill of N tokens from empty, and the decode of M tokens one
by one after 128 (--depth), of one sequence or of several in one step
(--sequences). The tokens are drawn at random with a fixed seed. In a group it
also prints what each rank computed and how long it waited for the others.
With --profile it prints what each op of a step took; the ops then run one at a
time, which costs a little.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prefill < 0 || decode < 0 || b.depth < 0 || b.repeat < 1 || b.sequences < 1 {
				return fmt.Errorf("--prefill %d, --decode %d, --depth %d, --repeat %d and --sequences %d must be 0, 0, 0, 1 and 1 or more",
					prefill, decode, b.depth, b.repeat, b.sequences)
			}
			if o.cluster.inJob() {
				return o.follow(cmd.Context())
			}
			l, err := o.load(cmd.Context(), cmd.ErrOrStderr(), b.sequences)
			if err != nil {
				return err
			}
			defer l.close()
			b.l, b.threads, b.w = l, l.threads, cmd.OutOrStdout()
			return b.run(cmd.Context(), prefill, decode)
		},
	}
	cmd.Flags().IntVar(&prefill, "prefill", 512, "tokens of the prefill; 0 measures none")
	cmd.Flags().IntVar(&decode, "decode", 64, "tokens of the decode; 0 measures none")
	cmd.Flags().IntVar(&b.depth, "depth", decodeDepth, "tokens of a sequence before the decode")
	cmd.Flags().IntVar(&b.sequences, "sequences", 1, "sequences that decode together, a token of each in a step")
	cmd.Flags().IntVar(&b.repeat, "repeat", 3, "repetitions")
	cmd.Flags().BoolVar(&b.json, "json", false, "print a JSON line for each measurement")
	cmd.Flags().BoolVar(&b.layers, "layers", false, "in a group, print the times of each layer")
	cmd.Flags().BoolVar(&o.profile, "profile", false, "print what each op took (of rank 0, in a group)")
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
	next             model.SeqID
}

func (b *bench) run(ctx context.Context, prefill, decode int) error {
	for _, m := range []measurement{
		{What: "prefill", N: prefill, Sequences: 1}, {What: "decode", N: decode, Sequences: b.sequences, Depth: b.depth},
	} {
		if m.N == 0 {
			continue
		}
		if limit := b.l.model.Info().ContextLength; m.N+m.Depth > limit {
			return fmt.Errorf("%s of %d tokens after %d does not fit the context of %d", m.What, m.N, m.Depth, limit)
		}
		m.Threads, m.LoadS = b.threads, b.l.took.Seconds()
		if err := b.measure(ctx, &m); err != nil {
			return err
		}
		m.PeakMiB = peakMiB()
		if err := b.print(&m); err != nil {
			return err
		}
	}
	return nil
}

// measure fills in the times of m. The first repetition touches the pages of
// the file; it is not counted.
func (b *bench) measure(ctx context.Context, m *measurement) error {
	info := b.l.model.Info()
	// Repetitions after the same tokens go back to them, where a sequence can
	// go back so far.
	again := m.Depth > 0 && m.N <= info.Rewind
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
		if p := b.l.profile; p != nil && i == 1 {
			p.Reset()
		}
		start := time.Now()
		atOnce := info.MaxTokens
		if m.What == "decode" {
			atOnce = 1
		}
		if err := r.advance(ctx, m.Depth, m.N, atOnce); err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		if p := b.l.profile; p != nil {
			m.ops = p.Ops()
		}
		is, err := b.reports(ctx)
		if err != nil {
			return err
		}
		if i > 0 {
			m.Seconds = append(m.Seconds, took)
			m.Ranks = addTimes(m.Ranks, between(was, is))
		}
		if !again || i == b.repeat {
			if err := r.drop(ctx); err != nil {
				return err
			}
			r = nil
		}
	}
	return nil
}

// runner is sequences that advance together.
type runner struct {
	model  model.Model
	ids    []model.SeqID
	tokens [][]int32
}

func (b *bench) newRunner(m *measurement) *runner {
	r := &runner{model: b.l.model}
	vocab := int32(b.l.model.Info().Vocab)
	for i := range m.Sequences {
		b.next++
		r.ids = append(r.ids, b.next)
		random := rand.New(rand.NewPCG(1, 2+uint64(i)))
		tokens := make([]int32, m.Depth+m.N)
		for j := range tokens {
			tokens[j] = random.Int32N(vocab)
		}
		r.tokens = append(r.tokens, tokens)
	}
	return r
}

// advance runs the tokens [pos, pos+n) of every sequence, in steps of at most
// atOnce of each.
func (r *runner) advance(ctx context.Context, pos, n, atOnce int) error {
	for end := pos + n; pos < end; {
		k := min(end-pos, max(atOnce, 1))
		var s model.Step
		for i, id := range r.ids {
			s.Entries = append(s.Entries, model.Entry{Seq: id, Pos: pos, Tokens: r.tokens[i][pos : pos+k], Want: model.WantLast})
		}
		if _, err := r.model.Forward(ctx, s); err != nil {
			return err
		}
		r.model.Commit(s)
		pos += k
	}
	return nil
}

// drop frees the sequences.
func (r *runner) drop(ctx context.Context) error {
	s := model.Step{Drop: r.ids}
	if _, err := r.model.Forward(ctx, s); err != nil {
		return err
	}
	r.model.Commit(s)
	return nil
}

func (b *bench) print(m *measurement) error {
	if b.json {
		return json.NewEncoder(b.w).Encode(m)
	}
	sorted := slices.Sorted(slices.Values(m.Seconds))
	median := sorted[len(sorted)/2]
	tokens := float64(m.N * m.Sequences)
	what := fmt.Sprintf("%-8s %5d tokens", m.What, m.N)
	if m.What == "decode" && (m.Depth != decodeDepth || m.Sequences > 1) {
		what += fmt.Sprintf(" after %d, %d sequences", m.Depth, m.Sequences)
	}
	if _, err := fmt.Fprintf(b.w, "%s  %d threads  %8.2f t/s (median of %d, %.2f to %.2f)  load %.2f s  peak %.0f MiB\n",
		what, m.Threads, tokens/median, len(sorted),
		tokens/sorted[len(sorted)-1], tokens/sorted[0], m.LoadS, m.PeakMiB); err != nil {
		return err
	}
	if b.l.profile != nil {
		steps := len(m.Seconds) * m.N
		if m.What == "prefill" {
			steps = len(m.Seconds) // a whole prefill is the step of the table
		}
		total := 0.0
		for _, s := range m.Seconds {
			total += s
		}
		if err := profile.Write(b.w, m.ops, time.Duration(total*float64(time.Second)), steps); err != nil {
			return err
		}
	}
	if len(m.Ranks) == 0 {
		return nil
	}
	return printRanks(b.w, m.Ranks, b.layers)
}
