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

// A journal keeps Replays across restarts: a goroutine that no answer waits for appends
// each answer to a file. It rewrites the file when that has grown to twice the limit of
// Replays, when the disk works again after a failure, and when it has caught up after
// answers found no place in the queue.
type journal struct {
	path       string
	model      string
	vocabulary int   // number of ids
	most       int64 // size of the file at which it is rewritten, in bytes
	files      diskcache.Files
	log        *slog.Logger

	queue  chan *replay
	missed atomic.Bool // an answer found no place in queue
	done   chan struct{}

	// Only run uses these.
	file  diskcache.File // nil: it must be rewritten
	size  int64          // of file
	retry time.Time      // no new try before this time after an error
}

const (
	// journalQueue is how many answers may wait to be written.
	journalQueue = 256
	// journalLimit is how long appending an answer, or rewriting the file, may take
	// before the disk counts as hanging. The start of the server waits as long for the
	// file.
	journalLimit = 30 * time.Second
	// journalRetry is the pause in writing after the disk has failed.
	journalRetry = time.Minute
)

// Keep makes r survive restarts in a file that only its owner can read and no other
// process may use. It loads the file's answers if they are of the same model; model names
// everything that the tokens depend on. vocabulary is the number of ids. The caller must
// call Close. An error comes from the file system, or says that it does not respond.
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
		return fmt.Errorf("answers with calls: rewriting %s took more than %v: %w", path, journalLimit, diskcache.ErrHangs)
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

// Close ends what Keep started; nothing may be added to r any more. It waits until all is
// written, or until ctx ends.
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

// all returns the answers, the most recently used last.
func (r *Replays) all() (list []*replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := r.order.Back(); at != nil; at = at.Prev() {
		list = append(list, at.Value.(*replay))
	}
	return list
}

// add queues an answer to be written. It never waits, not even for the log; an answer
// that finds no place in the queue is written by the next rewrite.
func (j *journal) add(p *replay) {
	select {
	case j.queue <- p:
	default:
		j.missed.Store(true)
	}
}

// run writes the queued answers until the queue is closed. While the disk fails it drops
// them, because the next rewrite writes all of Replays.
func (j *journal) run(all func() []*replay) {
	defer close(j.done)
	again := time.NewTimer(0) // when to rewrite the file
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
				j.write(nil, all) // the disk may work now
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

// write appends an answer to the file. It rewrites the file if none is open, if it has
// reached its limit or if p is nil. On failure it logs the error and leaves no file open.
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
		j.file, j.size, err = j.create(all()) // contains p
		return err
	})
	switch {
	case err != nil:
		if j.file != nil {
			_ = j.file.Close() // its end may be a part of a record
			j.file = nil
		}
		j.retry = time.Now().Add(journalRetry)
		j.log.Warn("answers with calls: the disk failed; writing pauses", "file", j.path, "error", err, "pause", journalRetry)
	case failed:
		j.log.Info("answers with calls are kept on disk again", "file", j.path)
	}
}

// within runs an operation to its end. If that takes longer than limit, it logs this at
// once, and the error wraps diskcache.ErrHangs, whatever the operation returned.
func (j *journal) within(limit time.Duration, operation func() error) error {
	var late atomic.Bool
	timer := time.AfterFunc(limit, func() {
		late.Store(true)
		j.log.Error("answers with calls: the disk does not respond; until it does, a restart loses new answers", "file", j.path, "limit", limit)
	})
	err := operation()
	if timer.Stop(); late.Load() {
		return errors.Join(fmt.Errorf("%w within %v", diskcache.ErrHangs, limit), err)
	}
	return err
}
