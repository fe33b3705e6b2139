package synthetic

import (
	"fmt"
	"slices"
)

type marker struct {
	id   int // the true id; -1: not known, at the end of the vocabulary
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

// mostMerges bounds the training; longer vocabularies are filled up with tokens
// that no text produces.
const mostMerges = 1200

// vocabularyKeys has a byte-level BPE vocabulary of exactly c.Vocab tokens:
// the family's first markers, the bytes, the merged pieces, fillers, and the other
// markers, at their true ids if these are known and the vocabulary is long enough,
// and otherwise at its end. It also returns the tokens.
func (c *Config) vocabularyKeys() (keys []pair, tokens []string) {
	f := families[c.Pre]
	head, tail := f.head, f.tail
	if c.Arch == archEngram { // the id is not the true one
		tail = append(slices.Clone(tail), marker{128829, "<｜System｜>", control})
	}
	tokens = make([]string, c.Vocab)
	kinds := make([]int32, c.Vocab)
	set := func(id int, text string, kind int32) { tokens[id], kinds[id] = text, kind }
	for _, m := range head {
		set(m.id, m.text, m.kind)
	}
	first := c.Vocab - len(tail) // where the other markers begin
	trueIDs := tail[0].id > 0 && c.Vocab > tail[len(tail)-1].id
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
	for _, p := range mergesOf(min(first-next, mostMerges)) {
		set(next, p[0]+p[1], ordinary)
		lines = append(lines, p[0]+" "+p[1])
		next++
	}
	for id, text := range tokens {
		if text == "" {
			set(id, fmt.Sprintf("<｜unused▁%d｜>", id), unused)
		}
	}
	id := func(text string) uint32 { return uint32(slices.Index(tokens, text)) }
	return []pair{
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", c.Pre},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", kinds},
		{"tokenizer.ggml.merges", lines},
		{"tokenizer.ggml.bos_token_id", id(f.bos)},
		{"tokenizer.ggml.eos_token_id", id(f.eos)},
		{"tokenizer.ggml.padding_token_id", id(f.pad)},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.ggml.add_eos_token", false},
		{"tokenizer.chat_template", f.template},
	}, tokens
}
