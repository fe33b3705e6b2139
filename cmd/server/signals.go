package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"ringmaster/distributed/cluster"
)

// errTerminated is the cause of cancellation by SIGTERM, or by the end of the
// terminal, which ends this rank only.
var errTerminated = errors.New("stopped by SIGTERM or the end of its terminal")

// stopOnSignal returns a context that ends with the first signal: Ctrl-C stops all
// ranks, SIGTERM and SIGHUP this one. A second Ctrl-C or SIGTERM ends the program
// at once; a SIGHUP never does, for a process that ends without giving its queue
// pairs back leaves them used up until a power cycle with some drivers, and a
// connection that breaks off is no reason for that. nohup stays in force.
func stopOnSignal(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		s := <-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		if s == os.Interrupt {
			cancel(cluster.ErrStopAll)
		} else {
			cancel(errTerminated)
		}
	}()
	return ctx
}
