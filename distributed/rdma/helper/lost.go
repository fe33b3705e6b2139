package helper

import (
	"fmt"
	"os"
	"syscall"

	"ringmaster/distributed"
)

// LostError says that a helper ended unexpectedly: its device and all objects made
// from it are gone. It wraps distributed.ErrUnavailable.
type LostError struct {
	Device string
	PID    int
	Signal syscall.Signal // the signal that ended it, 0 for none or unknown
	Code   int            // its exit status if no signal ended it, -1 if unknown
}

// crashes are the signals of a process that crashed.
var crashes = map[syscall.Signal]string{
	syscall.SIGSEGV: "SIGSEGV", syscall.SIGBUS: "SIGBUS", syscall.SIGILL: "SIGILL", syscall.SIGABRT: "SIGABRT", syscall.SIGFPE: "SIGFPE", syscall.SIGTRAP: "SIGTRAP",
}

// Error names device, signal and what to do.
func (e *LostError) Error() string {
	s := fmt.Sprintf("the helper process %d that makes the verbs calls of %s ", e.PID, e.Device)
	name, crashed := crashes[e.Signal]
	switch {
	case crashed:
		return s + fmt.Sprintf("was ended by %s (%v): the link of %s is lost, or the verbs library is at fault; check that the cable of %s is plugged in at both ends", name, e.Signal, e.Device, e.Device)
	case e.Signal != 0:
		return s + fmt.Sprintf("was ended by signal %d (%v)", int(e.Signal), e.Signal)
	case e.Code >= 0:
		return s + fmt.Sprintf("ended with status %d", e.Code)
	}
	return s + "closed its connection"
}

// Unwrap is distributed.ErrUnavailable.
func (e *LostError) Unwrap() error { return distributed.ErrUnavailable }

// lostError describes how a helper ended; state is nil if that is unknown yet.
func lostError(device string, pid int, state *os.ProcessState) *LostError {
	e := &LostError{Device: device, PID: pid, Code: -1}
	if state == nil {
		return e
	}
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		e.Signal = w.Signal()
	} else {
		e.Code = state.ExitCode()
	}
	return e
}
