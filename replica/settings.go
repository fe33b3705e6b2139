package replica

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"ringmaster/moe"
)

// Settings are the part of the leader's plan that every rank needs.
type Settings struct {
	Context   int    // most positions of a sequence
	MaxTokens int    // most tokens of a step
	Reduce    string // how expert outputs are added: a name of moe.ParseReduce
	Wire      string // type of the numbers that ranks exchange: a name of moe.ParseWire
	// Ranges are the local experts of each rank, [size] by rank. They are
	// consecutive and start at 0; some may be empty.
	Ranges []moe.Range
	// SequenceBudget is the most bytes that the KV caches of all sequences may
	// hold on each rank, 0 for no limit. All ranks hold the same sequences, so
	// that it is what the rank with the least memory has for them.
	SequenceBudget int64
}

// settingsForm is the JSON form of Settings. A range is [start, end].
type settingsForm struct {
	Context   int     `json:"context"`
	MaxTokens int     `json:"max_tokens"`
	Reduce    string  `json:"reduce"`
	Wire      string  `json:"wire"`
	Ranges    [][]int `json:"ranges"`
	Sequences int64   `json:"sequence_budget"`
}

// Encode checks the settings and encodes them for ParseSettings. Its error names
// the field.
func (s Settings) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	f := settingsForm{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: s.Reduce, Wire: s.Wire, Sequences: s.SequenceBudget}
	for _, r := range s.Ranges {
		f.Ranges = append(f.Ranges, []int{r.Start, r.End})
	}
	return json.Marshal(f)
}

// ParseSettings decodes the result of Encode. Unknown fields and values that no
// rank could use are errors that name the field.
func ParseSettings(data []byte) (Settings, error) {
	var f settingsForm
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Settings{}, fmt.Errorf("replica: settings of the plan: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Settings{}, fmt.Errorf("replica: settings of the plan: more follows their end")
	}
	s := Settings{Context: f.Context, MaxTokens: f.MaxTokens, Reduce: f.Reduce, Wire: f.Wire, SequenceBudget: f.Sequences}
	for i, r := range f.Ranges {
		if len(r) != 2 {
			return Settings{}, fmt.Errorf("replica: settings of the plan: range of rank %d has %d numbers, expected start and end", i, len(r))
		}
		s.Ranges = append(s.Ranges, moe.Range{Start: r[0], End: r[1]})
	}
	if err := s.check(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// check refuses settings that no rank could use.
func (s Settings) check() error {
	bad := func(field string, value any, rule string) error {
		return fmt.Errorf("replica: settings of the plan: %s is %v, expected %s", field, value, rule)
	}
	switch {
	case s.Context < 2:
		return bad("context", s.Context, "2 or more")
	case s.MaxTokens < 1:
		return bad("max_tokens", s.MaxTokens, "1 or more")
	case s.SequenceBudget < 0:
		return bad("sequence_budget", s.SequenceBudget, "0 or more")
	case len(s.Ranges) == 0:
		return bad("ranges", "empty", "a range for each rank")
	}
	if _, err := moe.ParseReduce(s.Reduce); err != nil {
		return fmt.Errorf("replica: settings of the plan: %w", err)
	}
	if _, err := moe.ParseWire(s.Wire); err != nil {
		return fmt.Errorf("replica: settings of the plan: %w", err)
	}
	at := 0
	for i, r := range s.Ranges {
		if r.Start != at || r.End < r.Start {
			return bad(fmt.Sprintf("range of rank %d", i), fmt.Sprintf("%d to %d", r.Start, r.End), fmt.Sprintf("to begin at %d and not to end before", at))
		}
		at = r.End
	}
	if at == 0 {
		return bad("ranges", "of no experts", "at least one expert")
	}
	return nil
}

// loadAlike reports whether a model loaded for s can be used for t, which holds if
// they differ only in the ranges and the budget.
func (s Settings) loadAlike(t Settings) bool {
	s.Ranges, t.Ranges = nil, nil
	s.SequenceBudget, t.SequenceBudget = 0, 0
	return reflect.DeepEqual(s, t)
}
