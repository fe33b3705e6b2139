package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// byteVocab is a vocabulary of the 256 bytes and one merge.
func byteVocab() Vocab {
	v := Vocab{Model: "gpt2", Pre: "deepseek-v3", Merges: []string{"a b"}}
	for _, r := range byteRune {
		v.Tokens = append(v.Tokens, string(r))
		v.Types = append(v.Types, Normal)
	}
	v.Tokens, v.Types = append(v.Tokens, "ab"), append(v.Types, Normal)
	return v
}

// slowMerge applies the rule literally: it merges the pair of the lowest rank according to
// of, the leftmost among equals, until no pair is left.
func slowMerge(t *Tokenizer, word string, of func(left, right int32) merge) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, t.byteID[word[i]])
	}
	for {
		at, best := -1, merge{rank: noRank}
		for i := range len(ids) - 1 {
			if m := of(ids[i], ids[i+1]); m.rank < best.rank {
				at, best = i, m
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(append([]int32{}, ids[:at]...), best.id), ids[at+2:]...)
	}
}

// randomVocab has random merges over a few letters, so that merges overlap, compete and
// repeat more than in any real vocabulary.
func randomVocab(r *rand.Rand) Vocab {
	v := byteVocab()
	v.Merges = nil
	known := map[string]bool{}
	parts := []string{"a", "b", "c"}
	for range 5 + r.IntN(40) {
		left, right := parts[r.IntN(len(parts))], parts[r.IntN(len(parts))]
		if known[left+" "+right] || len(left+right) > 12 {
			continue
		}
		known[left+" "+right] = true
		v.Merges = append(v.Merges, left+" "+right)
		if !known[left+right] {
			known[left+right] = true
			parts = append(parts, left+right)
			v.Tokens, v.Types = append(v.Tokens, left+right), append(v.Types, Normal)
		}
	}
	v.Tokens, v.Types = append(v.Tokens, "ab"), append(v.Types, Normal) // perhaps for the second time
	return v
}

func TestMergesEqualTheRule(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		tok, err := New(randomVocab(r))
		require.NoError(t, err)
		m := merger{t: tok}
		for range 30 {
			n := 1 + r.IntN(shortWord)
			if r.IntN(4) == 0 {
				n = shortWord + 1 + r.IntN(200)
			}
			word := make([]byte, n)
			for i := range word {
				word[i] = "aaabbc"[r.IntN(6)]
			}
			want := slowMerge(tok, string(word), tok.lookUp)
			before := []int32{7, 8}
			require.Equal(t, append(before, want...), m.appendWord(append([]int32{}, before...), string(word)), "%s", word)
			require.Equal(t, want, m.appendLong(nil, string(word)), "%s", word)
		}
	}
}

func TestMergesEqualTheRuleOnTheTrueVocabulary(t *testing.T) {
	tok := golden(t)
	m := merger{t: tok}
	r := rand.New(rand.NewPCG(7, 8))
	var all strings.Builder
	for _, s := range samples(t) {
		all.WriteString(s.Text)
	}
	text := all.String()
	for range 2000 {
		at := r.IntN(len(text) - 300)
		word := text[at : at+1+r.IntN(120)] // across words and within characters
		want := slowMerge(tok, word, tok.lookUp)
		require.Equal(t, want, m.appendWord(nil, word), "%+q", word)
		require.Equal(t, want, m.appendLong(nil, word), "%+q", word)
	}
	long := strings.Repeat("a", 3000)
	require.Equal(t, slowMerge(tok, long, tok.lookUp), m.appendWord(nil, long))
}
