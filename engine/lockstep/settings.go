package lockstep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"ringmaster/moe"
)

// Settings are what the leader's plan tells every rank.
type Settings struct {
	Context   int    // most positions of a sequence
	MaxTokens int    // most tokens of a step
	Reduce    string // how expert outputs become one sum: a name of moe.ParseReduce
	Wire      string // type of the numbers that ranks exchange: a name of moe.ParseWire
	// Ranges are the experts of each rank, [size] in the order of the ranks;
	// each begins where the one before ends, the first at 0. One may be empty.
	Ranges []moe.Range
}

// settingsForm is how Settings are written. A range is [start, end].
type settingsForm struct {
	Context   int     `json:"context"`
	MaxTokens int     `json:"max_tokens"`
	Reduce    string  `json:"reduce"`
	Wire      string  `json:"wire"`
	Ranges    [][]int `json:"ranges"`
}

// Encode checks the settings and writes them for ParseSettings.
func (s Settings) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	f := settingsForm{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: s.Reduce, Wire: s.Wire}
	for _, r := range s.Ranges {
		f.Ranges = append(f.Ranges, []int{r.Start, r.End})
	}
	return json.Marshal(f)
}

// ParseSettings reads what Encode wrote. Unknown fields, and values that no
// rank could use, are errors that name the field.
func ParseSettings(data []byte) (Settings, error) {
	var f settingsForm
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Settings{}, fmt.Errorf("lockstep: settings of the plan: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Settings{}, fmt.Errorf("lockstep: settings of the plan: more follows their end")
	}
	s := Settings{Context: f.Context, MaxTokens: f.MaxTokens, Reduce: f.Reduce, Wire: f.Wire}
	for i, r := range f.Ranges {
		if len(r) != 2 {
			return Settings{}, fmt.Errorf("lockstep: settings of the plan: range of rank %d has %d numbers, expected start and end", i, len(r))
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
		return fmt.Errorf("lockstep: settings of the plan: %s is %v, expected %s", field, value, rule)
	}
	switch {
	case s.Context < 2:
		return bad("context", s.Context, "2 or more")
	case s.MaxTokens < 1:
		return bad("max_tokens", s.MaxTokens, "1 or more")
	case len(s.Ranges) == 0:
		return bad("ranges", "empty", "a range for each rank")
	}
	if _, err := moe.ParseReduce(s.Reduce); err != nil {
		return fmt.Errorf("lockstep: settings of the plan: %w", err)
	}
	if _, err := moe.ParseWire(s.Wire); err != nil {
		return fmt.Errorf("lockstep: settings of the plan: %w", err)
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

// loadAlike reports that a model loaded for s serves t: they differ in nothing
// but the shares.
func (s Settings) loadAlike(t Settings) bool {
	s.Ranges, t.Ranges = nil, nil
	return reflect.DeepEqual(s, t)
}
