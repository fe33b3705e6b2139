package tokenizer

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of kimi-k2 may lack merges, because the ids are the ranks then. Files of other
// pre-tokenizers may not.
func TestRanksInPlaceOfMerges(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 7))
	for range 200 {
		v := randomVocab(r)
		v.Pre, v.Merges = "kimi-k2", nil
		v.Tokens, v.Types = append(v.Tokens, "cab", "aé"), append(v.Types, Control, Normal)
		tok, err := New(v)
		require.NoError(t, err)
		// Neighbours that together are the text of a token merge, and its id is the rank.
		rank := func(left, right int32) merge {
			if id, ok := tok.ids[tok.tokens[left]+tok.tokens[right]]; ok && tok.types[id] == Normal {
				return merge{rank: id, id: id}
			}
			return merge{rank: noRank}
		}
		m := merger{t: tok}
		for range 30 {
			word := make([]byte, 1+r.IntN(2*shortWord))
			for i := range word {
				word[i] = "aaabbc"[r.IntN(6)]
			}
			require.Equal(t, slowMerge(tok, string(word), rank), m.appendWord(nil, string(word)), "%s", word)
		}
	}
	v := byteVocab()
	v.Pre, v.Merges = "glm4", nil
	_, err := New(v)
	require.ErrorContains(t, err, "tokenizer.ggml.merges is missing")
}
