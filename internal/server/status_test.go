package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/web"
	"ringmaster/parallel"
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

// TestSharesInStages: the page is told the layers of a rank where ranks have different ones, and
// none where all have all.
func TestSharesInStages(t *testing.T) {
	part := parallel.Placement{{Experts: parallel.Range{End: 8}, Heads: parallel.Range{End: 2}, Vocabulary: parallel.Range{End: 9}, Weight: 1}}
	p := parallel.InStages([]parallel.Range{{Start: 0, End: 3}, {Start: 3, End: 7}}, []parallel.Placement{part, part})
	for _, x := range []struct {
		share web.Share
		want  string
	}{
		{wholeOf(p), `{"layers":[0,7],"experts":[0,8],"heads":[0,2],"vocabulary":[0,9]}`},
		{shareOf(p[1]), `{"layers":[3,7],"experts":[0,8],"heads":[0,2],"vocabulary":[9,9]}`},
		{wholeOf(part), `{"experts":[0,8],"heads":[0,2],"vocabulary":[0,9]}`},
		{shareOf(part[0]), `{"experts":[0,8],"heads":[0,2],"vocabulary":[0,9]}`},
	} {
		b, err := json.Marshal(x.share)
		require.NoError(t, err)
		require.JSONEq(t, x.want, string(b))
	}
}
