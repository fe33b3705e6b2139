package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFormingClock: the parts of an epoch's forming, with one that failed to form in
// between, add up to the whole.
func TestFormingClock(t *testing.T) {
	var f formingClock
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	_, ok := f.runs(at(0))
	require.False(t, ok, "the first epoch replaces none")
	f.ended(at(10), 4*time.Second, 1, true)
	f.next(at(11), Placing)
	f.next(at(13), Mapping)
	f.ended(at(20), time.Second, 2, false) // another rank is lost
	f.next(at(50), Placing)
	f.next(at(51), Mapping)
	f.next(at(61), Connecting)
	f.next(at(64), Starting)
	require.Equal(t, "starting for 10ms", f.progress(at(74), Reads{}))
	took, ok := f.runs(at(66))
	require.True(t, ok)
	want := [parts]time.Duration{Noticing: 5 * time.Second, Waiting: 31 * time.Millisecond, Placing: 3 * time.Millisecond,
		Mapping: 17 * time.Millisecond, Connecting: 3 * time.Millisecond, Starting: 2 * time.Millisecond}
	require.Equal(t, want, took)
	_, ok = f.runs(at(70))
	require.False(t, ok)
	require.Equal(t, 1, f.lost, "the first")
	require.Equal(t, at(10).Add(-4*time.Second), f.began)
	f.ended(at(80), 0, -1, true)
	f.next(at(81), Placing)
	require.Equal(t, "mapping for 20ms; rank 2 has to read up to 5.00 GiB of weights that are new to it, within 2.5s at the 2.00 GiB/s that it measured; the last time an epoch replaced another within 56ms",
		(&formingClock{running: true, part: Mapping, since: at(81), last: 56 * time.Millisecond}).progress(at(101), Reads{2, 5 << 30, 2 << 30, ""}))
	require.Equal(t, "placing for 0s; the last time an epoch replaced another within 56ms", f.progress(at(82), Reads{}))
	_, ok = f.runs(at(85))
	require.True(t, ok)
	require.Equal(t, FormingTimes{1, want}, f.sums[0])
	require.Equal(t, FormingTimes{1, [parts]time.Duration{Waiting: time.Millisecond, Placing: 4 * time.Millisecond}}, f.sums[1])
}
