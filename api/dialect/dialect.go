// Package dialect is what the APIs that clients speak have in common: the fields of
// a JSON body, errors, the writer of an answer, the conversation and what the
// server is. A dialect parses the requests of its endpoints into jobs of package
// run and renders their events; package api does the rest, so no dialect has a
// loop, a limit or a key of its own.
package dialect

import (
	"fmt"

	"ringmaster/api/run"
	"ringmaster/engine"
)

// Parse reads a request for an answer: it makes the engine's requests, without
// CacheScope and Tenant, and what renders the answers. The reply must not keep the
// body or the conversation alive.
type Parse func(s *Service, f *Fields) (*Call, *Error)

// Call is a request for an answer.
type Call struct {
	Job    run.Job
	Stream bool
	Reply  func(out *Writer) Reply
	// Now is the JSON of an answer that needs no job; nil: there is a job.
	Now any
}

// Reply renders the answers of a call, as a stream or as a whole.
type Reply interface {
	// Event takes the next event of one of the answers.
	Event(e *run.Event) error
	// Tick is called every Config.KeepAlive of a stream. waits is why nothing comes,
	// without names of hosts; "" if nothing is wrong.
	Tick(waits string) error
	// End is called once, after the last event.
	End(usage []run.Usage) error
}

// Errors is how a dialect writes errors.
type Errors struct {
	// Body is the JSON of an error response.
	Body func(e *Error) any
	// Status is the HTTP status of an error; nil: Error.Status.
	Status func(e *Error) int
	// Stream ends a stream that has begun.
	Stream func(out *Writer, e *Error) error
}

// StatusOf is the HTTP status of an error.
func (d *Errors) StatusOf(e *Error) int {
	if d.Status != nil {
		return d.Status(e)
	}
	return e.Status
}

// Progress follows the prefill of a request's answers, for the comments that keep
// a silent stream open.
type Progress struct{ last engine.Progress }

// Follow takes the progress of an event.
func (p *Progress) Follow(e *run.Event) {
	if e.Progress.Total > 0 {
		p.last = e.Progress
	} else {
		p.last = engine.Progress{}
	}
}

// Comment is one for a stream that is silent; waits is that of Reply.Tick.
func (p *Progress) Comment(waits string) string {
	switch {
	case waits != "":
		return "keep-alive: " + waits
	case p.last.Total == 0:
		return "keep-alive"
	}
	return fmt.Sprintf("keep-alive: %d of %d tokens of the prompt", p.last.Done, p.last.Total)
}
