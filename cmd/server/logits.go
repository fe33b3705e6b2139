package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"ringmaster/internal/flags"
	"ringmaster/internal/safetext"
	"ringmaster/internal/usage"
	"ringmaster/model"
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
				return o.follow(cmd.Context())
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
	ids, err := readIDs(tokens)
	if err != nil {
		return usage.Errorf("--tokens: %w", err)
	}
	if err := flags.CheckOut("out", out); err != nil {
		return err
	}
	o.batch = max(o.batch, batch)
	l, err := o.load(ctx, log, 1)
	if err != nil {
		return err
	}
	defer l.close()
	if limit := l.model.Info().ContextLength; len(ids) > limit {
		return usage.Errorf("--tokens: %s has %d token ids; the context holds %d", tokens, len(ids), limit)
	}
	if batch == 0 {
		batch = l.model.Info().MaxTokens
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	defer func() {
		if ferr := w.Flush(); err == nil {
			err = ferr
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	for pos := 0; pos < len(ids); {
		n := min(batch, len(ids)-pos)
		step := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: ids[pos : pos+n], Want: model.WantAll}}}
		rows, err := l.model.Forward(ctx, step)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := writeFloats(w, row); err != nil {
				return fmt.Errorf("%s: %w", out, err)
			}
		}
		l.model.Commit(step)
		pos += n
	}
	l.logExchanges(ctx)
	return nil
}

// logExchanges logs what each rank of a group has run and exchanged.
func (l *loaded) logExchanges(ctx context.Context) {
	if l.group == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	reports, err := l.group.steps.Reports(ctx)
	if err != nil {
		slog.Warn("the ranks' statistics are not known", "error", err)
		return
	}
	for _, r := range reports {
		t := r.Total()
		slog.Info("exchanged", "rank", r.Rank, "steps", r.Steps, "exchanges", t.Exchanges, "float32_repeats", t.Overflows, "sent_bytes", t.Sent)
	}
}

func writeFloats(w io.Writer, row []float32) error {
	buf := make([]byte, 4*len(row))
	for i, v := range row {
		binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
	}
	_, err := w.Write(buf)
	return err
}

// mostIDs bounds the ids of a file before the context is known: no model has as many
// positions.
const mostIDs = 1 << 22

// readIDs reads token ids separated by whitespace.
func readIDs(path string) ([]int32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ids []int32
	s := bufio.NewScanner(f)
	s.Split(bufio.ScanWords)
	for s.Scan() {
		id, err := strconv.ParseInt(s.Text(), 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("%s: token %d is %q; expected an id", path, len(ids), safetext.Line(s.Text(), safetext.Evidence))
		}
		if len(ids) == mostIDs {
			return nil, fmt.Errorf("%s: more than %d token ids; no context holds as many", path, mostIDs)
		}
		ids = append(ids, int32(id))
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s: no token ids", path)
	}
	return ids, nil
}
