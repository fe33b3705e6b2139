package synthetic

import (
	"fmt"

	"ringmaster/gguf"
)

// The ids that the markers have in every file, and in files long enough for the
// true ones (spec of the model's tokenizer).
var (
	head = []marker{
		{0, "<｜begin▁of▁sentence｜>", control},
		{1, "<｜end▁of▁sentence｜>", control},
		{2, "<｜▁pad▁｜>", control},
	}
	tail = []marker{
		{128803, "<｜User｜>", control},
		{128804, "<｜Assistant｜>", control},
		{128821, "<think>", userDefined},
		{128822, "</think>", userDefined},
		{128825, "｜DSML｜", userDefined},
		{128828, "<｜latest_reminder｜>", control},
	}
)

type marker struct {
	id   int // the true id
	text string
	kind int32
}

// The kinds of tokens (tokenizer.ggml.token_type).
const (
	ordinary    int32 = 1
	control     int32 = 3
	userDefined int32 = 4
	unused      int32 = 5
)

// leastVocab is the size of the smallest vocabulary: the markers and all bytes.
var leastVocab = len(head) + 256 + len(tail)

// mostMerges bounds the training; longer vocabularies are filled up with tokens
// that no text produces.
const mostMerges = 1200

// chatTemplate renders plain conversations: no tools, thinking if asked for.
const chatTemplate = `{%- set think = thinking is defined and thinking -%}
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{- message['content'] -}}
{%- elif message['role'] == 'user' -%}{{- '<｜User｜>' + message['content'] -}}
{%- elif message['role'] == 'assistant' -%}{{- '<｜Assistant｜></think>' + message['content'] + eos_token -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' + ('<think>' if think else '</think>') -}}{%- endif -%}`

// putVocabulary puts a byte-level BPE vocabulary of exactly c.Vocab tokens:
// three markers, the bytes, the merged pieces, fillers, and the other markers,
// at their true ids if the vocabulary is long enough and otherwise at its end.
func (c *Config) putVocabulary(w *gguf.Writer) error {
	tokens := make([]string, c.Vocab)
	kinds := make([]int32, c.Vocab)
	set := func(id int, text string, kind int32) { tokens[id], kinds[id] = text, kind }
	for _, m := range head {
		set(m.id, m.text, m.kind)
	}
	first := c.Vocab - len(tail) // where the other markers begin
	trueIDs := c.Vocab > tail[len(tail)-1].id
	if trueIDs {
		first = tail[0].id
	}
	for i, m := range tail {
		if trueIDs {
			set(m.id, m.text, m.kind)
		} else {
			set(first+i, m.text, m.kind)
		}
	}
	next := len(head)
	for _, char := range byteChars() {
		set(next, char, ordinary)
		next++
	}
	var lines []string
	for _, p := range trainBPE(corpus, min(first-next, mostMerges)) {
		set(next, p[0]+p[1], ordinary)
		lines = append(lines, p[0]+" "+p[1])
		next++
	}
	for id, text := range tokens {
		if text == "" {
			set(id, fmt.Sprintf("<｜unused▁%d｜>", id), unused)
		}
	}
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "joyai-llm"},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", kinds},
		{"tokenizer.ggml.merges", lines},
		{"tokenizer.ggml.bos_token_id", uint32(0)},
		{"tokenizer.ggml.eos_token_id", uint32(1)},
		{"tokenizer.ggml.padding_token_id", uint32(2)},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.ggml.add_eos_token", false},
		{"tokenizer.chat_template", chatTemplate},
	} {
		if err := w.Put(kv.key, kv.value); err != nil {
			return err
		}
	}
	return nil
}
