package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"ringmaster/engine/diskcache"
)

// A journal makes Replays outlive the process: a file to which each answer is appended
// as it is remembered, by a goroutine that nothing waits for. When the file has grown to
// twice what may be remembered, it is written anew, and so it is when the disk works again
// after it has failed, or has kept up with the answers again.
type journal struct {
	path       string
	model      string
	vocabulary int   // ids
	most       int64 // bytes of the file at which it is written anew
	files      diskcache.Files
	log        *slog.Logger

	queue  chan *replay
	missed atomic.Bool // an answer found no place in queue
	done   chan struct{}

	// Of run alone.
	file  diskcache.File // nil: it is to be written anew
	size  int64          // of file
	retry time.Time      // not before, after an error
}

const (
	// journalQueue is how many answers may wait to be written.
	journalQueue = 256
	// journalLimit is how long it may take to write an answer, or the file anew, before
	// the disk counts as hanging. When the server starts it waits for the file as long.
	journalLimit = 30 * time.Second
	// journalRetry is how long nothing is written after the disk has failed.
	journalRetry = time.Minute
)

// Keep makes r outlive the process in a file, which only its owner can read and no other
// process may use. It remembers what the file has, if that was written for the same
// model: a name of all that the tokens depend on. vocabulary is the number of ids. Close
// must be called at the end. Errors are those of the file system, or that it does not
// answer.
func (r *Replays) Keep(path, model string, vocabulary int, log *slog.Logger) error {
	return r.keep(path, model, vocabulary, log, diskcache.OS{})
}

func (r *Replays) keep(path, model string, vocabulary int, log *slog.Logger, files diskcache.Files) error {
	j := &journal{path: path, model: model, vocabulary: vocabulary, most: 2 * r.limit, files: files, log: log,
		queue: make(chan *replay, journalQueue), done: make(chan struct{})}
	var list []*replay
	opened := make(chan error, 1)
	go func() {
		var err error
		if list, err = j.read(); err == nil {
			j.file, j.size, err = j.create(list)
		}
		opened <- err
	}()
	timer := time.NewTimer(journalLimit)
	defer timer.Stop()
	select {
	case err := <-opened:
		if err != nil {
			return fmt.Errorf("answers with calls: %w", err)
		}
	case <-timer.C:
		return fmt.Errorf("answers with calls: reading %s and writing it anew took more than %v: %w", path, journalLimit, diskcache.ErrHangs)
	}
	for _, p := range list {
		r.remember(p)
	}
	r.mu.Lock()
	r.journal = j
	r.mu.Unlock()
	go j.run(r.all)
	return nil
}

// Close ends what Keep has begun, when nothing is remembered any more. It waits until all
// is written, or until ctx ends.
func (r *Replays) Close(ctx context.Context) error {
	r.mu.Lock()
	j := r.journal
	r.journal = nil
	r.mu.Unlock()
	if j == nil {
		return nil
	}
	close(j.queue)
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("answers with calls: %s is still being written: %w", j.path, ctx.Err())
	}
}

// all is what is remembered, the last used last.
func (r *Replays) all() (list []*replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := r.order.Back(); at != nil; at = at.Prev() {
		list = append(list, at.Value.(*replay))
	}
	return list
}

// add has an answer written. It does not wait, for the log neither: what finds no place
// is written when there is one.
func (j *journal) add(p *replay) {
	select {
	case j.queue <- p:
	default:
		j.missed.Store(true)
	}
}

// run writes what is added until the queue is closed. While the disk fails, what is
// remembered is all that has to be kept, so what is added then is not.
func (j *journal) run(all func() []*replay) {
	defer close(j.done)
	again := time.NewTimer(0) // when the file is to be written anew
	again.Stop()
	for {
		var p *replay
		var open bool
		select {
		case p, open = <-j.queue:
		case <-again.C:
			open = true
		}
		if p != nil && (j.file != nil || !time.Now().Before(j.retry)) {
			j.write(p, all)
		}
		switch {
		case !open:
			if j.file == nil || j.missed.Load() {
				j.write(nil, all) // perhaps the disk works now
			}
			if j.file != nil {
				_ = j.file.Close() // what was written stays, as far as the disk has it
			}
			return
		case p == nil && j.file == nil, j.file != nil && j.missed.Load() && len(j.queue) == 0:
			j.write(nil, all)
		}
		if j.file == nil {
			again.Reset(time.Until(j.retry))
		}
	}
}

// write appends an answer to the file, or writes the file anew if there is none, if it is
// as long as it may be or if p is nil. A failure is logged, and no file is left open.
func (j *journal) write(p *replay, all func() []*replay) {
	failed := j.file == nil
	err := j.within(journalLimit, func() error {
		var b []byte
		if p != nil {
			b = j.encode(p)
		}
		if p != nil && j.file != nil && j.size+int64(len(b)) <= j.most {
			n, err := j.file.Write(b)
			j.size += int64(n)
			return err
		}
		if j.file != nil {
			_ = j.file.Close() // it is replaced
			j.file = nil
		}
		j.missed.Store(false)
		var err error
		j.file, j.size, err = j.create(all()) // has p
		return err
	})
	switch {
	case err != nil:
		if j.file != nil {
			_ = j.file.Close() // a part of a record may be its end
			j.file = nil
		}
		j.retry = time.Now().Add(journalRetry)
		j.log.Warn("answers with calls: the disk failed; none is written for a while", "file", j.path, "cause", err, "for", journalRetry)
	case failed:
		j.log.Info("answers with calls are kept on disk again", "file", j.path)
	}
}

// within runs an operation, however long it takes. If that is longer than limit, it says
// so at once, and the error wraps diskcache.ErrHangs, whatever came of the operation.
func (j *journal) within(limit time.Duration, operation func() error) error {
	var late atomic.Bool
	timer := time.AfterFunc(limit, func() {
		late.Store(true)
		j.log.Error("answers with calls: the disk does not answer; those from now on are not known after a restart until it does", "file", j.path, "for", limit)
	})
	err := operation()
	if timer.Stop(); late.Load() {
		return errors.Join(fmt.Errorf("%w within %v", diskcache.ErrHangs, limit), err)
	}
	return err
}
