package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHistoryIsTheLastHour: rates come from the growth of counts, and only the samples of
// the last hour are kept, in their order.
func TestHistoryIsTheLastHour(t *testing.T) {
	var h History
	at := time.Unix(1_700_000_000, 0)
	h.Add(at, Counts{Prefilled: 1000, Generated: 50})
	require.Empty(t, h.Samples(), "nothing is known about the time before")
	at = at.Add(SampleEvery)
	h.Add(at, Counts{Prefilled: 6000, Generated: 250, Active: 2, Queued: 1, Members: 2, Ranks: 3})
	require.Equal(t, []Sample{{Time: at, Prefill: 500, Decode: 20, Active: 2, Queued: 1, Members: 2, Ranks: 3}}, h.Samples())
	h.Add(at, Counts{Prefilled: 6000, Generated: 250})
	require.Len(t, h.Samples(), 1, "no time passed")
	for i := range 2 * samples {
		at = at.Add(SampleEvery)
		h.Add(at, Counts{Prefilled: 6000, Generated: 250, Active: i})
	}
	got := h.Samples()
	require.Len(t, got, 360)
	require.Equal(t, at, got[359].Time)
	require.Equal(t, at.Add(-time.Hour+SampleEvery), got[0].Time)
	require.Equal(t, samples, got[0].Active)
	require.Zero(t, got[0].Decode)
}
