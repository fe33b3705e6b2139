package engine

import (
	"context"
	"io"
	"sync"
	"time"
)

// streamBuffer is the most events that are buffered separately for a slow reader; later
// ones are merged into the last.
const streamBuffer = 16

// Stream delivers one answer while it is generated. One goroutine reads it with Next. Any
// goroutine may call Close, any number of times.
type Stream struct {
	cancel func() // removes the request from the engine
	await  func() // records that the conversation will continue

	now     func() time.Time
	mu      sync.Mutex
	events  []bufferedEvent
	err     error         // set once at the end; Next returns it after the events
	changed chan struct{} // capacity 1: full when events or err have changed
	times   Times
}

// newStream returns the stream of a request that is submitted now, by a clock.
func newStream(now func() time.Time) *Stream {
	return &Stream{now: now, changed: make(chan struct{}, 1), times: Times{Submitted: now()}}
}

// Times are when a request passed from one stage to the next. The zero time stands for
// what has not happened.
type Times struct {
	Submitted time.Time // the wait in the queue begins
	Started   time.Time // its first step began: prefill
	Decoding  time.Time // the last step of its prompt ended: decode
	Ended     time.Time // the answer is complete, or was given up
	// PrefillSteps and DecodeSteps are the steps of the two stages. The last one of prefill
	// makes one token, and each step of decode one, or more with drafts.
	PrefillSteps, DecodeSteps int
}

// Times returns the times so far; any goroutine may call it.
func (s *Stream) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

// step records a step that has run a part of the request: of its prompt, perhaps the last
// part, or of its answer.
func (s *Stream) step(began, ended time.Time, prompt, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.times
	if s.err != nil {
		return // given up while the step ran
	}
	if t.Started.IsZero() {
		t.Started = began
	}
	if !prompt {
		t.DecodeSteps++
		return
	}
	t.PrefillSteps++
	if last && t.Decoding.IsZero() {
		t.Decoding = ended
	}
}

// Next waits for the next piece of the answer. After the last event, the one with
// Finish set, it returns io.EOF. Other errors are: ctx's, when ctx is done first
// (the stream stays usable); that of Submit's context when it has ended;
// context.Canceled after Close; and errors that wrap ErrClosed, ErrFailed,
// ErrUnavailable, ErrNoMemory, ErrStorage, ErrConstraint or ErrNonFinite. Events generated before an error are returned
// before it, except after Close.
//
// The engine never waits for a reader: events that a slow reader has not taken
// yet are merged without loss.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		if len(s.events) > 0 {
			w := s.events[0]
			s.events[0] = bufferedEvent{}
			s.events = s.events[1:]
			s.mu.Unlock()
			return w.joined(), nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return Event{}, err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close cancels the request: it is part of the step in flight at most, and Next
// returns no more events. After the end of the stream it does nothing.
func (s *Stream) Close() {
	s.mu.Lock()
	s.events = nil
	s.mu.Unlock()
	s.end(context.Canceled)
	s.cancel()
}

// Await says, after the last event, that the answer called functions, so that the client
// will send their results: the prefix cache keeps the conversation for longer. It does
// nothing if the conversation is not kept, or continues already.
func (s *Stream) Await() { s.await() }

// push adds an event; it never blocks.
func (s *Stream) push(ev Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	n := len(s.events)
	switch {
	case n > 0 && s.events[n-1].progressOnly():
		s.events[n-1] = bufferedEvent{Event: ev} // newer progress replaces older
	case n >= streamBuffer:
		s.events[n-1].merge(ev)
	default:
		s.events = append(s.events, bufferedEvent{Event: ev})
	}
	s.notify()
}

// end ends the stream with io.EOF or an error; only the first call counts.
func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err, s.times.Ended = err, s.now()
		s.notify()
	}
}

// finish pushes the last event and ends the stream.
func (s *Stream) finish(ev Event) {
	s.push(ev)
	s.end(io.EOF)
}

// notify wakes Next; mu is held.
func (s *Stream) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// progressOnly reports whether an event carries progress and nothing else.
func (ev *Event) progressOnly() bool {
	return ev.Progress.Total > 0 && ev.Text == "" && len(ev.Tokens) == 0 && len(ev.Prompt) == 0 && ev.Finish == FinishNone
}

// bufferedEvent is an event that waits for the reader, with the later ones merged into
// it.
type bufferedEvent struct {
	Event
	more []byte // follows Event.Text
}

// merge appends the later event b. Text is collected in more, because joining
// strings would copy a long unread answer for every token.
func (w *bufferedEvent) merge(b Event) {
	w.more = append(w.more, b.Text...)
	w.Tokens = append(w.Tokens, b.Tokens...)
	w.Prompt = append(w.Prompt, b.Prompt...)
	w.Finish, w.StopText, w.Usage, w.Progress = b.Finish, b.StopText, b.Usage, b.Progress
}

// joined returns the event with all its text.
func (w *bufferedEvent) joined() Event {
	w.Text += string(w.more)
	return w.Event
}
