package engine

import (
	"context"
	"io"
	"sync"
)

// streamBuffer is how many events wait apart for the reader of a stream; after
// that they are merged.
const streamBuffer = 16

// Stream is an answer on its way. One goroutine reads it with Next; Close may
// be called by any, any number of times.
type Stream struct {
	cancel func() // takes the request out of the engine

	mu     sync.Mutex
	events []waiting
	err    error         // set once at the end; Next gives it after the events
	news   chan struct{} // holds a mark when events or err have changed
}

func newStream() *Stream { return &Stream{news: make(chan struct{}, 1)} }

// Next waits for a piece of the answer. After the last event, the one with
// Finish set, it gives io.EOF. The other ends are: ctx's error when ctx is done
// first (the stream stays as it is), the error of Submit's context when that
// has ended, context.Canceled after Close, and errors that wrap ErrClosed,
// ErrFailed, ErrUnavailable or ErrNoMemory. Events made before an end are
// delivered before it.
//
// A reader may be as slow as it likes: events that wait are merged, without
// loss, and the engine never waits for a reader.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		if len(s.events) > 0 {
			w := s.events[0]
			s.events[0] = waiting{}
			s.events = s.events[1:]
			s.mu.Unlock()
			return w.whole(), nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return Event{}, err
		}
		select {
		case <-s.news:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close gives the answer up: its work ends with the step under way at the
// latest, and Next gives no more events. After the end it does nothing.
func (s *Stream) Close() {
	s.mu.Lock()
	s.events = nil
	s.mu.Unlock()
	s.end(context.Canceled)
	s.cancel()
}

// push adds an event; it never waits.
func (s *Stream) push(ev Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	n := len(s.events)
	switch {
	case n > 0 && s.events[n-1].progressOnly():
		s.events[n-1] = waiting{Event: ev} // the newer state says all that the older said
	case n >= streamBuffer:
		s.events[n-1].merge(ev)
	default:
		s.events = append(s.events, waiting{Event: ev})
	}
	s.mark()
}

// end closes the stream with io.EOF or an error; the first end stays.
func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		s.mark()
	}
}

// finish pushes the last event and ends the stream.
func (s *Stream) finish(ev Event) {
	s.push(ev)
	s.end(io.EOF)
}

// mark wakes Next; mu is held.
func (s *Stream) mark() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// progressOnly reports that an event carries nothing that a later one lacks.
func (ev *Event) progressOnly() bool {
	return ev.Progress.Total > 0 && ev.Text == "" && len(ev.Tokens) == 0 && len(ev.Prompt) == 0 && ev.Finish == FinishNone
}

// waiting is an event in a buffer, to which later ones may be added.
type waiting struct {
	Event
	more []byte // follows Event.Text
}

// merge appends the later event b. The text is not joined each time: a long
// answer that nobody reads would be copied for every token.
func (w *waiting) merge(b Event) {
	w.more = append(w.more, b.Text...)
	w.Tokens = append(w.Tokens, b.Tokens...)
	w.Prompt = append(w.Prompt, b.Prompt...)
	w.Finish, w.StopText, w.Usage, w.Progress = b.Finish, b.StopText, b.Usage, b.Progress
}

// whole is the event with all its text.
func (w *waiting) whole() Event {
	w.Text += string(w.more)
	return w.Event
}
