// Package engine turns requests into steps of a model and steps into answers, by
// continuous batching: every step mixes the decoding sequences with chunks of new prompts
// (chunked prefill) under a token budget. The engine keeps the prefix cache, samples, and
// finds stop strings. It knows token ids and a vocabulary, but neither tensors nor chat
// messages.
//
// New starts an engine on a model, Submit queues a request, and Stream.Next returns the
// pieces of its answer (see the example).
//
// One goroutine owns the model. Between steps it handles what has arrived, been cancelled
// or failed; a step itself (model.Step) knows nothing about requests. A scheduler without
// goroutines (scheduler.go) decides what each step runs; the transcripts in
// testdata/scheduler show its decisions.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/engine/diskcache"
	"ringmaster/engine/drafts"
	"ringmaster/model"
)

// Observer receives times of the engine. The engine's goroutine calls it, so it must not
// block.
type Observer interface {
	// Started is called with the time that a request waited from its submission to the
	// beginning of its first step.
	Started(waited time.Duration)
	// Step is called with the time that a committed step took.
	Step(took time.Duration)
}

// Options of an Engine. Zero values select the defaults; negative ones are errors unless
// noted otherwise.
type Options struct {
	// Observer, if set, receives the times of requests and steps.
	Observer Observer
	// MaxActive is the most sequences in a step. Default 8. A tenant without a place can
	// run one request more, in the place of an entry of the prefix cache; the sequences
	// then take turns.
	MaxActive int
	// QueueLength is the most requests that wait for a place; one more gets ErrBusy.
	// Default 64; -1 for none.
	QueueLength int
	// PrefillChunk is the most prompt tokens of a step, all sequences together. Default: as
	// many as the model takes in a step, which is fastest. Beside sequences that decode a
	// step has at most half of what the model takes, so that they do not wait long.
	PrefillChunk int
	// TokenLatency is the time between two tokens of a decoding sequence that prompts
	// beside it may cause, as far as the cost of steps is known: steps then have fewer
	// tokens of prompts, but prompts get half of the time at least. Default 150 ms;
	// negative: only PrefillChunk and half of a step bound it.
	TokenLatency time.Duration
	// CacheEntries is the most entries of the prefix cache: sequences of finished requests
	// that keep their KV cache for reuse. The default of 128 only bounds the search for a
	// prefix; what is kept is decided by the model's budget for KV caches. -1 for none.
	CacheEntries int
	// CacheTimeout is how long an unused sequence stays in the prefix cache. Default
	// one hour; negative: forever.
	CacheTimeout time.Duration
	// Disk keeps snapshots of sequences beyond the prefix cache, and across restarts;
	// nil: none. The caller closes it after the engine. The model must be a
	// model.Portable.
	Disk *diskcache.Store
	// Drafter makes what guesses the tokens of a request's answer in advance, so that a step
	// may give it several. It changes no answer. nil: every step gives one. A model whose
	// logits depend on the number of rows in a step must not have one.
	Drafter func(*Request) Drafter
	// ModelDrafts uses the model's own block for drafts, if it is a model.Drafter, where
	// Drafter has none that are likely.
	ModelDrafts bool
	// StuckAfter is how long a step may take before Ready reports that the engine is
	// stuck. Default one minute.
	StuckAfter time.Duration

	// Clock, Random and Logger must be safe for concurrent use.
	Clock  func() time.Time // default time.Now
	Random func() uint64    // seeds for requests without one; default math/rand/v2
	Logger *slog.Logger     // default slog.Default
}

// Defaults are the options that zero values stand for.
func Defaults() Options {
	return Options{MaxActive: 8, QueueLength: 64, TokenLatency: 150 * time.Millisecond, CacheEntries: 128, CacheTimeout: time.Hour, StuckAfter: time.Minute}
}

// cachedContexts is how many sequences of the full context the prefix cache gets memory
// for by default; most conversations are far shorter.
const cachedContexts = 8

// PlannedSequences returns the number of sequences of the full context that memory is
// planned for: those of a step, and of the prefix cache as many as were asked for, or
// cachedContexts. Zero is none here.
func (o Options) PlannedSequences() int {
	if o.CacheEntries == Defaults().CacheEntries {
		return o.MaxActive + cachedContexts
	}
	return o.MaxActive + o.CacheEntries
}

