// Package harness runs clusters of real processes for tests and for
// scripts/correctness.sh: ranks on this machine or in network namespaces, with
// everything that may befall them. It knows the program by its flags, its HTTP
// interface and its signals alone.
//
// Nothing waits without a context, and nothing is left behind: every process
// has a group of its own, which Close kills, and on Linux dies with the
// process that started it.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// pollEvery is how often a condition is looked at that tells nobody when it
// changes.
const pollEvery = 10 * time.Millisecond

// Build compiles the program into dir and returns its path. root is the root
// of the module.
func Build(ctx context.Context, root, dir string) (string, error) {
	program := filepath.Join(dir, "ringmaster")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/server")
	cmd.Dir = root
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building ringmaster: %w\n%s", err, out)
	}
	return program, nil
}

// Until calls ok again and again until it says true. The error of a wait in
// vain holds what was waited for and the last thing that ok told.
func Until(ctx context.Context, what string, ok func() (bool, string)) error {
	start := time.Now()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, told := ok()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s; last seen: %s", time.Since(start).Round(time.Millisecond), what, told)
		case <-tick.C:
		}
	}
}
