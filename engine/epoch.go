package engine

import (
	"errors"
	"fmt"

	"ringmaster/model"
)

// errNewEpoch ends the requests whose sequences the model lost between two
// steps.
var errNewEpoch = &model.UnavailableError{Cause: errors.New("the model began anew and lost the state of what was running")}

// unavailable is what a request is told of the model's error.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// checkEpochLocked ends what the model has lost since the last step. When no
// step can run it leaves nothing to plan, so that the loop goes to sleep; mu is
// held and no step is in flight.
func (e *Engine) checkEpochLocked() {
	if e.epochs == nil {
		return
	}
	n, err := e.epochs.Epoch()
	if err != nil {
		e.loseLocked(err)
		return
	}
	if n == e.epoch {
		return
	}
	e.opts.Logger.Info("engine: the model began anew", "epoch", n, "sessions forgotten", len(e.sched.kept))
	e.epoch = n
	for _, id := range e.sched.forget() {
		if run := e.runs[id]; run != nil {
			run.unwatch()
			run.stream.end(unavailable(errNewEpoch))
			delete(e.runs, id)
		}
	}
}

// epochEnded is why the sequences of the last step are lost, nil if they are not.
func (e *Engine) epochEnded() error {
	if e.epochs == nil {
		return nil
	}
	n, err := e.epochs.Epoch()
	if err == nil && n != e.epoch {
		err = errNewEpoch
	}
	return err
}

// lose ends the step in flight and all requests, for the model has lost every
// sequence. The engine goes on.
func (e *Engine) lose(step model.Step, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.Logger.Warn("engine: the step is lost, its requests end", "step", describe(step), "requests", len(e.runs), "cause", cause)
	e.loseLocked(cause)
}

// loseLocked ends every request and forgets every sequence; mu is held.
func (e *Engine) loseLocked(cause error) {
	e.endStreamsLocked(unavailable(cause))
	e.sched.abort()
	e.sched.forget() // without requests nothing is left to be dropped
}
