package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/internal/flags"
	"ringmaster/internal/logits"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

func newLogits(o *modelOptions) *cobra.Command {
	var tokens, out string
	var batch int
	cmd := &cobra.Command{
		Use:   "logits",
		Short: "Write the logits of a sequence of token ids",
		Long: `logits evaluates the token ids in a file as one sequence and writes the logits at
each position: little-endian float32, one row of the size of the vocabulary per
token.`,
		Example: `  ringmaster logits --model F.gguf --tokens ids.txt --out logits.f32`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.cluster.mpiFollower() {
				return follow(cmd.Context(), o.options())
			}
			return runLogits(cmd.Context(), o, tokens, out, batch, cmd.ErrOrStderr())
		},
	}
	flags.File(cmd.Flags(), &tokens, "tokens", "`file` with token ids separated by whitespace")
	flags.Out(cmd.Flags(), &out, "out", "", "output `file`")
	flags.Int(cmd.Flags(), &batch, "batch", 0, flags.From(0), "tokens per step; 0 is --max-batch")
	_ = cmd.MarkFlagRequired("tokens")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

func runLogits(ctx context.Context, o *modelOptions, tokens, out string, batch int, log io.Writer) (err error) {
	ids, err := logits.ReadIDs(tokens)
	if err != nil {
		return usage.Errorf("--tokens: %w", err)
	}
	if err := flags.CheckOut("out", out); err != nil {
		return err
	}
	opts := o.options()
	opts.MaxTokens, opts.Sequences, opts.Plans = max(opts.MaxTokens, batch), 1, log
	n := node.New(opts)
	if err := n.Start(ctx); err != nil {
		return err
	}
	defer n.Close()
	if limit := n.Model.Info().ContextLength; len(ids) > limit {
		return usage.Errorf("--tokens: %s has %d token ids; the context holds %d", tokens, len(ids), limit)
	}
	batch = cmp.Or(batch, n.Model.Info().MaxTokens)
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	defer func() {
		if err == nil { // else Flush repeats it
			err = w.Flush()
		}
		err = errors.Join(err, f.Close())
	}()
	if err := logits.Write(ctx, n.Model, ids, batch, w); err != nil {
		return err
	}
	logExchanges(ctx, n.Leader)
	return nil
}

// reportLimit bounds how long logits waits for the statistics of the other ranks.
const reportLimit = 5 * time.Second

// logExchanges logs what each rank of a group has run and exchanged.
func logExchanges(ctx context.Context, l *node.Leader) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	reports, err := l.Steps.Reports(ctx)
	if err != nil {
		slog.Warn("the ranks' statistics are not known", "error", err)
		return
	}
	for _, r := range reports {
		t := r.Total()
		slog.Info("exchanged", "rank", r.Rank, "host", l.Host(r.Rank), "steps", r.Steps, "exchanges", t.Exchanges, "float32_repeats", t.Overflows, "sent_bytes", t.Sent)
	}
}
