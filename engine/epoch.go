package engine

import (
	"errors"
	"fmt"

	"ringmaster/model"
)

// errNewEpoch ends requests that cannot be computed again after the model lost all sequences
// between two steps.
var errNewEpoch = &model.UnavailableError{Cause: errors.New("the model started a new epoch and lost its KV caches")}

// unavailable returns the error that a request gets for the model's error.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// checkEpochLocked computes requests again that have lost their sequences since the last step.
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
	e.repeatLocked(errNewEpoch)
}

// repeatLocked computes the requests whose sequences the model has lost again from their
// tokens, and ends those for which that is not possible. mu is held.
func (e *Engine) repeatLocked(cause error) {
	for _, id := range e.sched.forget() {
		if run := e.runs[id]; run != nil {
			run.unwatch()
			run.stream.end(unavailable(cause))
			delete(e.runs, id)
		}
	}
	e.late = nil // their rows are computed again
}

// runsAgainLocked reports whether the model can run steps, now or soon, though it has lost its
// sequences. mu is held.
func (e *Engine) runsAgainLocked() bool {
	if e.epochs == nil {
		return false
	}
	_, err := e.epochs.Epoch()
	return err == nil || errors.Is(err, model.ErrRecovering)
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

// stepLost ends the step in flight, because the model has lost every sequence. If the model
// can run steps, requests are computed again from their tokens, else all of them end. The
// engine itself continues.
func (e *Engine) stepLost(step model.Step, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runsAgainLocked() {
		e.opts.Logger.Warn("the model lost its sequences; requests are computed again from their tokens", "step", describe(step), "requests", len(e.runs), "error", cause)
		e.sched.abort()
		e.repeatLocked(cause)
		return
	}
	e.opts.Logger.Warn("the step is lost; all requests end", "step", describe(step), "requests", len(e.runs), "error", cause)
	e.loseAllLocked(cause)
}

// loseAllLocked ends every request and forgets every sequence; mu is held.
func (e *Engine) loseAllLocked(cause error) {
	e.endStreamsLocked(unavailable(cause))
	e.sched.abort()
	e.sched.forget() // all requests have ended, so it returns none
}
