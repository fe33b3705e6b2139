// Command ringmaster serves DeepSeek-style mixture-of-experts models from GGUF
// files over an OpenAI-compatible API.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/rdma/helper"
)

// errTerminated is the cause of cancellation by SIGTERM, which ends this rank
// only.
var errTerminated = errors.New("stopped by SIGTERM")

func main() {
	if helper.Wanted() {
		helper.Main()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if s := <-signals; s == os.Interrupt {
			cancel(cluster.ErrStopAll)
		} else {
			cancel(errTerminated)
		}
		signal.Stop(signals) // a second signal ends the program at once
	}()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ringmaster:", err)
		os.Exit(1)
	}
}
