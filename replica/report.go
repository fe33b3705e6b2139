package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/parallel"
)

// Report has the counts of a rank since its process started; Layers counts since the
// model was loaded and Group since the epoch began.
type Report struct {
	Rank   int           `json:"rank"`
	Epoch  uint32        `json:"epoch"`  // the last one that this rank started
	Steps  uint64        `json:"steps"`  // run by this rank
	Tokens uint64        `json:"tokens"` // in these steps
	Time   time.Duration `json:"time"`   // spent in these steps on this rank, in ns
	// Layers is Rank.LayerStats after the last step.
	Layers []parallel.LayerStats `json:"layers"`
	// Exchanges is the current Rank.Exchanges of the model that ran the last step.
	Exchanges [][]parallel.Exchange `json:"exchanges"`
	Group     distributed.Stats     `json:"group"`
	Memory    int64                 `json:"memory"` // bytes that the process uses, 0 if unknown
}

// Total returns the sum of the counts of all layers.
func (r Report) Total() parallel.LayerStats {
	var t parallel.LayerStats
	for _, l := range r.Layers {
		t.Add(l)
	}
	return t
}

// encode returns the report as JSON.
func (r Report) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("replica: %v", err)) // the types of Report cannot fail
	}
	return b
}

// parseReport reads the report of a rank with a model of that many layers. It checks the
// report, because its values become series of metrics.
func parseReport(b []byte, rank, layers int) (Report, error) {
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("report of rank %d: %w", rank, err)
	}
	if r.Rank != rank {
		return r, fmt.Errorf("report of rank %d claims to be of rank %d", rank, r.Rank)
	}
	err := parallel.Check(r.Layers, r.Exchanges, layers)
	if err == nil && min(r.Time, r.Group.Waiting, r.Group.Wire) < 0 {
		err = errors.New("a negative time")
	}
	if err == nil && r.Memory < 0 {
		err = errors.New("a negative size of its memory")
	}
	if err != nil {
		return r, fmt.Errorf("report of rank %d: %w", rank, err)
	}
	return r, nil
}
