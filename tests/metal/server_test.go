//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/tests/cluster/harness"
	"ringmaster/tests/whole"
)

// timeout bounds a test that hangs.
const timeout = 5 * time.Minute

// TestServe: the program with --backend metal and the built-in model, alone and
// as two ranks with --distributed, gives the same bits; the CPU gives the same
// tokens.
func TestServe(t *testing.T) {
	openMetal(t) // skips where there is no suitable GPU
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	program := buildProgram(t, ctx, t.TempDir())
	prompt, tokens := whole.RandomIDs(256, 20), 12
	ask := func(size int, flags ...string) *harness.Answer {
		c, err := harness.NewCluster(harness.Options{Program: program, Size: size,
			Flags: append(flags, "--threads", "1", "--max-batch", "16")})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.StartAll(ctx), "%s", c.Logs())
		a, err := harness.Ask(ctx, c.Client, prompt, tokens)
		require.NoError(t, err, "%s", c.Logs())
		return a
	}
	one := ask(1, "--backend", "metal", "--reduce", "exact")
	for _, reduce := range []string{"exact", "sum"} {
		two := ask(2, "--backend", "metal", "--reduce", reduce)
		v := harness.CompareExact(one, two, len(prompt))
		require.Equal(t, -1, v.Position, "%s: two ranks say another token: %+v and %+v", reduce, v.One, v.Many)
		if reduce == "exact" {
			require.Equal(t, -1, v.Bits, "%s: two ranks give other bits: %+v and %+v", reduce, v.One, v.Many)
		}
	}
	v := harness.CompareExact(one, ask(1, "--backend", "cpu", "--reduce", "exact"), len(prompt))
	require.Equal(t, -1, v.Position, "the CPU says another token: %+v and %+v", v.One, v.Many)
}
