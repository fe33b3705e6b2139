package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzVocabulary: a vocabulary from any file is refused with an error, or encodes and
// decodes any text without a panic, into ids that it has.
func FuzzVocabulary(f *testing.F) {
	var bytes []string // the 256 tokens that every byte-level vocabulary needs
	tok := golden(f)
	for _, id := range tok.byteID {
		bytes = append(bytes, tok.Text(id))
	}
	f.Add("ab\nc<|x|>\n", "a b\nab c\n", []byte{1, 1, 3}, uint8(1), "abc<|x|>")
	f.Add("a\na\n", "a  b\n \n", []byte{9}, uint8(0xff), "")
	f.Add("", "", []byte{}, uint8(0), "\xff\x00é")
	pres := Pretokenizers()
	f.Fuzz(func(t *testing.T, tokens, merges string, types []byte, flags uint8, text string) {
		v := Vocab{Model: "gpt2", Pre: pres[int(flags>>3)%len(pres)], Tokens: append(append([]string{}, bytes...), strings.Split(tokens, "\n")...), AddBOS: flags&1 != 0}
		if merges != "" {
			v.Merges = strings.Split(merges, "\n")
		}
		if flags&2 != 0 {
			v.Types = make([]Type, len(v.Tokens))
			for i := range v.Types {
				v.Types[i] = Normal
				if j := i - len(bytes); j >= 0 && j < len(types) {
					v.Types[i] = Type(int8(types[j]))
				}
			}
		}
		if flags&4 != 0 {
			id := int32(int8(flags)) + int32(len(v.Tokens))/2
			v.BOS, v.EOS = &id, &id
		}
		tok, err := New(v)
		if err != nil {
			require.ErrorIs(t, err, ErrVocabulary)
			return
		}
		for _, special := range []bool{false, true} {
			ids := tok.Encode(text, special)
			for _, id := range ids {
				require.True(t, id >= 0 && int(id) < tok.Size())
				tok.IsEnd(id)
			}
			_ = tok.Decode(ids)
		}
		_ = tok.Decode([]int32{-1, int32(tok.Size())})
	})
}