// withDefaults returns o with the defaults for a model. Its error wraps ErrInvalid.
func (o Options) withDefaults(info model.Info) (Options, error) {
	d := Defaults()
	for _, f := range []struct {
		name     string
		value    *int
		standard int
		orNone   bool
	}{
		{"MaxActive", &o.MaxActive, d.MaxActive, false},
		{"QueueLength", &o.QueueLength, d.QueueLength, true},
		{"PrefillChunk", &o.PrefillChunk, info.MaxTokens, false},
		{"CacheEntries", &o.CacheEntries, d.CacheEntries, true},
	} {
		switch {
		case *f.value == 0:
			*f.value = f.standard
		case *f.value == -1 && f.orNone:
			*f.value = 0
		case *f.value < 0:
			return o, fmt.Errorf("%w: Options.%s is %d, it must be positive", ErrInvalid, f.name, *f.value)
		}
	}
	if o.StuckAfter <= 0 {
		o.StuckAfter = d.StuckAfter
	}
	for _, f := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.TokenLatency, d.TokenLatency}, {&o.CacheTimeout, d.CacheTimeout}} {
		switch {
		case *f.value == 0:
			*f.value = f.standard
		case *f.value < 0:
			*f.value = 0
		}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Uint64
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.PrefillChunk = min(o.PrefillChunk, info.MaxTokens)
	return o, nil
}

// MaxQueuedTokens is the most prompt tokens of all waiting requests together (64 MiB of
// ids); a single longer prompt may still wait alone.
const MaxQueuedTokens = 16 << 20

// Engine answers requests with one model. Its methods may be called by any goroutine.
type Engine struct {
	model  model.Model
	epochs model.Epochs // the same model; nil if it never loses its sequences
	sized  model.Sized  // the same model; nil if it has no budget for its KV caches
	info   model.Info
	vocab  Vocabulary
	size   int     // ids of vocab; rows of logits may be longer
	ends   []int32 // ids that end an answer
	opts   Options

	refused atomic.Uint64 // requests that got ErrBusy
	disk    *disk         // nil: no prefix cache on disk

	wake chan struct{} // capacity 1: full when the loop should look for work
	done chan struct{} // closed when the loop has ended

	mu           sync.Mutex // guards the fields below
	sched        *scheduler
	runs         map[requestID]*run // of every request that has not ended
	closing      bool
	failed       error              // wraps ErrFailed once the model has failed
	epoch        uint64             // the model's epoch when the loop last asked
	cancel       context.CancelFunc // ends the step in flight; nil if there is none
	idle         bool               // the loop waits for work
	lastProgress time.Time          // when the loop last began or ended a step
	counts       counts
	interludes   []*interlude // those that wait

	late []*run // those with late masks; only the loop uses them
}

// counts are the totals that Stats reports beside the scheduler's state.
type counts struct {
	steps, tokens, prefill, cached uint64
	nonFinite, decoding            uint64
	drafts                         [drafts.Sources]DraftStats
	stepTime                       time.Duration
}

// New starts an engine on a model that nothing else uses. The vocabulary must not have
// more ids than a row of logits; if it has fewer, the rest of the row is padding and is
// never sampled. A model that implements model.Epochs may be unavailable for a while: the
// engine then ends its requests, refuses new ones, and continues when the model is
// available again. The caller owns the model and closes it after the engine's Close has
// returned nil. Errors wrap ErrInvalid.
func New(m model.Model, v Vocabulary, opts Options) (*Engine, error) {
	info := m.Info()
	if info.MaxTokens < 1 || info.ContextLength < 2 {
		return nil, fmt.Errorf("%w: model %q takes %d tokens in a step and %d in its context, at least 1 and 2 are needed",
			ErrInvalid, info.Name, info.MaxTokens, info.ContextLength)
	}
	if v.Size() < 1 || v.Size() > info.Vocab {
		return nil, fmt.Errorf("%w: the vocabulary has %d ids, the logits of model %q have %d",
			ErrInvalid, v.Size(), info.Name, info.Vocab)
	}
	opts, err := opts.withDefaults(info)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		model: m, info: info, vocab: v, size: v.Size(), opts: opts,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		runs: map[requestID]*run{}, lastProgress: opts.Clock(),
		sched: newScheduler(info, opts),
	}
	if e.sized, _ = m.(model.Sized); e.sized != nil {
		e.sched.mem.size = e.sized.SequenceBytes
		e.setBudgetLocked() // no other goroutine has e yet
	}
	if e.epochs, _ = m.(model.Epochs); e.epochs != nil {
		e.epoch, _ = e.epochs.Epoch() // the loop sees the error
	}
	for id := range int32(e.size) {
		if v.IsEnd(id) {
			e.ends = append(e.ends, id)
		}
	}
	if err := e.openDisk(); err != nil {
		return nil, err
	}
	go e.loop()
	return e, nil
}

