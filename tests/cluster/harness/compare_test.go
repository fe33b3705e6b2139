//go:build unix

package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func answer(names ...string) *Answer {
	a := &Answer{}
	for _, n := range names {
		a.Tokens = append(a.Tokens, Token{Name: n, Logprob: -0.5, Top: map[string]float64{n: -0.5, "other": -0.75}})
	}
	return a
}

func TestCompareExact(t *testing.T) {
	v := CompareExact(answer("a", "b"), answer("a", "b"), 7)
	require.Equal(t, Verdict{Prompt: 7, Tokens: 2, Position: -1, Bits: -1}, v)

	v = CompareExact(answer("a", "b", "c"), answer("a", "other", "c"), 7)
	require.Equal(t, 1, v.Position)
	require.Equal(t, 1, v.Bits)
	require.Equal(t, "b", v.One.Name)
	require.Equal(t, "other", v.Many.Name)
	gap, ok := v.Gap()
	require.True(t, ok)
	require.Equal(t, 0.25, gap)

	v = CompareExact(answer("a", "b"), answer("a"), 7)
	require.Equal(t, 1, v.Position)
	require.Equal(t, "(end)", v.Many.Name)

	// One bit of the log-probability of the last alternative.
	many := answer("a", "b")
	many.Tokens[1].Top["other"] = -0.7500000000000001
	v = CompareExact(answer("a", "b"), many, 7)
	require.Equal(t, -1, v.Position)
	require.Equal(t, 1, v.Bits)
}

func TestVocabulary(t *testing.T) {
	v, err := ReadVocabulary("")
	require.NoError(t, err)
	p := v.Prompt(1, 500)
	require.Len(t, p, 500)
	require.Equal(t, p, v.Prompt(1, 500))
	require.NotEqual(t, p, v.Prompt(2, 500))
	var tokens []Token
	names := map[int32]string{}
	for name, id := range v.ids {
		names[id] = name
	}
	for _, id := range p {
		tokens = append(tokens, Token{Name: names[id]})
	}
	ids, err := v.IDs(tokens)
	require.NoError(t, err)
	require.Equal(t, p, ids)
	_, err = v.IDs([]Token{{Name: "no such token"}})
	require.ErrorContains(t, err, "no such token")
}
