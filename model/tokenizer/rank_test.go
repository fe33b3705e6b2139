package tokenizer

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowRanks applies a vocabulary of ranks literally: among all neighbours that together
// are the text of a token, those of the lowest id merge, the leftmost among equals.
func slowRanks(t *Tokenizer, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, t.byteID[word[i]])
	}
	for {
		at, best := -1, int32(math.MaxInt32)
		for i := range len(ids) - 1 {
			if id, ok := t.ids[t.tokens[ids[i]]+t.tokens[ids[i+1]]]; ok && t.types[id] == Normal && id < best {
				at, best = i, id
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(append([]int32{}, ids[:at]...), best), ids[at+2:]...)
	}
}

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
		m := merger{t: tok}
		for range 30 {
			word := make([]byte, 1+r.IntN(2*shortWord))
			for i := range word {
				word[i] = "aaabbc"[r.IntN(6)]
			}
			require.Equal(t, slowRanks(tok, string(word)), m.appendWord(nil, string(word)), "%s", word)
		}
	}
	v := byteVocab()
	v.Pre, v.Merges = "glm4", nil
	_, err := New(v)
	require.ErrorContains(t, err, "tokenizer.ggml.merges is missing")
}
