package lockstep

import (
	"encoding/json"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/moe"
)

// Report is what a rank has counted since its program began; Layers since its
// model was loaded and Group since the epoch began.
type Report struct {
	Rank   int           `json:"rank"`
	Epoch  uint32        `json:"epoch"`  // the last that was started
	Steps  uint64        `json:"steps"`  // that this rank has run
	Tokens uint64        `json:"tokens"` // of these steps
	Time   time.Duration `json:"time"`   // that these steps took on this rank, in ns
	// Layers are those of Rank.LayerStats after the last step.
	Layers []moe.LayerStats  `json:"layers"`
	Group  distributed.Stats `json:"group"`
}

// Total adds up the layers.
func (r Report) Total() moe.LayerStats {
	var t moe.LayerStats
	for _, l := range r.Layers {
		t.Compute += l.Compute
		t.Waiting += l.Waiting
		t.Wire += l.Wire
		t.Sent += l.Sent
		t.Received += l.Received
		t.Exchanges += l.Exchanges
		t.Overflows += l.Overflows
	}
	return t
}

// encode writes a report; its types cannot fail.
func (r Report) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("lockstep: %v", err))
	}
	return b
}

// parseReport reads the report of a rank.
func parseReport(b []byte, rank int) (Report, error) {
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("lockstep: report of rank %d: %w", rank, err)
	}
	if r.Rank != rank {
		return r, fmt.Errorf("lockstep: report of rank %d says it is of rank %d", rank, r.Rank)
	}
	return r, nil
}
