//go:build cgo

package cpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/kerneltest"
)

func open(level cpu.Level, threads int) kerneltest.Open {
	return func(t testing.TB) kernels.Backend {
		b, err := cpu.NewLevel(threads, level)
		require.NoError(t, err)
		return b
	}
}

// TestOps runs every level of this host through the table of cases; in the fast form only the
// fastest.
func TestOps(t *testing.T) {
	levels := cpu.Levels()
	if !testenv.Rest(t, testenv.Full, "the ops at the slower levels") {
		levels = levels[len(levels)-1:]
	}
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) { kerneltest.Run(t, open(level, 2), opsUnderTest...) })
	}
}

// TestOpsOfAnyNumberOfThreads: the bits do not depend on the number of threads.
func TestOpsOfAnyNumberOfThreads(t *testing.T) {
	levels := cpu.Levels()
	full := testenv.Rest(t, testenv.Full, "three threads at slower levels, two and eight at the fastest")
	for i, level := range levels {
		counts := []int{3} // the division of the work is the same code at all levels
		if i != len(levels)-1 && !full {
			continue
		}
		if i == len(levels)-1 && full || testenv.At(testenv.Exhaustive) {
			counts = []int{2, 3, 8}
		}
		for _, threads := range counts {
			t.Run(fmt.Sprintf("%s %d threads", level, threads), func(t *testing.T) {
				kerneltest.Same(t, open(level, 1), open(level, threads), opsUnderTest...)
			})
		}
	}
}

// TestOpsDeferred: run late and all at once, the ops give the same results.
func TestOpsDeferred(t *testing.T) {
	late := func(t testing.TB) kernels.Backend { return deferred.Wrap(open(cpu.Portable, 2)(t)) }
	kerneltest.Same(t, open(cpu.Portable, 2), late, opsUnderTest...)
}

// opsUnderTest limits the tests to some ops during development; none means all.
var opsUnderTest []string
