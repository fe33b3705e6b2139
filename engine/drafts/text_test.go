package drafts

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// scan is what Draft does, by definition: it compares every position.
func scan(text []int32, beside []besideText, most int) Guess {
	var g Guess
	var from []int32
	at := 0
	longestAt := func(ids []int32, last int, source Source) {
		for c := last; c >= least; c-- {
			n := 0
			for n < longest && n < c && n < len(text) && ids[c-1-n] == text[len(text)-1-n] {
				n++
			}
			if n >= least && n > g.Match && c < len(ids) {
				g.Match, g.Source, from, at = n, source, ids, c
			}
		}
	}
	longestAt(text, len(text)-1, Text)
	for _, b := range beside {
		longestAt(b.ids, len(b.ids)-1, b.source)
	}
	n := min(g.Match, most, Most)
	for i := range n {
		switch {
		case at+i < len(from):
			g.Tokens = append(g.Tokens, from[at+i])
		case g.Source == Text:
			g.Tokens = append(g.Tokens, g.Tokens[at+i-len(from)])
		}
	}
	return g
}

// TestDraftIsAScan: the index finds what a scan of all texts finds.
func TestDraftIsAScan(t *testing.T) {
	found := map[Source]int{}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		ids := func(n int) []int32 {
			out := make([]int32, n)
			for i := range out {
				out[i] = r.Int32N(int32(5 + seed))
			}
			return out
		}
		var x Texts
		var text []int32
		for _, source := range []Source{Prediction, Group}[:seed%3] {
			x.Beside(source, ids(r.IntN(60)))
		}
		for range 60 {
			more := ids(1 + r.IntN(4))
			from := text
			if n := len(x.beside); n > 0 && r.IntN(2) == 0 {
				from = x.beside[r.IntN(n)].ids
			}
			if len(from) > 20 && r.IntN(2) == 0 {
				at := r.IntN(len(from) - 10)
				more = slices.Clone(from[at : at+4+r.IntN(6)])
			}
			x.Add(more...)
			text = append(text, more...)
			most := 1 + r.IntN(20)
			want := scan(text, x.beside, most)
			if len(want.Tokens) == 0 {
				want = Guess{}
			}
			got := x.Draft(most)
			require.Equal(t, want.Tokens, got.Tokens, "seed %d, text %v", seed, text)
			require.Equal(t, want.Match, got.Match)
			if len(got.Tokens) > 0 {
				require.Equal(t, want.Source, got.Source)
				found[got.Source]++
			}
		}
	}
	require.Greater(t, found[Text], 100)
	require.Greater(t, found[Prediction], 10)
	require.Greater(t, found[Group], 10)
}

// TestALongTextIsIndexedInParts: one call indexes a bounded part, and drafts come when all
// is indexed.
func TestALongTextIsIndexedInParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := make([]int32, 3*atOnce)
	for i := range text {
		text[i] = r.Int32N(100000)
	}
	var x Texts
	x.Add(text...)
	x.Add(text[100:120]...)
	require.Empty(t, x.Draft(16).Tokens)
	require.LessOrEqual(t, x.own.indexed, atOnce)
	for range 3 {
		x.Draft(16)
	}
	require.Equal(t, text[120:136], x.Draft(16).Tokens)
}

// TestManyTexts: no more texts than MostTexts are searched, and one call indexes a bounded
// part of all of them together.
func TestManyTexts(t *testing.T) {
	var x Texts
	for i := range int32(2 * MostTexts) {
		text := make([]int32, atOnce/16)
		for j := range text {
			text[j] = i<<16 + int32(j)
		}
		x.Beside(Text, text)
	}
	draft := func(text int32) Guess {
		x.Add(text<<16+1, text<<16+2, text<<16+3)
		return x.Draft(1)
	}
	require.Empty(t, draft(MostTexts-1).Tokens)
	indexed := x.own.indexed
	for i := range x.beside {
		indexed += x.beside[i].indexed
	}
	require.Equal(t, atOnce, indexed)
	for range MostTexts / 16 {
		x.Draft(1)
	}
	require.Equal(t, []int32{(MostTexts-2)<<16 + 4}, draft(MostTexts-2).Tokens)
	require.Empty(t, draft(MostTexts).Tokens)
}

// TestPeriodicText: a text that repeats itself with a short period gives a whole draft.
func TestPeriodicText(t *testing.T) {
	var x Texts
	for range 20 {
		x.Add(1, 2, 3, 4)
	}
	require.Equal(t, []int32{1, 2, 3, 4, 1, 2, 3, 4, 1, 2}, x.Draft(10).Tokens)
}

func BenchmarkDraft(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	text := make([]int32, 128<<10)
	for i := range text {
		text[i] = int32(r.ExpFloat64() * 300)
	}
	var x Texts
	x.Add(text...)
	for range 10 {
		x.Draft(Most)
	}
	b.ResetTimer()
	for i := range b.N {
		x.Add(text[(i*7919)%len(text)])
		x.Draft(Most)
	}
}
