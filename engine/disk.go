package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ringmaster/engine/diskcache"
	"ringmaster/model"
)

// The prefix cache on disk. A sequence is saved when its request has ended and no request
// has continued it for a moment. A prompt that continues a saved one waits until that is
// restored. Both happen between steps, a few pieces at a time; other goroutines read and
// write the files (diskcache).

const (
	// saveAfter is how long a sequence must be idle before it is saved, so that what an
	// agent continues at once is not written for nothing.
	saveAfter = 2 * time.Second
	// piecesPerGap is how many pieces, of a megabyte or so, move each way between two
	// steps: a millisecond or two of copying.
	piecesPerGap = 4
)

// disk is the state of the loop's goroutine. The scheduler decides what is restored, and
// what must be saved before it is dropped.
type disk struct {
	store *diskcache.Store
	model model.Portable

	saving  *saving
	loading *loading
	flushed chan struct{} // closed when nothing is left to save; nil unless Flush waits
}

// saving is a sequence that is being saved.
type saving struct {
	entry  *entry
	export model.Export
	saver  *diskcache.Saver
	first  *diskcache.Saver // a first part is being written, before the rest is saved
}

// loading is a sequence that is being restored.
type loading struct {
	request requestID
	seq     model.SeqID
	from    *diskcache.Entry
	enter   model.Import
	loader  *diskcache.Loader
}

// openDisk connects the engine to its store.
func (e *Engine) openDisk() error {
	if e.opts.Disk == nil {
		return nil
	}
	p, ok := e.model.(model.Portable)
	if !ok {
		return fmt.Errorf("%w: Options.Disk, but sequences of model %q cannot be copied out of it", ErrInvalid, e.info.Name)
	}
	e.disk = &disk{store: e.opts.Disk, model: p}
	e.sched.disk = e.opts.Disk
	e.opts.Disk.Notify(e.wakeLoop)
	return nil
}

// move moves pieces to and from the disk while no step runs, and reports whether it could
// continue at once.
func (e *Engine) move() (more bool) {
	if e.disk == nil {
		return false
	}
	e.mu.Lock()
	e.sched.now = e.opts.Clock()
	e.mu.Unlock()
	for range piecesPerGap {
		if !e.loadPiece() {
			break
		}
		more = true
	}
	for range piecesPerGap {
		if !e.savePiece() {
			break
		}
		more = true
	}
	return more
}

// moreToMoveLocked reports whether the last plan left something to save or restore; mu is
// held.
func (e *Engine) moreToMoveLocked() bool {
	d := e.disk
	return d != nil && (d.loading == nil && e.sched.toRestore() != nil || d.saving == nil && len(e.sched.leaving) > 0)
}

// loadPiece imports a piece of the snapshot that is being restored, or begins the next
// one; false if there is none, or none yet.
func (e *Engine) loadPiece() bool {
	d := e.disk
	e.mu.Lock()
	if l := d.loading; l != nil && !e.sched.restores(l.request, l.seq) {
		d.stopLoading()
	}
	if d.loading == nil {
		if t := e.sched.toRestore(); t != nil {
			d.loading = &loading{request: t.id, seq: t.seq, from: t.restore, enter: d.model.Import(t.seq), loader: d.store.Load(t.restore)}
		}
	}
	e.mu.Unlock()
	l := d.loading
	if l == nil {
		return false
	}
	piece, ok, err := l.loader.Next()
	switch {
	case err == nil && !ok:
		return false
	case err == nil:
		if _, err = l.enter.Write(piece); err == nil {
			return true
		}
	case errors.Is(err, io.EOF):
		var tokens []int32
		if tokens, err = l.enter.Close(); err == nil {
			e.restored(l, tokens)
			return true
		}
	}
	d.stopLoading()
	d.store.Refuse(l.loader.At(), err)
	e.mu.Lock()
	e.sched.restoreFailed(l.request)
	e.mu.Unlock()
	return true
}

