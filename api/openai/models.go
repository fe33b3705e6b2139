package openai

import "ringmaster/api/dialect"

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// MaxModelLen is the context length in tokens, under vLLM's name for it.
	MaxModelLen int `json:"max_model_len,omitempty"`
}

// Model is the JSON that describes the model.
func Model(s *dialect.Service) any { return model(s) }

func model(s *dialect.Service) modelObject {
	m := modelObject{ID: s.Model.ID, Object: "model", OwnedBy: s.Model.OwnedBy, MaxModelLen: s.Model.ContextLength}
	if !s.Model.Created.IsZero() {
		m.Created = s.Model.Created.Unix()
	}
	return m
}

// Models is the JSON of the list of models.
func Models(s *dialect.Service) any {
	return struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{model(s)}}
}
