// Package dialect holds what the APIs of clients have in common: the fields of a JSON
// body, errors, the writer of an answer, the conversation and the description of the
// server. A dialect parses the requests of its endpoints into jobs of package run and
// renders their events. Package api does the rest, so that no dialect has its own loop,
// limit or key.
package dialect

import (
	"fmt"

	"ringmaster/api/run"
	"ringmaster/engine"
)

// Parse reads a request for an answer. It makes the engine's requests (without CacheScope
// and Tenant) and the renderer of the answers. The reply must not keep the body or the
// conversation alive.
type Parse func(s *Service, f *Fields) (*Call, *Error)

// Call is a request for an answer.
type Call struct {
	Job    run.Job
	Stream bool
	Reply  func(out *Writer) Reply
	// Dropped names the tools and items of the request that the model does not see, and
	// Ignored its fields that no reader knows; the request's log line has both.
	Dropped, Ignored []string
	// Now is the JSON of an answer that needs no job; nil: Job is set.
	Now any
}

// Reply renders the answers of a call, as a stream or as a whole. The Writer keeps the
// first error, which ends the call.
type Reply interface {
	// Event renders the next event of one of the answers.
	Event(e *run.Event)
	// Tick is called every Config.KeepAlive of a stream. waits says why no tokens come,
	// without names of hosts; "" if nothing is wrong.
	Tick(waits string)
	// End is called once, after the last event.
	End(usage []run.Usage)
}

// Errors describes how a dialect writes errors.
type Errors struct {
	// Body is the JSON of an error response.
	Body func(e *Error) any
	// Status is the HTTP status of an error; nil: Error.Status.
	Status func(e *Error) int
	// Stream ends a stream that has begun.
	Stream func(out *Writer, e *Error)
}

// StatusOf returns the HTTP status of an error.
func (d *Errors) StatusOf(e *Error) int {
	if d.Status != nil {
		return d.Status(e)
	}
	return e.Status
}

// Progress follows the prefill of a request's answers, for the comments that keep
// a silent stream open.
type Progress struct{ last engine.Progress }

// Follow records the progress of an event.
func (p *Progress) Follow(e *run.Event) {
	if e.Progress.Total > 0 {
		p.last = e.Progress
	} else {
		p.last = engine.Progress{}
	}
}

// Comment returns a comment for a silent stream; waits is that of Reply.Tick.
func (p *Progress) Comment(waits string) string {
	switch {
	case waits != "":
		return "keep-alive: " + waits
	case p.last.Total == 0:
		return "keep-alive"
	}
	return fmt.Sprintf("keep-alive: %d of %d tokens of the prompt", p.last.Done, p.last.Total)
}
