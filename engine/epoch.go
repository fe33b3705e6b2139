package engine

import (
	"errors"
	"fmt"

	"ringmaster/model"
)

// errNewEpoch ends the requests that had a sequence when the model lost all of them
// between two steps.
var errNewEpoch = &model.UnavailableError{Cause: errors.New("the model started a new epoch and lost its KV caches")}

// unavailable returns the error that a request gets for the model's error.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// checkEpochLocked ends the requests that have lost their sequences since the last step.
// If no step can run it leaves nothing to plan, so that the loop sleeps. mu is held and
// no step is in flight.
func (e *Engine) checkEpochLocked() {
	if e.epochs == nil {
		return
	}
	n, err := e.epochs.Epoch()
	if err != nil && !errors.Is(err, model.ErrRecovering) {
		e.loseAllLocked(err)
		return
	}
	if n == e.epoch {
		return
	}
	e.opts.Logger.Info("the model lost its sequences; the prefix cache is empty", "losses", n, "lost_entries", len(e.sched.prefixCache))
	e.epoch = n
	for _, id := range e.sched.forget() {
		if run := e.runs[id]; run != nil {
			run.unwatch()
			run.stream.end(unavailable(errNewEpoch))
			delete(e.runs, id)
		}
	}
}

// epochEnded returns why the sequences of the last step are lost; nil if they are not.
func (e *Engine) epochEnded() error {
	if e.epochs == nil {
		return nil
	}
	n, err := e.epochs.Epoch()
	if errors.Is(err, model.ErrRecovering) {
		err = nil
	}
	if err == nil && n != e.epoch {
		err = errNewEpoch
	}
	return err
}

// stepLost ends the step in flight and all requests, because the model has lost
// every sequence. The engine itself continues.
func (e *Engine) stepLost(step model.Step, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.Logger.Warn("the step is lost; all requests end", "step", describe(step), "requests", len(e.runs), "error", cause)
	e.loseAllLocked(cause)
}

// loseAllLocked ends every request and forgets every sequence; mu is held.
func (e *Engine) loseAllLocked(cause error) {
	e.endStreamsLocked(unavailable(cause))
	e.sched.abort()
	e.sched.forget() // all requests have ended, so it returns none
}
