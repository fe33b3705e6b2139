package openai

import (
	"time"

	"ringmaster/api/dialect"
)

// modelObject describes a model to the clients of both OpenAI's and Anthropic's API,
// because these share the path. Each client reads the members it knows.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// MaxModelLen is the context length in tokens, under vLLM's name for it.
	MaxModelLen int `json:"max_model_len,omitempty"`

	Type        string `json:"type"` // Anthropic's
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

// Model returns the JSON that describes the model under one of its names.
func Model(s *dialect.Service, name string) any { return model(s, name) }

func model(s *dialect.Service, name string) modelObject {
	m := modelObject{ID: name, Object: "model", OwnedBy: s.Model.OwnedBy, MaxModelLen: s.Model.ContextLength, Type: "model", DisplayName: name}
	created := time.Unix(0, 0)
	if !s.Model.Created.IsZero() {
		created = s.Model.Created
	}
	m.Created, m.CreatedAt = created.Unix(), created.UTC().Format(time.RFC3339)
	return m
}

// Models returns the JSON of the list of the model's names.
func Models(s *dialect.Service) any {
	list := struct {
		Object  string        `json:"object"`
		Data    []modelObject `json:"data"`
		HasMore bool          `json:"has_more"` // and the rest for Anthropic's clients
		FirstID string        `json:"first_id"`
		LastID  string        `json:"last_id"`
		// Models is empty: Codex requires the member, and falls back to its own
		// descriptions for models that it does not find there.
		Models []struct{} `json:"models"`
	}{Object: "list", Models: []struct{}{}}
	for _, name := range append([]string{s.Model.ID}, s.Model.Aliases...) {
		list.Data = append(list.Data, model(s, name))
		list.LastID = name
	}
	list.FirstID = s.Model.ID
	return list
}