// Submit queues a request. It waits in the queue for a place and, if the model has a
// budget for its KV caches, until the memory of the prompt and of MaxTokens is free. The
// request ends with its answer, when the stream is closed, or when ctx ends, whichever is
// first. Errors wrap ErrInvalid, ErrTooLong, ErrBusy, ErrClosed, ErrFailed or
// ErrUnavailable, or are ctx's. The engine copies r's slices and maps.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	streams, err := e.SubmitAll(ctx, []Request{r})
	if err != nil {
		return nil, err
	}
	return streams[0], nil
}

// SubmitAll queues several requests, or none of them: it takes as many places as there
// are requests, or fails as Submit does. More requests than the engine has places are
// ErrTooMany.
func (e *Engine) SubmitAll(ctx context.Context, requests []Request) ([]*Stream, error) {
	streams, err := e.submitAll(ctx, requests)
	if errors.Is(err, ErrBusy) {
		e.refused.Add(uint64(len(requests)))
	}
	return streams, err
}

// Admit reserves a place in the queue for a request of a tenant until release is called,
// or returns an error that wraps ErrBusy (Stats counts it as a refusal). A caller that
// must do work to make a request calls it first, so that a refusal costs no work and no
// more requests are prepared than may wait. The caller must call release before Submit,
// and may call it more than once.
func (e *Engine) Admit(tenant string) (release func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.roomLocked(tenant, 1); err != nil {
		e.refused.Add(1)
		return nil, err
	}
	e.sched.hold(tenant, 1)
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sched.hold(tenant, -1)
	}), nil
}

