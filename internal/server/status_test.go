package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/web"
	"ringmaster/replica"
)

// TestEventsOfRepeats: the page shows when something happened, not when it was read.
func TestEventsOfRepeats(t *testing.T) {
	at := time.Unix(1e9, 0)
	later := at.Add(12 * time.Second)
	for _, v := range []struct {
		repeat replica.Repeat
		text   string
	}{
		{replica.Repeat{Kind: replica.InFloat32, First: at, Last: at, Steps: 1, Exchanges: 3},
			"exchanges of 1 step repeated in float32, a value was beyond the range of float16: 3"},
		{replica.Repeat{Kind: replica.InFloat32, First: at, Last: later, Steps: 4, Exchanges: 30},
			"exchanges of 4 steps within 12s repeated in float32, a value was beyond the range of float16: 30"},
		{replica.Repeat{Kind: replica.AfterLoss, First: at, Last: at, Steps: 1, Took: 2540 * time.Millisecond},
			"1 step ran again that the end of an epoch had interrupted, 2.5 s from interruption to end"},
		{replica.Repeat{Kind: replica.AfterLoss, First: at, Last: later, Steps: 2, Took: 5 * time.Second},
			"2 steps within 12s ran again that the end of an epoch had interrupted, 5.0 s from interruption to end in sum"},
	} {
		require.Equal(t, web.Event{Time: at, Kind: "repeated", Rank: -1, Text: v.text}, repeated(v.repeat))
	}
}
