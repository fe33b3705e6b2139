package openai

import "ringmaster/api/dialect"

// Props answers a request for llama-server's description of the server, as far as it is
// true here.
func Props(s *dialect.Service, version string) any {
	type settings struct {
		ContextLength int `json:"n_ctx,omitempty"`
	}
	type modalities struct {
		Vision bool `json:"vision"`
		Audio  bool `json:"audio"`
	}
	return struct {
		Settings   settings   `json:"default_generation_settings"`
		Path       string     `json:"model_path"`
		Alias      string     `json:"model_alias"`
		Build      string     `json:"build_info"`
		Modalities modalities `json:"modalities"`
	}{settings{s.Model.ContextLength}, s.Model.ID, s.Model.ID, version, modalities{}}
}
