package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"ringmaster/internal/units"
	"ringmaster/model"
)

// snapshots is what a model on one host can do besides running steps.
type snapshots interface {
	Snapshot(w io.Writer, id model.SeqID, tokens []int32) error
	Restore(r io.Reader, id model.SeqID) ([]int32, error)
}

// SnapshotTimes is one line of bench --json for a snapshot.
type SnapshotTimes struct {
	What    string    `json:"what"` // snapshot
	N       int       `json:"n"`    // tokens of the sequence
	Bytes   int       `json:"bytes"`
	Save    []float64 `json:"save_s"`    // of each repetition
	Restore []float64 `json:"restore_s"` // of each repetition
}

// snapshot measures saving the state of a sequence of n tokens to memory and restoring
// it.
func (b *bench) snapshot(ctx context.Context, n int) error {
	m, ok := b.t.Model.(snapshots)
	if !ok {
		return errors.New("--snapshot: a snapshot is measured on one host; start bench without --distributed")
	}
	info := b.t.Model.Info()
	if n > info.ContextLength {
		return fmt.Errorf("--snapshot: %d tokens do not fit the context of %d", n, info.ContextLength)
	}
	r := b.newRunner(&Measurement{N: n, Sequences: 1})
	if err := r.advance(ctx, 0, n, info.MaxTokens); err != nil {
		return err
	}
	t := SnapshotTimes{What: "snapshot", N: n}
	var file bytes.Buffer
	for i := range b.o.Repeat + 1 { // the first grows the buffer
		file.Reset()
		start := time.Now()
		if err := m.Snapshot(&file, r.ids[0], r.tokens[0]); err != nil {
			return err
		}
		saved := time.Since(start).Seconds()
		t.Bytes = file.Len()
		b.next++
		copied := &runner{model: b.t.Model, ids: []model.SeqID{b.next}}
		start = time.Now()
		if _, err := m.Restore(bytes.NewReader(file.Bytes()), b.next); err != nil {
			return err
		}
		restored := time.Since(start).Seconds()
		if err := copied.drop(ctx); err != nil {
			return err
		}
		if i > 0 {
			t.Save, t.Restore = append(t.Save, saved), append(t.Restore, restored)
		}
	}
	if err := r.drop(ctx); err != nil {
		return err
	}
	if b.o.JSON {
		return json.NewEncoder(b.w).Encode(t)
	}
	rate := func(seconds []float64) string { return fmt.Sprintf("%.2f GB/s", float64(t.Bytes)/1e9/median(seconds)) }
	_, err := fmt.Fprintf(b.w, "snapshot %5d tokens  %s, saved at %s, restored at %s (median of %d)\n",
		n, units.Bytes(int64(t.Bytes)), rate(t.Save), rate(t.Restore), b.o.Repeat)
	return err
}
