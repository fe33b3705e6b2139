package tokenizer

import (
	"fmt"
	"math"

	"ringmaster/gguf"
)

// FromGGUF makes the Tokenizer of a model file. It reads only the keys tokenizer.ggml.*,
// so a vocabulary-only file is enough. Model, pre, tokens and merges are required (for
// kimi-k2 the merges may be missing). Types, the marker ids and add_bos_token may be
// missing (all tokens normal, no such marker, false), but must not be of the wrong kind.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	v, err := readVocab(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVocabulary, err) // err names the file
	}
	t, err := New(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	return t, nil
}

func readVocab(f *gguf.File) (v Vocab, err error) {
	if v.Model, err = f.RequireString("tokenizer.ggml.model"); err != nil {
		return v, err
	}
	if v.Pre, err = f.RequireString("tokenizer.ggml.pre"); err != nil {
		return v, err
	}
	if v.Tokens, err = f.RequireStrings("tokenizer.ggml.tokens"); err != nil {
		return v, err
	}
	if key := "tokenizer.ggml.merges"; f.Has(key) || v.Pre != rankedPre {
		if v.Merges, err = f.RequireStrings(key); err != nil {
			return v, err
		}
	}
	if key := "tokenizer.ggml.token_type"; f.Has(key) {
		types, err := f.RequireInts(key)
		if err != nil {
			return v, err
		}
		v.Types = make([]Type, len(types))
		for i, n := range types {
			// New reports what is not 1 to 6, so the conversion must not wrap around into
			// that range.
			v.Types[i] = Type(max(0, min(n, math.MaxInt32)))
		}
	}
	for _, m := range []struct {
		key string
		id  **int32
	}{
		{"tokenizer.ggml.bos_token_id", &v.BOS},
		{"tokenizer.ggml.eos_token_id", &v.EOS},
		{"tokenizer.ggml.padding_token_id", &v.Pad},
		{"tokenizer.ggml.eot_token_id", &v.EOT},
		{"tokenizer.ggml.eom_token_id", &v.EOM},
	} {
		if !f.Has(m.key) {
			continue
		}
		n, err := f.RequireUint(m.key)
		if err != nil {
			return v, err
		}
		id := int32(min(n, math.MaxInt32)) // New reports an id out of range
		*m.id = &id
	}
	if key := "tokenizer.ggml.add_bos_token"; f.Has(key) {
		if v.AddBOS, err = f.RequireBool(key); err != nil {
			return v, err
		}
	}
	return v, nil
}