// restored gives a restored sequence to the request that waits for it.
func (e *Engine) restored(l *loading, tokens []int32) {
	e.disk.loading = nil
	l.loader.Close()
	e.mu.Lock()
	reuse, ok := e.sched.restored(l.request, tokens, l.from.Peak(), l.from.Checkpoints())
	e.mu.Unlock()
	if !ok {
		e.disk.store.Refuse(l.from, diskcache.ErrMismatch)
		return
	}
	e.disk.store.Used(l.from, reuse)
}

func (d *disk) stopLoading() {
	d.loading.enter.Stop()
	d.loading.loader.Close()
	d.loading = nil
}

// savePiece gives a piece to the snapshot that is being written, or begins the next one;
// false if none is left, or none can be written now.
func (e *Engine) savePiece() bool {
	d := e.disk
	e.mu.Lock()
	if s := d.saving; s != nil && !e.sched.has(s.entry) {
		d.stopSaving()
	}
	if d.saving == nil {
		if !e.beginSavingLocked() {
			e.mu.Unlock()
			return false
		}
	}
	e.mu.Unlock()
	s := d.saving
	if s.first != nil {
		if !s.first.Ended() {
			return false
		}
		d.stopSaving()
		return true
	}
	if s.saver.Ended() {
		e.endSaving()
		return true
	}
	if !s.saver.Ready() {
		return false
	}
	piece, err := s.export.Next()
	switch {
	case err == nil:
		s.saver.Put(piece)
		return true
	case errors.Is(err, io.EOF):
		w := s.saver
		w.Finish()
		if s.saver = nil; w.To() < len(s.entry.tokens) {
			s.first, s.entry.cuts = w, nil
			return true
		}
		e.endSaving()
		return true
	case errors.Is(err, model.ErrRecovering) && !s.entry.leaving:
		d.stopSaving() // it is saved later
		return false
	}
	e.opts.Logger.Warn("a sequence cannot be saved", "tokens", len(s.entry.tokens), "error", err)
	e.endSaving()
	return true
}

// beginSavingLocked begins the next snapshot; mu is held.
func (e *Engine) beginSavingLocked() bool {
	d := e.disk
	for {
		k := e.sched.toSave(d.flushed != nil)
		if k == nil {
			if d.flushed != nil && d.loading == nil {
				close(d.flushed)
				d.flushed = nil
			}
			return false
		}
		w := d.store.Save(diskcache.Sequence{Scope: k.scope, Tokens: k.tokens, Peak: k.peak, Checkpoints: k.checkpoints, Cuts: k.cuts,
			Worth: diskcache.Worth{Awaited: k.awaited, Hit: k.hit, Marked: k.hints.marked}})
		if w != nil {
			d.saving = &saving{entry: k, export: d.model.Export(k.seq, k.tokens[:w.To()], w.From()), saver: w}
			return true
		}
		e.sched.saved(k)
	}
}

// endSaving records that a sequence need not be saved any more.
func (e *Engine) endSaving() {
	k := e.disk.saving.entry
	e.disk.stopSaving()
	e.mu.Lock()
	e.sched.saved(k)
	e.mu.Unlock()
}

func (d *disk) stopSaving() {
	s := d.saving
	d.saving = nil
	s.export.Stop()
	if s.saver != nil {
		s.saver.Abort()
	}
}

// leaveDisk ends what is being saved and restored when the loop ends.
func (e *Engine) leaveDisk() {
	d := e.disk
	if d == nil {
		return
	}
	if d.loading != nil {
		d.stopLoading()
	}
	if d.saving != nil {
		d.stopSaving()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.flushed != nil {
		close(d.flushed)
		d.flushed = nil
	}
}

// Flush saves what is not yet on disk, as far as it gets until ctx ends. A server calls
// it at its end, when no requests run.
func (e *Engine) Flush(ctx context.Context) error {
	if e.disk == nil {
		return nil
	}
	e.mu.Lock()
	if e.closing || e.failed != nil || e.disk.flushed != nil {
		e.mu.Unlock()
		return nil
	}
	flushed := make(chan struct{})
	e.disk.flushed = flushed
	e.wakeLoop()
	e.mu.Unlock()
	select {
	case <-flushed:
		return nil
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not all conversations could be saved to disk: %w", ctx.Err())
	}
}
