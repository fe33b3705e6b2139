package synthetic

import (
	"maps"
	"slices"
)

// family is the markers of the vocabularies with one pre-tokenizer.
type family struct {
	head, tail    []marker // first ids; last ids, in ascending order without gaps in short vocabularies
	bos, eos, pad string
	template      string // plain conversations: no tools
}

// families are by tokenizer.ggml.pre.
var families = map[string]family{
	"joyai-llm": {headV3, []marker{
		{128803, "<｜User｜>", control},
		{128804, "<｜Assistant｜>", control},
		{128821, "<think>", userDefined},
		{128822, "</think>", userDefined},
		{128825, "｜DSML｜", userDefined},
		{128828, "<｜latest_reminder｜>", control},
	}, beginV3, endV3, "<｜▁pad▁｜>", templateV3},
	"deepseek-v3": {headV3, []marker{
		{128798, "<think>", userDefined},
		{128799, "</think>", userDefined},
		{128803, "<｜User｜>", control},
		{128804, "<｜Assistant｜>", control},
	}, beginV3, endV3, "<｜▁pad▁｜>", templateV3},
	"deepseek-llm":   {nil, tailLLM, beginV3, endV3, endV3, templateLLM},
	"deepseek-coder": {nil, tailLLM, beginV3, endV3, endV3, templateLLM},
	"kimi-k2": {nil, []marker{ // the ids after the first three are not the true ones: names decide
		{163584, "[BOS]", control},
		{163585, "[EOS]", control},
		{163586, "<|im_end|>", control},
		{163587, "<|im_user|>", control},
		{163588, "<|im_assistant|>", control},
		{163589, "<|im_system|>", control},
		{163590, "<|im_middle|>", control},
		{163839, "[PAD]", control},
	}, "[BOS]", "<|im_end|>", "[PAD]", templateKimi},
	"glm4": {nil, []marker{
		{-1, "<|endoftext|>", control},
		{-1, "[gMASK]", control},
		{-1, "<sop>", control},
		{-1, "<|system|>", control},
		{-1, "<|user|>", control},
		{-1, "<|assistant|>", control},
		{-1, "<|observation|>", control},
		{-1, "<think>", userDefined},
		{-1, "</think>", userDefined},
		{-1, "<tool_call>", userDefined},
		{-1, "</tool_call>", userDefined},
		{-1, "<tool_response>", userDefined},
		{-1, "</tool_response>", userDefined},
		{-1, "<arg_key>", userDefined},
		{-1, "</arg_key>", userDefined},
		{-1, "<arg_value>", userDefined},
		{-1, "</arg_value>", userDefined},
	}, "[gMASK]", "<|endoftext|>", "<|endoftext|>", templateGLM},
}

const (
	beginV3 = "<｜begin▁of▁sentence｜>"
	endV3   = "<｜end▁of▁sentence｜>"
)

var (
	headV3  = []marker{{0, beginV3, control}, {1, endV3, control}, {2, "<｜▁pad▁｜>", control}}
	tailLLM = []marker{{100000, beginV3, control}, {100001, endV3, control}}
)

// Pretokenizers lists the values of Config.Pre.
func Pretokenizers() []string { return slices.Sorted(maps.Keys(families)) }

// leastVocab is the size of the smallest vocabulary: the markers and all bytes.
func (f *family) leastVocab() int { return len(f.head) + 256 + len(f.tail) }

// templateV3 renders plain conversations: no tools, thinking if asked for.
const templateV3 = `{%- set think = thinking is defined and thinking -%}
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{- message['content'] -}}
{%- elif message['role'] == 'user' -%}{{- '<｜User｜>' + message['content'] -}}
{%- elif message['role'] == 'assistant' -%}{{- '<｜Assistant｜></think>' + message['content'] + eos_token -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' + ('<think>' if think else '</think>') -}}{%- endif -%}`

// templateLLM is V2's.
const templateLLM = `{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{- message['content'] + '\n\n' -}}
{%- elif message['role'] == 'user' -%}{{- 'User: ' + message['content'] + '\n\n' -}}
{%- elif message['role'] == 'assistant' -%}{{- 'Assistant: ' + message['content'] + eos_token -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}`

// templateKimi is Kimi K2's, without the system turn that it puts in.
const templateKimi = `{%- for message in messages -%}
{{- '<|im_' + message['role'] + '|>' + message['role'] + '<|im_middle|>' + message['content'] + '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}`

// templateGLM is GLM-4.7's.
const templateGLM = `{{- '[gMASK]<sop>' -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{- '<|system|>' + message['content'] -}}
{%- elif message['role'] == 'user' -%}{{- '<|user|>' + message['content'] -}}
{%- elif message['role'] == 'assistant' -%}{{- '<|assistant|></think>' + message['content'] -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' + ('</think>' if enable_thinking is defined and not enable_thinking else '<think>') -}}{%- endif -%}`
