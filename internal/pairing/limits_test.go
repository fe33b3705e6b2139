package pairing

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// TestLimits: how many codes a stranger may try, in how long, and that others may still try.
func TestLimits(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := newLimits(func() time.Time { return now })
	wrong := func(from string) string {
		why := l.begin(from, 1)
		if why == "" {
			require.False(t, l.end(1, true))
		}
		return why
	}
	for range addressAt {
		require.Empty(t, wrong("10.0.0.9"))
	}
	require.Contains(t, wrong("10.0.0.9"), "from this address")
	require.Empty(t, l.begin("10.0.0.2", 1), "another address may try")
	require.False(t, l.end(1, false))
	now = now.Add(addressEvery)
	require.Empty(t, wrong("10.0.0.9"), "after the time that the refusal names")
	require.Contains(t, wrong("10.0.0.9"), "from this address")

	for i := addressAt + 1; i < mostWrong-1; i++ {
		require.Empty(t, wrong(fmt.Sprint("10.0.1.", i)))
	}
	require.Empty(t, l.begin("10.0.2.1", 1))
	require.Contains(t, l.begin("10.0.2.2", 1), "at once", "an open attempt may be a wrong one")
	require.True(t, l.end(1, true), "the last wrong code")
	now = now.Add(attemptsAt * attemptEvery)
	require.Empty(t, l.begin("10.0.2.3", 2), "the next code has its own attempts")
	require.False(t, l.end(1, true), "an attempt at an earlier code")
	require.False(t, l.end(2, true))
	require.Contains(t, l.begin("10.0.2.4", 1), "just changed", "an attempt that read the code before it changed")
	require.Equal(t, 1, l.wrong, "and does not begin the count again")

	for i := range attemptsAt - 1 {
		require.Empty(t, l.begin(fmt.Sprint("10.0.3.", i), 2))
		require.False(t, l.end(2, false))
	}
	require.Contains(t, l.begin("10.0.4.1", 2), "too many attempts: try again in 10s", "all addresses together")
	now = now.Add(attemptEvery)
	require.Empty(t, l.begin("10.0.4.1", 2))
}

// TestManyAddresses: what is remembered of addresses is bounded, and forgotten in time.
func TestManyAddresses(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := newLimits(func() time.Time { return now })
	for i := range mostAddresses {
		own := rate.NewLimiter(rate.Every(addressEvery), addressAt)
		require.True(t, own.AllowN(now, 1))
		l.from[fmt.Sprint("address ", i)] = own
	}
	require.Contains(t, l.begin("one more", 1), "too many hosts")
	now = now.Add(addressEvery)
	require.Empty(t, l.begin("one more", 2))
	require.Len(t, l.from, 1)
}
