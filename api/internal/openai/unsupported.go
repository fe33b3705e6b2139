package openai

import "ringmaster/api/dialect"

// UnsupportedFields lists fields of OpenAI's API and, below, those that clients of other
// servers send.
var UnsupportedFields = []dialect.UnsupportedField{
	{Name: "functions", Neutral: []string{`[]`}, Remedy: "Use tools."},
	{Name: "function_call", Neutral: []string{`"none"`, `"auto"`}, Remedy: "Use tool_choice."},
	{Name: "audio", Remedy: "Only text output is supported."},
	{Name: "modalities", Neutral: []string{`[]`, `["text"]`}, Remedy: "Only text is supported."},
	{Name: "web_search_options", Remedy: "Web search is not supported."},
	{Name: "verbosity", Neutral: []string{`"medium"`}, Remedy: "Ask for a shorter or longer answer in a message."},
	{Name: "moderation", Neutral: []string{`false`}, Remedy: "Moderation is not supported."},

	{Name: "repetition_penalty", Neutral: []string{`1`, `1.0`}, Remedy: "Use presence_penalty or frequency_penalty."},
	{Name: "repeat_penalty", Neutral: []string{`1`, `1.0`}, Remedy: "Use presence_penalty or frequency_penalty."},
	{Name: "length_penalty", Neutral: []string{`1`, `1.0`}, Remedy: "Beam search is not supported."},
	{Name: "use_beam_search", Neutral: []string{`false`}, Remedy: "Beam search is not supported."},
	{Name: "typical_p", Neutral: []string{`1`, `1.0`}, Remedy: "Use top_p or min_p."},
	{Name: "top_a", Neutral: []string{`0`}, Remedy: "Use top_p or min_p."},
	{Name: "tfs_z", Neutral: []string{`1`, `1.0`}, Remedy: "Use top_p or min_p."},
	{Name: "mirostat", Neutral: []string{`0`}, Remedy: "Use temperature, top_p or min_p."},
	{Name: "dry_multiplier", Neutral: []string{`0`, `0.0`}, Remedy: "Use presence_penalty or frequency_penalty."},
	{Name: "xtc_probability", Neutral: []string{`0`, `0.0`}, Remedy: "Use temperature or min_p."},
	{Name: "dynatemp_range", Neutral: []string{`0`, `0.0`}, Remedy: "Use temperature."},
	{Name: "samplers", Remedy: "The order of the samplers is fixed."},
	{Name: "stop_token_ids", Neutral: []string{`[]`}, Remedy: "Use stop."},
	{Name: "bad_words", Neutral: []string{`[]`}, Remedy: "Use logit_bias."},
	{Name: "allowed_token_ids", Remedy: "Use logit_bias."},
	{Name: "include_stop_str_in_output", Neutral: []string{`false`}, Remedy: "Stop strings are never part of the answer."},
	{Name: "skip_special_tokens", Neutral: []string{`true`}, Remedy: "Control tokens are never part of the answer."},
	{Name: "logits_processors", Neutral: []string{`[]`}, Remedy: "Use logit_bias."},
	{Name: "logit_processors", Neutral: []string{`[]`}, Remedy: "Use logit_bias."},
	{Name: "custom_logit_processor", Remedy: "Use logit_bias."},
	{Name: "truncate_prompt_tokens", Remedy: "Prompts are never truncated; send a shorter one."},
	{Name: "chat_template", Remedy: "The chat template is built in."},
	{Name: "add_generation_prompt", Neutral: []string{`true`}, Remedy: "Use /v1/completions to format the prompt yourself."},
	{Name: "lora", Neutral: []string{`[]`}, Remedy: "LoRA adapters are not supported."},
	{Name: "lora_request", Remedy: "LoRA adapters are not supported."},
}
