package api

import (
	"encoding/json"
	"fmt"
	"slices"
)

// refusal is a field of other servers that would change the answer and that
// this one does not have. Saying so is better than an answer that looks right:
// any value but the neutral ones is a 400.
type refusal struct {
	name    string
	neutral []string // JSON values, without space, that ask for nothing; null always does
	instead string   // what to do
}

// refusals lists the fields of OpenAI's API and, below, those that clients of
// other servers are known to send in the same body.
var refusals = []refusal{
	{"tools", []string{`[]`}, "Tools are not supported yet; leave them out."},
	{"tool_choice", []string{`"none"`, `"auto"`}, "Tools are not supported yet."},
	{"functions", []string{`[]`}, "Functions are not supported; leave them out."},
	{"function_call", []string{`"none"`, `"auto"`}, "Functions are not supported."},
	{"response_format", []string{`{"type":"text"}`}, "Only the type text is supported yet; ask for the format in a message."},
	{"audio", nil, "Only text is made."},
	{"modalities", []string{`[]`, `["text"]`}, "Only text is supported."},
	{"prediction", nil, "Predicted outputs are not supported."},
	{"web_search_options", nil, "There is no web search."},
	{"verbosity", []string{`"medium"`}, "Ask for a short or a long answer in a message."},
	{"moderation", []string{`false`}, "There is no moderation."},

	{"repetition_penalty", []string{`1`, `1.0`}, "Use presence_penalty or frequency_penalty."},
	{"repeat_penalty", []string{`1`, `1.0`}, "Use presence_penalty or frequency_penalty."},
	{"length_penalty", []string{`1`, `1.0`}, "There is no beam search."},
	{"use_beam_search", []string{`false`}, "There is no beam search."},
	{"typical_p", []string{`1`, `1.0`}, "Use top_p or min_p."},
	{"top_a", []string{`0`}, "Use top_p or min_p."},
	{"tfs_z", []string{`1`, `1.0`}, "Use top_p or min_p."},
	{"mirostat", []string{`0`}, "Use temperature, top_p or min_p."},
	{"dry_multiplier", []string{`0`, `0.0`}, "Use presence_penalty or frequency_penalty."},
	{"xtc_probability", []string{`0`, `0.0`}, "Use temperature or min_p."},
	{"dynatemp_range", []string{`0`, `0.0`}, "Use temperature."},
	{"samplers", nil, "The order of samplers is fixed."},
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
	{"truncate_prompt_tokens", nil, "Shorten the prompt yourself; it is never cut."},
	{"chat_template", nil, "The prompt is laid out as the model's own reference does."},
	{"add_generation_prompt", []string{`true`}, "Use /v1/completions for a prompt of your own."},
	{"lora", []string{`[]`}, "There are no adapters."},
	{"lora_request", nil, "There are no adapters."},
}

// refuseUnsupported fails f for the first field it may not have.
func refuseUnsupported(f *fields) {
	for _, r := range refusals {
		if !f.has(r.name) {
			continue
		}
		if !slices.Contains(r.neutral, compact(f.raw[r.name])) {
			f.fail(unsupported(r.name, "'%s' is not supported with the value %s. %s", r.name, short(f.raw[r.name]), r.instead))
			return
		}
	}
}

// compact is a JSON value without space between its parts.
func compact(raw json.RawMessage) string {
	var v any
	mustUnmarshal(raw, &v)
	// A number keeps its text, so that 1.0 is told from 1.
	if kindOf(raw) == "number" {
		return string(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("api: %v", err)) // what was JSON is JSON
	}
	return string(b)
}
