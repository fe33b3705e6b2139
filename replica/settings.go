package replica

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"ringmaster/parallel"
)

// Settings are the part of the leader's plan that every rank needs.
type Settings struct {
	Context   int             // most positions of a sequence
	MaxTokens int             // most tokens of a step
	Reduce    parallel.Reduce // how expert outputs are added
	// Placement is what each rank computes. Only the models interpret it.
	Placement parallel.Placement
	// Measure lets the ranks measure when their group is connected, and choose
	// among Placement and Alternatives; see Choose.
	Measure      bool
	Alternatives []parallel.Placement
	// SequenceBudget bounds the bytes of the KV caches of all sequences on each
	// rank, 0 for no limit. It is what the rank with the least memory has for
	// them, because all ranks have the same sequences.
	SequenceBudget int64
	// Helper is whether the next rank that joins becomes the helper, so that it needs no
	// sequences before.
	Helper bool
	// Block is whether rank 0 runs the model's block for multi-token prediction.
	Block bool
}

// settingsForm is the JSON form of Settings.
type settingsForm struct {
	Context      int                  `json:"context"`
	MaxTokens    int                  `json:"max_tokens"`
	Reduce       string               `json:"reduce"`
	Placement    parallel.Placement   `json:"placement"`
	Measure      bool                 `json:"measure,omitempty"`
	Alternatives []parallel.Placement `json:"alternatives,omitempty"`
	Sequences    int64                `json:"sequence_budget"`
	Helper       bool                 `json:"helper,omitempty"`
	Block        bool                 `json:"block,omitempty"`
}

// Encode checks the settings and encodes them for ParseSettings. Its error names
// the field.
func (s Settings) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return json.Marshal(settingsForm{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: s.Reduce.String(),
		Placement: s.Placement, Measure: s.Measure, Alternatives: s.Alternatives, Sequences: s.SequenceBudget, Helper: s.Helper, Block: s.Block})
}

// ParseSettings decodes the result of Encode. Unknown fields and values that no
// rank could use are errors that name the field.
func ParseSettings(data []byte) (Settings, error) {
	var f settingsForm
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Settings{}, fmt.Errorf("settings of the plan: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Settings{}, fmt.Errorf("settings of the plan: data follows their end")
	}
	reduce, err := parallel.ParseReduce(f.Reduce)
	if err != nil {
		return Settings{}, fmt.Errorf("settings of the plan: %w", err)
	}
	s := Settings{Context: f.Context, MaxTokens: f.MaxTokens, Reduce: reduce,
		Placement: f.Placement, Measure: f.Measure, Alternatives: f.Alternatives, SequenceBudget: f.Sequences, Helper: f.Helper, Block: f.Block}
	if err := s.check(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// check returns an error for settings that no rank could use.
func (s Settings) check() error {
	bad := func(field string, value any, rule string) error {
		return fmt.Errorf("settings of the plan: %s is %v, expected %s", field, value, rule)
	}
	switch {
	case s.Context < 2:
		return bad("context", s.Context, "2 or more")
	case s.MaxTokens < 1:
		return bad("max_tokens", s.MaxTokens, "1 or more")
	case s.SequenceBudget < 0:
		return bad("sequence_budget", s.SequenceBudget, "0 or more")
	}
	if len(s.Alternatives) > mostAlternatives {
		return bad("alternatives", len(s.Alternatives), fmt.Sprintf("at most %d", mostAlternatives))
	}
	for _, p := range s.placements() {
		sizes := s.Placement.Sizes()
		sizes.Layers = p.Sizes().Layers // which only one with stages has; the model checks them
		if err := p.Check(sizes, len(s.Placement)); err != nil {
			return fmt.Errorf("settings of the plan: %w", err)
		}
	}
	return nil
}

// mostAlternatives is more than the number of ways to divide a model.
const mostAlternatives = 8

// placements returns Placement and Alternatives.
func (s Settings) placements() []parallel.Placement {
	return append([]parallel.Placement{s.Placement}, s.Alternatives...)
}

// loadAlike reports whether a model loaded for s can be used for t, which holds if
// they differ only in the placements, how one is chosen, and the budget.
func (s Settings) loadAlike(t Settings) bool {
	s.Placement, t.Placement, s.Alternatives, t.Alternatives = nil, nil, nil, nil
	s.Measure = t.Measure
	s.SequenceBudget, t.SequenceBudget = 0, 0
	s.Helper = t.Helper
	return reflect.DeepEqual(s, t)
}