func (e *Engine) submitAll(ctx context.Context, requests []Request) ([]*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(requests) == 0 {
		return nil, nil
	}
	tenant := requests[0].Tenant
	if places := e.sched.most(tenant); len(requests) > places {
		return nil, fmt.Errorf("%w: %d requests, but at most %d can run and wait", ErrTooMany, len(requests), places)
	}
	for i := range requests {
		if requests[i].Tenant != tenant {
			return nil, fmt.Errorf("%w: the requests have different tenants", ErrInvalid)
		}
		if err := requests[i].validate(e.size, e.info.ContextLength); err != nil {
			return nil, err
		}
	}
	if err := e.admits(tenant, len(requests)); err != nil {
		return nil, err // before the requests are copied
	}
	runs := make([]*run, len(requests))
	for i, r := range requests {
		runs[i] = e.newRun(r)
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.admitsLocked(tenant, len(requests)); err != nil {
		return nil, err
	}
	waiting := 0
	for _, run := range runs {
		if err := e.holdsLocked(run); err != nil {
			return nil, err
		}
		waiting += len(run.req.Prompt)
	}
	if e.sched.tooManyQueued(waiting) {
		return nil, fmt.Errorf("%w: the prompts that wait would have more than %d tokens", ErrBusy, MaxQueuedTokens)
	}
	streams := make([]*Stream, len(runs))
	for i, run := range runs {
		streams[i] = e.startLocked(ctx, run)
	}
	e.wakeLoop()
	return streams, nil
}

// admits returns nil if n more requests of a tenant would be taken now.
func (e *Engine) admits(tenant string, n int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.admitsLocked(tenant, n)
}

func (e *Engine) admitsLocked(tenant string, n int) error {
	if err := e.endedLocked(); err != nil {
		return err
	}
	return e.roomLocked(tenant, n)
}

// roomLocked returns nil if n more requests of a tenant have places; mu is held.
func (e *Engine) roomLocked(tenant string, n int) error {
	switch e.sched.roomFor(tenant, n) {
	case queueFull:
		return fmt.Errorf("%w: %d requests run and %d wait", ErrBusy, len(e.sched.active), len(e.sched.queue))
	case shareFull:
		return fmt.Errorf("%w: %w: %d of at most %d requests of all tenants wait", ErrBusy, ErrShare, len(e.sched.queue), e.opts.QueueLength)
	}
	return nil
}

// holdsLocked returns nil if a request could run alone; mu is held.
func (e *Engine) holdsLocked(run *run) error {
	e.setBudgetLocked()
	length := positions(len(run.req.Prompt), run.atMost())
	logprobs := run.logprobMemory()
	if e.sched.canHold(length, logprobs) {
		return nil
	}
	return fmt.Errorf("%w: a sequence of %d tokens needs %d bytes and its log-probabilities %d, all sequences together have %d",
		ErrTooLarge, length, e.sized.SequenceBytes(length), logprobs, e.sched.mem.budget)
}

// setBudgetLocked gives the model's budget to the scheduler; mu is held. The budget
// changes only with the epoch, when all sequences are lost.
func (e *Engine) setBudgetLocked() {
	if e.sized != nil {
		e.sched.mem.budget, e.sched.mem.checkpoint = e.sized.SequenceBudget(), e.sized.CheckpointBytes()
	}
}

// startLocked queues a run; the caller has checked that there is room. mu is held.
func (e *Engine) startLocked(ctx context.Context, run *run) *Stream {
	r := &run.req
	e.sched.now = e.opts.Clock()
	e.sched.setWeight(r.Tenant, r.Weight)
	id := e.sched.add(r.Tenant, r.Prompt, r.Branches, r.PromptLogprobs, r.CacheScope, hints{r.CacheGroup, r.CacheMarked}, run.atMost(), run.logprobMemory())
	run.id, run.ctx = id, ctx
	e.runs[id] = run
	if e.idle { // Ready measures the loop's progress from here
		e.idle, e.lastProgress = false, e.opts.Clock()
	}
	run.stream.cancel = func() { e.drop(id) }
	run.stream.await = func() { e.await(id) }
	unwatch := context.AfterFunc(ctx, func() {
		run.stream.end(ctx.Err())
		e.drop(id)
	})
	run.unwatch = func() {
		unwatch()
		run.mask.end()
	}
	run.mask.forces = e.opts.Drafter != nil && !r.NoDrafts
	if !run.mask.forces {
		run.req.Related = nil // it has the texts of the request
	}
	run.mask.begin(e.size, e.wakeLoop)
	return run.stream
}

// await implements Stream.Await.
func (e *Engine) await(id requestID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sched.await(id)
}

// drop removes a request when its stream is no longer read. If every request of the step
// in flight has been cancelled, drop interrupts the step. Otherwise the step runs to its
// end, because interrupting it would waste the others' work, and the next step leaves the
// request out.
func (e *Engine) drop(id requestID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	run := e.runs[id]
	if run == nil {
		return
	}
	delete(e.runs, id)
	run.unwatch()
	e.sched.now = e.opts.Clock()
	e.sched.cancel(id)
	if e.sched.allCancelled() && e.cancel != nil {
		e.cancel()
	}
	e.wakeLoop()
}

// wakeLoop makes the loop check for work again; it never blocks.
func (e *Engine) wakeLoop() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// endedLocked returns why requests are refused, permanently or for now; mu is held.
func (e *Engine) endedLocked() error {
	if e.failed != nil {
		return e.failed
	}
	if e.closing {
		return ErrClosed
	}
	if e.epochs != nil {
		if _, err := e.epochs.Epoch(); err != nil && !errors.Is(err, model.ErrRecovering) {
			return unavailable(err)
		}
	}
	return nil
}

// recoveringLocked returns why steps wait for a while, nil if they do not. Requests are
// still accepted then. mu is held.
func (e *Engine) recoveringLocked() error {
	if e.epochs == nil {
		return nil
	}
	if _, err := e.epochs.Epoch(); errors.Is(err, model.ErrRecovering) {
		return unavailable(err)
	}
	return nil
}

// Recovering reports whether steps wait for a model that recovers, and how long reading
// the weights that are new to a host may take, 0 if that is not known.
func (e *Engine) Recovering() (reading time.Duration, yes bool) {
	e.mu.Lock()
	err := e.recoveringLocked()
	e.mu.Unlock()
	var r *model.RecoveringError
	if errors.As(err, &r) {
		reading = r.Reading
	}
	return reading, err != nil
}

// Ready returns nil only if a request submitted now would be taken and answered at once:
// the model is available, not recovering, and has not failed, the queue has room, and the
// step in flight, if any, has not run for longer than Options.StuckAfter.
func (e *Engine) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.endedLocked(); err != nil {
		return err
	}
	if err := e.recoveringLocked(); err != nil {
		return err
	}
	if age := e.opts.Clock().Sub(e.lastProgress); !e.idle && age > e.opts.StuckAfter {
		return fmt.Errorf("the engine is stuck: step %d has run for %v (limit %v)", e.counts.steps+1, age, e.opts.StuckAfter)
	}
	return e.roomLocked("", 1)
}

