package ollama

import (
	"fmt"
	"maps"
	"math"
	"time"

	"ringmaster/api/dialect"
)

// The JSON of the descriptions of models.
type (
	modelList struct {
		Models []modelEntry `json:"models"`
	}
	modelEntry struct {
		Name       string  `json:"name"`
		Model      string  `json:"model"`
		ModifiedAt string  `json:"modified_at,omitempty"` // of a list
		Size       int64   `json:"size"`                  // bytes
		Digest     string  `json:"digest"`
		Details    details `json:"details"`
		*loaded            // of a model that runs
	}
	loaded struct {
		ExpiresAt     string `json:"expires_at"`
		SizeVRAM      int64  `json:"size_vram"` // bytes
		ContextLength int    `json:"context_length"`
	}
	details struct {
		Parent        string   `json:"parent_model"`
		Format        string   `json:"format"`
		Family        string   `json:"family"`
		Families      []string `json:"families"`
		ParameterSize string   `json:"parameter_size"`
		Quantization  string   `json:"quantization_level"`
	}
	modelInfo struct {
		Modelfile    string         `json:"modelfile"`
		Parameters   string         `json:"parameters"`
		Template     string         `json:"template"`
		Details      details        `json:"details"`
		Info         map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		ModifiedAt   string         `json:"modified_at"`
	}
)

// VersionInfo answers a request to /api/version.
func VersionInfo(*dialect.Service) any {
	return struct {
		Version string `json:"version"`
	}{Version}
}

// Tags answers a request to /api/tags: the names of the model.
func Tags(s *dialect.Service) any {
	list := modelList{}
	for _, name := range append([]string{s.Model.ID}, s.Model.Aliases...) {
		e := entry(s, name)
		e.ModifiedAt = modified(s)
		list.Models = append(list.Models, e)
	}
	return list
}

// never is the expiry of a model that stays loaded. It is the last time that an int64 of
// nanoseconds can express, because Ollama's clients compute with these.
var never = time.Unix(0, math.MaxInt64)

// Running answers a request to /api/ps: the model, under its first name.
func Running(s *dialect.Service) any {
	e := entry(s, s.Model.ID)
	e.loaded = &loaded{ExpiresAt: timestamp(never), ContextLength: s.Model.ContextLength}
	if s.Model.File.OnGPU {
		e.SizeVRAM = e.Size
	}
	return modelList{[]modelEntry{e}}
}

// Show answers a request to /api/show.
func Show(s *dialect.Service, f *dialect.Fields) (any, *dialect.Error) {
	modelName(s, f)
	if f.Err != nil {
		return nil, f.Err
	}
	m := &s.Model
	info := maps.Clone(m.File.Metadata)
	if info == nil {
		info = map[string]any{}
	}
	family := family(s)
	info["general.architecture"] = family
	info["general.parameter_count"] = m.File.Parameters
	if m.ContextLength > 0 { // the server's context, which may be smaller than the file's
		info[family+".context_length"] = m.ContextLength
	}
	out := modelInfo{Modelfile: "FROM " + m.ID + "\n", Details: detailsOf(s), Info: info, Capabilities: []string{"completion"}, ModifiedAt: modified(s)}
	if len(m.Format.CallMarkers()) > 0 {
		out.Capabilities = append(out.Capabilities, "tools")
	}
	if m.Format.Thinks(true) {
		out.Capabilities = append(out.Capabilities, "thinking")
	}
	return out, nil
}

// modified returns when the model was loaded.
func modified(s *dialect.Service) string {
	if s.Model.Created.IsZero() {
		return timestamp(time.Unix(0, 0))
	}
	return timestamp(s.Model.Created)
}

// family returns the architecture, or the model's name if there is no file.
func family(s *dialect.Service) string {
	if s.Model.File.Architecture != "" {
		return s.Model.File.Architecture
	}
	return s.Model.ID
}

func entry(s *dialect.Service, name string) modelEntry {
	return modelEntry{Name: name, Model: name, Size: s.Model.File.Bytes, Digest: s.Model.File.Digest, Details: detailsOf(s)}
}

func detailsOf(s *dialect.Service) details {
	family := family(s)
	return details{Format: "gguf", Family: family, Families: []string{family},
		ParameterSize: parameterSize(s.Model.File.Parameters), Quantization: s.Model.File.Quantization}
}

// parameterSize writes a number of parameters as model cards do: 671.0B, 7.6M.
func parameterSize(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"K", "M", "B"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}
