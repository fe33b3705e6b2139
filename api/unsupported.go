package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// unsupportedField is a request field of other servers that would change the
// answer but is not implemented here. Ignoring it would give an answer that only
// looks right, so any value but the neutral ones is a 400.
type unsupportedField struct {
	name    string
	neutral []string // JSON values, without space, that request nothing; null always is
	remedy  string   // what to do instead
}

// unsupportedFields lists fields of OpenAI's API and, below, those that clients
// of other servers are known to send.
var unsupportedFields = []unsupportedField{
	{"tools", []string{`[]`}, "Tools are not supported yet; leave them out."},
	{"tool_choice", []string{`"none"`, `"auto"`}, "Tools are not supported yet."},
	{"functions", []string{`[]`}, "Functions are not supported; leave them out."},
	{"function_call", []string{`"none"`, `"auto"`}, "Functions are not supported."},
	{"response_format", []string{`{"type":"text"}`}, "Only the type text is supported so far; ask for the format in a message."},
	{"audio", nil, "Only text output is supported."},
	{"modalities", []string{`[]`, `["text"]`}, "Only text is supported."},
	{"prediction", nil, "Predicted outputs are not supported."},
	{"web_search_options", nil, "Web search is not supported."},
	{"verbosity", []string{`"medium"`}, "Ask for a shorter or longer answer in a message."},
	{"moderation", []string{`false`}, "Moderation is not supported."},

	{"repetition_penalty", []string{`1`, `1.0`}, "Use presence_penalty or frequency_penalty."},
	{"repeat_penalty", []string{`1`, `1.0`}, "Use presence_penalty or frequency_penalty."},
	{"length_penalty", []string{`1`, `1.0`}, "Beam search is not supported."},
	{"use_beam_search", []string{`false`}, "Beam search is not supported."},
	{"typical_p", []string{`1`, `1.0`}, "Use top_p or min_p."},
	{"top_a", []string{`0`}, "Use top_p or min_p."},
	{"tfs_z", []string{`1`, `1.0`}, "Use top_p or min_p."},
	{"mirostat", []string{`0`}, "Use temperature, top_p or min_p."},
	{"dry_multiplier", []string{`0`, `0.0`}, "Use presence_penalty or frequency_penalty."},
	{"xtc_probability", []string{`0`, `0.0`}, "Use temperature or min_p."},
	{"dynatemp_range", []string{`0`, `0.0`}, "Use temperature."},
	{"samplers", nil, "The order of the samplers is fixed."},
	{"stop_token_ids", []string{`[]`}, "Use stop."},
	{"bad_words", []string{`[]`}, "Use logit_bias."},
	{"allowed_token_ids", nil, "Use logit_bias."},
	{"include_stop_str_in_output", []string{`false`}, "Stop strings are never part of the answer."},
	{"skip_special_tokens", []string{`true`}, "Control tokens are never part of the answer."},
	{"logits_processors", []string{`[]`}, "Use logit_bias."},
	{"logit_processors", []string{`[]`}, "Use logit_bias."},
	{"custom_logit_processor", nil, "Use logit_bias."},
	{"grammar", []string{`""`}, "Constrained output is not supported yet."},
	{"json_schema", nil, "Constrained output is not supported yet."},
	{"structured_outputs", nil, "Constrained output is not supported yet."},
	{"guided_json", nil, "Constrained output is not supported yet."},
	{"guided_regex", nil, "Constrained output is not supported yet."},
	{"guided_choice", nil, "Constrained output is not supported yet."},
	{"guided_grammar", nil, "Constrained output is not supported yet."},
	{"truncate_prompt_tokens", nil, "Prompts are never truncated; send a shorter one."},
	{"chat_template", nil, "The chat template is built in."},
	{"add_generation_prompt", []string{`true`}, "Use /v1/completions to format the prompt yourself."},
	{"lora", []string{`[]`}, "LoRA adapters are not supported."},
	{"lora_request", nil, "LoRA adapters are not supported."},
}

// rejectUnsupported fails f for the first unsupported field with a value that is
// not neutral.
func rejectUnsupported(f *fields) {
	for _, u := range unsupportedFields {
		if !f.has(u.name) {
			continue
		}
		if v, ok := compact(f.raw[u.name]); !ok || !slices.Contains(u.neutral, v) {
			f.fail(unsupported(u.name, "'%s' is not supported with the value %s. %s", u.name, excerpt(f.raw[u.name]), u.remedy))
			return
		}
	}
}

// maxCompact bounds what compact decodes: every neutral value is far shorter.
const maxCompact = 64

// compact returns a JSON value in one form: without space between its parts,
// object keys sorted, and numbers as they were written, since the neutral values
// list 1 and 1.0 separately. ok is false for a value longer than maxCompact.
func compact(raw json.RawMessage) (value string, ok bool) {
	length := 0
	for _, c := range raw {
		if strings.IndexByte(jsonSpace, c) >= 0 {
			continue
		}
		if length++; length > maxCompact {
			return "", false
		}
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a number may be beyond float64
	if dec.Decode(&v) != nil {
		return "", false
	}
	b, err := json.Marshal(v)
	return string(b), err == nil
}