// Stats is the state of an engine, and its counts since the start.
type Stats struct {
	Queued       int // requests that wait, including the places that Admit reserved
	Active       int // requests that run
	CacheEntries int // entries of the prefix cache

	// The limits of these three.
	MaxQueued, MaxActive, MaxCacheEntries int
	Refused                               uint64 // requests that got ErrBusy

	// Memory is the bytes of KV caches that sequences hold or that are reserved for
	// running requests; MemoryBudget is the limit, 0 without one.
	Memory, MemoryBudget int64

	Hits Hits
	// Entries of the prefix cache that were dropped for lack of memory, for lack of
	// places, and because of their age.
	Evicted, Crowded, Expired uint64
	EvictedTokens             uint64 // of entries that others took the memory or place of
	NoMemory                  uint64 // requests refused or ended for lack of memory

	Steps         uint64 // steps committed
	Tokens        uint64 // tokens generated
	PrefillTokens uint64 // prompt tokens run
	CachedTokens  uint64 // prompt tokens not run because of a prefix-cache hit
	NonFinite     uint64 // requests that ended with ErrNonFinite

	DecodeRows uint64                     // sequences that decoded, summed over the steps
	Drafts     [drafts.Sources]DraftStats // by source

	Disk diskcache.Stats // zero without a prefix cache on disk

	LastStep     time.Time     // when the last step began or ended
	LastStepTime time.Duration // how long the last complete step took
}

// Stats returns a consistent snapshot of the engine's numbers.
func (e *Engine) Stats() Stats {
	var disk diskcache.Stats
	if e.opts.Disk != nil {
		disk = e.opts.Disk.Stats()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return Stats{
		Disk:   disk,
		Queued: len(e.sched.queue) + e.sched.held, Active: len(e.sched.active), CacheEntries: len(e.sched.prefixCache),
		MaxQueued: e.opts.QueueLength, MaxActive: e.opts.MaxActive, MaxCacheEntries: e.opts.CacheEntries, Refused: e.refused.Load(),
		Memory: e.sched.use(), MemoryBudget: e.sched.mem.budget,
		Hits: e.sched.hits, Evicted: e.sched.mem.counts.evicted, Crowded: e.sched.mem.counts.crowded, Expired: e.sched.mem.counts.expired, EvictedTokens: e.sched.mem.counts.evictedTokens, NoMemory: e.sched.mem.counts.failed,
		Steps: e.counts.steps, Tokens: e.counts.tokens, PrefillTokens: e.counts.prefill, CachedTokens: e.counts.cached, NonFinite: e.counts.nonFinite, DecodeRows: e.counts.decoding, Drafts: e.counts.drafts,
		LastStep: e.lastProgress, LastStepTime: e.counts.stepTime,
	}
}

// Close refuses further requests, interrupts the step in flight, ends all streams with
// ErrClosed, and waits until the engine no longer uses the model. If ctx ends first,
// Close returns its error and the model may still be in use; another call continues to
// wait.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closing = true
	if e.cancel != nil {
		e.cancel()
	}
	e.endStreamsLocked(ErrClosed)
	e.wakeLoop()
	e.mu.Unlock()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a step still runs: %w", ctx.Err())
	}
}

// endStreamsLocked ends every request; mu is held.
func (e *Engine) endStreamsLocked(err error) {
	for id, run := range e.runs {
		run.unwatch()
		run.stream.end(err)
		e.sched.cancel(id)
		delete(e.runs, id)
	}
}
