package harness

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"ringmaster/gguf"
	"ringmaster/model/builtin"
	"ringmaster/model/deepseek4"
	"ringmaster/model/tokenizer"
)

// Vocabulary is the part of a model that is needed to generate prompts for it.
type Vocabulary struct {
	Context  int              // context length in tokens
	ordinary []int32          // tokens that have text
	first    int32            // of a sequence
	ids      map[string]int32 // by the names of tokens in the API
}

// ReadVocabulary reads the vocabulary of a model file, or of the built-in
// model if path is "".
func ReadVocabulary(path string) (*Vocabulary, error) {
	open := builtin.Open
	if path != "" {
		open = func() (*gguf.File, error) { return gguf.Open(path) }
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := deepseek4.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.FromGGUF(f)
	if err != nil {
		return nil, err
	}
	v := &Vocabulary{Context: c.Context, ids: map[string]int32{}}
	for id := range int32(min(t.Size(), c.Vocab)) {
		b := t.Bytes(id)
		name := tokenName(b, t.Text(id))
		if _, taken := v.ids[name]; !taken {
			v.ids[name] = id
		}
		if len(b) > 0 {
			v.ordinary = append(v.ordinary, id)
		}
	}
	if len(v.ordinary) == 0 {
		return nil, fmt.Errorf("%s: no token has text", f.Path())
	}
	v.first = v.ordinary[0]
	if bos, ok := t.BOS(); ok {
		v.first = bos
	}
	return v, nil
}

// tokenName is the name of a token in the log-probabilities of the API: its text,
// incomplete characters as bytes:\xe2\x82, or the name of a control token.
func tokenName(b []byte, text string) string {
	if len(b) == 0 {
		return text
	}
	if utf8.Valid(b) {
		return string(b)
	}
	var name strings.Builder
	name.WriteString("bytes:")
	for _, c := range b {
		fmt.Fprintf(&name, "\\x%02x", c)
	}
	return name.String()
}

// Prompt returns n tokens: the one that begins a sequence, then random ordinary ones, so
// that all experts are used.
func (v *Vocabulary) Prompt(seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	ids := []int32{v.first}
	for len(ids) < n {
		ids = append(ids, v.ordinary[r.IntN(len(v.ordinary))])
	}
	return ids
}

// IDs returns the ids of the tokens of an answer.
func (v *Vocabulary) IDs(tokens []Token) ([]int32, error) {
	ids := make([]int32, len(tokens))
	for i, t := range tokens {
		id, ok := v.ids[t.Name]
		if !ok {
			return nil, fmt.Errorf("token %d of the answer is %q, which is not in the vocabulary", i, t.Name)
		}
		ids[i] = id
	}
	return ids, nil
}
