package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// begin returns sequences that have the tokens before a measurement. With --state it
// takes these from the file, or, if the file does not exist, evaluates them and writes
// it.
func (b *bench) begin(ctx context.Context, m *Measurement) (*runner, error) {
	r := b.newRunner(m)
	if b.o.State != "" && m.Depth > 0 {
		restored, err := b.restore(r, m.Depth)
		if restored || err != nil {
			return r, err
		}
	}
	if err := r.advance(ctx, 0, m.Depth, b.t.Model.Info().MaxTokens/m.Sequences); err != nil {
		return nil, err
	}
	if b.o.State != "" && m.Depth > 0 {
		return r, b.save(r, m.Depth)
	}
	return r, nil
}

// restore restores the sequence of r from the file of --state. It returns false if the
// file does not exist.
func (b *bench) restore(r *runner, depth int) (bool, error) {
	m, ok := b.t.Model.(snapshots)
	if !ok {
		return false, errors.New("--state: this model does not save its state; start bench without it")
	}
	f, err := os.Open(b.o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("--state: %w", err)
	}
	defer f.Close()
	tokens, err := m.Restore(bufio.NewReaderSize(f, 1<<20), r.ids[0])
	if err != nil {
		return false, fmt.Errorf("--state %s: %w", b.o.State, err)
	}
	if len(tokens) != depth {
		return false, fmt.Errorf("--state %s: it has %d tokens, --depth asks for %d; remove the file or name another", b.o.State, len(tokens), depth)
	}
	copy(r.tokens[0], tokens)
	return true, nil
}

// save writes the sequence of r to the file of --state, completely or not at all.
func (b *bench) save(r *runner, depth int) error {
	f, err := os.CreateTemp(filepath.Dir(b.o.State), filepath.Base(b.o.State)+".*")
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	err = b.t.Model.(snapshots).Snapshot(w, r.ids[0], r.tokens[0][:depth])
	if err == nil {
		err = w.Flush()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), b.o.State)
	}
	if err != nil {
		return fmt.Errorf("--state %s: %w", b.o.State, err)
	}
	return nil
}
