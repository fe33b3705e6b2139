// Package harness runs clusters of real processes for tests and for
// scripts/correctness.sh: ranks on loopback or in network namespaces, and the faults to
// inject. It uses only the program's flags, HTTP API and signals.
//
//	c, err := harness.NewCluster(harness.Options{Program: path, Size: 3})
//	defer c.Close()
//	err = c.StartAll(ctx)
//	answer, err := c.Client.Complete(ctx, harness.Request{Prompt: ids, MaxTokens: 20})
//
// Every wait has a context. No process outlives its test, because each runs in its own
// process group, which Close kills, and on Linux it dies with the process that started
// it.
package harness

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is how often Until checks its condition.
const pollEvery = 10 * time.Millisecond

// Until calls ok repeatedly until it returns true. If ctx ends first the error says
// what was waited for and the last state that ok returned.
func Until(ctx context.Context, what string, ok func() (bool, string)) error {
	start := time.Now()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, state := ok()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s; last state: %s", time.Since(start).Round(time.Millisecond), what, state)
		case <-tick.C:
		}
	}
}
