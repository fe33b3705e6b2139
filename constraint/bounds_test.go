package constraint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// ambiguous are grammars with many ways to continue, so that their states are many and
// large.
var ambiguous = []string{
	`root ::= ([a-z] | [a-z] [a-z] | "ab" | "cab"){1,60} "!"`,
	`root ::= x{1,40} | y{2,50}
x ::= "a" | "b" | "ab" | [a-c] [a-c]
y ::= ([a-z] | "ab" x?){1,20}`,
	`root ::= ("[" root "]" | [a-z]){1,9}`,
	`root ::= ([^x]{1,30} ","?){1,30}`,
	`root ::= [a-z]{1,3000} [0-9]{1,3000}`,
}

// answer follows random tokens through a grammar.
func answer(g *Grammar, r *rand.Rand, length int) {
	m := g.Matcher(pieces, NewWork())
	words := newMask()
	for range length {
		clear(words)
		if m.Mask(context.Background(), words) != nil {
			return
		}
		ids := slices.DeleteFunc(tokens(words), pieces.IsEnd)
		if len(ids) == 0 || m.Accept(ids[r.IntN(len(ids))]) != nil {
			return
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestKeptGrammarsAreCounted: however their answers continue, grammars take no more
// memory than Bytes says, because a cache of grammars divides its budget by it.
func TestKeptGrammarsAreCounted(t *testing.T) {
	answers := 1
	if testenv.At(testenv.Full) {
		answers = 20
	}
	v := NewVocabulary(pieces)
	before := heap()
	var kept []*Grammar
	var said int64
	for i := range len(ambiguous) {
		e, err := GBNF(ambiguous[i%len(ambiguous)])
		require.NoError(t, err)
		g, err := Compile(e, v, nil)
		require.NoError(t, err)
		kept = append(kept, g)
		said += g.Bytes()
		r := rand.New(rand.NewPCG(uint64(i), 1))
		for range answers {
			answer(g, r, 60)
		}
	}
	took := heap() - before
	require.Less(t, took, said*11/10)
	require.Greater(t, took, said/20, "the answers fill what is kept")
	runtime.KeepAlive(kept)
}

// A forgotten state frees the states that it leads to: an answer that stands still while
// others continue holds its own state and no other.
func TestForgottenStatesAreFreed(t *testing.T) {
	g := parsed(t, ambiguous[1])
	before := heap()
	var still []*Matcher
	r := rand.New(rand.NewPCG(3, 1))
	for range 8 {
		m := g.Matcher(pieces, NewWork())
		require.NoError(t, m.Mask(t.Context(), newMask()))
		require.NoError(t, m.Accept(int32('a')))
		still = append(still, m)
		age := g.cache.age
		for range 100 {
			if answer(g, r, 60); g.cache.age > age {
				break
			}
		}
		require.Greater(t, g.cache.age, age, "the answers fill what is kept")
	}
	require.Less(t, heap()-before, int64(maxKept+8*64<<10))
	runtime.KeepAlive(still)
}

// A grammar with more ways to continue than the limit ends with an error. It never
// refuses a text as if the grammar did not allow it, and never loses one silently.
func TestNoThreadIsLost(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, text := range append(ambiguous, `root ::= (`+strings.Repeat(`"a" "b"? | `, 3000)+`"c")* "d"`, `root ::= ("a"? "b"? "c"?){1,5} [a-c]{1,5000} ([a-c] [a-c]?){1,200} "d"`) {
		e, err := GBNF(text)
		require.NoError(t, err)
		g, err := Compile(e, NewVocabulary(pieces), nil)
		if err != nil {
			require.ErrorContains(t, err, "repeats what may be nothing")
			continue
		}
		for range 5 {
			m := g.Matcher(pieces, NewWork())
			words := newMask()
			for range 40 {
				clear(words)
				if err := m.Mask(t.Context(), words); err != nil {
					require.ErrorIs(t, err, ErrTooSlow, text)
					break
				}
				id := int32(r.IntN(256))
				one := *m
				err := one.Accept(id)
				require.Equal(t, words[id/64]>>(id%64)&1 != 0, err == nil, "%s: %d: %v", text, id, err)
				if err == nil {
					*m = one
				} else {
					require.ErrorIs(t, err, ErrNotAllowed)
					_ = m.Accept(int32("abc"[r.IntN(3)]))
				}
			}
		}
	}
}

// Masks that are each allowed add up to no more than the limit of a request.
func TestWorkOfARequest(t *testing.T) {
	e, err := GBNF(ambiguous[1])
	require.NoError(t, err)
	v := NewVocabulary(pieces)
	work := NewWork()
	work.left.Store(requestWork / 64) // one mask takes a part of it
	words := newMask()
	masks := 0
	for ; err == nil && masks < 10_000; masks++ {
		g, failed := Compile(e, v, nil) // the vocabulary has no results yet
		require.NoError(t, failed)
		err = g.Matcher(pieces, work).Mask(t.Context(), words) // one answer of many
	}
	require.Greater(t, masks, 1)
	require.ErrorIs(t, err, ErrTooSlow)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, err = GBNF(`root ::= (.|..|"ab"){1,60} "!"`)
	require.NoError(t, err)
	m := compile(t, e).Matcher(pieces, NewWork())
	for range 8 {
		if err = m.Mask(ctx, words); err != nil {
			break
		}
		require.NoError(t, m.Accept(int32('a')))
	}
	require.ErrorIs(t, err, context.Canceled, "the request has ended")
}

// A grammar that no text satisfies is refused when it is compiled; what cannot lead to an
// end is never begun; one that continues only beyond the depth says so.
func TestNothingToAllow(t *testing.T) {
	endless := &Rule{Name: "endless"}
	endless.Body = Sequence(Literal("a"), Use(endless))
	for name, e := range map[string]*Expr{
		"never": Never(), "a rule": Shared("r", Never()), "after a text": Sequence(Literal("a"), Shared("r", Never())), "endless": Use(endless), "an empty set": Sequence(Literal("a"), Bytes(Set{})),
		"repeated": Repeat(Shared("r", Never()), 2, 5), "all alternatives": Choice(Sequence(Literal("a"), Never()), Use(endless)),
	} {
		_, err := Compile(e, NewVocabulary(pieces), nil)
		require.ErrorIs(t, err, ErrNothing, name)
	}
	g := compile(t, Choice(Sequence(Literal("a"), Use(endless)), Literal("ab"), Sequence(Literal("c"), Repeat(Shared("r", Never()), 0, 5), Literal("d"))))
	m := g.Matcher(pieces, NewWork())
	require.Equal(t, []int32{'a', 'c', int32(pieces.id("ab"))}, allowed(m))
	require.NoError(t, m.Accept('a'))
	require.Equal(t, []int32{'b', 259}, allowed(m))

	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "r%d ::= \"a\" r%d \"b\"\n", i, i+1)
	}
	e, err := GBNF("root ::= r0\n" + text.String() + "r400 ::= \"c\"")
	require.NoError(t, err)
	m = compile(t, e).Matcher(pieces, NewWork())
	for range 400 {
		if err = m.Mask(t.Context(), newMask()); err != nil {
			break
		}
		require.NoError(t, m.Accept('a'))
	}
	require.ErrorIs(t, err, ErrTooDeep)
	one := NewVocabulary(words{"x", end})
	g, err = Compile(Literal("y"), one, nil)
	require.NoError(t, err)
	require.ErrorIs(t, g.Matcher(words{"x", end}, NewWork()).Mask(t.Context(), make([]uint64, 1)), ErrNoToken)
}

// The most costly texts of grammars and regular expressions are compiled or refused in a
// bounded amount of work, whatever the order of their rules.
func TestGrammarsAreBounded(t *testing.T) {
	chain := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format+"\n", i, i+1)
		}
		return b.String() + fmt.Sprintf("r%d ::= \"x\"", n)
	}
	for name, text := range map[string]string{
		"plus":             `root ::= "a"` + strings.Repeat("+", 60_000),
		"optional":         `root ::= "a"` + strings.Repeat("?", 60_000),
		"counts":           `root ::= "a"` + strings.Repeat("{2,3}", 10_000),
		"a chain of rules": "root ::= r0\n" + chain(500, "r%d ::= \"a\"? r%d?"),
		"alternatives":     `root ::= ` + strings.Repeat(`"a"|`, 16_000) + `"b"`,
		"one class":        `root ::= [` + strings.Repeat("漢x", 15_000) + `]`,
		"classes":          `root ::= ` + strings.Repeat("[^a]", 16_000),
		"groups":           `root ::= ` + strings.Repeat("(", 60) + `"a"` + strings.Repeat("|.)*", 60),
	} {
		e, err := GBNF(text)
		require.NoError(t, err, name)
		b := NewBudget(t.Context(), DefaultWork)
		g, err := Compile(e, NewVocabulary(pieces), b)
		require.LessOrEqual(t, e.Size(), 1<<20, name)
		if err == nil {
			answer(g, rand.New(rand.NewPCG(1, 1)), 3)
		}
	}
	for _, pattern := range []string{strings.Repeat(`\pL`, 1365), strings.Repeat(`(?i)\pL`, 500), strings.Repeat(`[^a]{1,1000}`, 300), strings.Repeat("(a|b)?", 600), strings.Repeat(".", 4096), strings.Repeat(`(?i)[B-\x{1e900}]`, 200), strings.Repeat(`\x{10000}-\x{10FFFF}`, 200)} {
		b := NewBudget(t.Context(), DefaultWork)
		e, err := Regexp(pattern, false, Runes, b)
		if err != nil {
			require.ErrorContains(t, err, "too", "%.20s", pattern)
			continue
		}
		require.LessOrEqual(t, e.Size(), 4*maxRegular, "%.20s", pattern)
		g, err := Compile(e, NewVocabulary(pieces), b)
		if err == nil {
			answer(g, rand.New(rand.NewPCG(1, 1)), 3)
		}
	}
}

// Only one long mask is computed at a time, and short ones do not wait for it.
func TestLongMasksTakeTurns(t *testing.T) {
	v := NewVocabulary(pieces)
	e, err := GBNF(`root ::= "a"*`)
	require.NoError(t, err)
	mask := func(ctx context.Context, left int) error {
		g, err := Compile(e, v, nil)
		require.NoError(t, err)
		work := &effort{ctx: ctx, work: NewWork(), left: left} // this one does not check its context by itself
		s, err := g.cache.begin(work)
		require.NoError(t, err)
		_, err = g.cache.maskOf(s, work)
		return err
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	v.heavy <- struct{}{} // another one takes long
	require.NoError(t, mask(ended, maxWork))
	require.ErrorIs(t, mask(ended, maxWork-lightWork), context.Canceled, "it waits")
	<-v.heavy
	require.NoError(t, mask(t.Context(), maxWork-lightWork))
	require.Empty(t, v.heavy)
}

// Answers that share a grammar get the masks of one that has it alone, also while the
// grammar forgets states.
func TestAnswersShareAGrammar(t *testing.T) {
	e, err := GBNF(ambiguous[1])
	require.NoError(t, err)
	v := NewVocabulary(pieces)
	masks := func(g *Grammar, seed uint64) (out []string) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := g.Matcher(pieces, NewWork())
		words := newMask()
		for range 25 {
			clear(words)
			if m.Mask(context.Background(), words) != nil {
				break
			}
			out = append(out, fmt.Sprint(words))
			id := int32('a' + r.IntN(3))
			if m.Accept(id) != nil {
				break
			}
		}
		return out
	}
	shared, err := Compile(e, v, nil)
	require.NoError(t, err)
	shared.cache.bytes = maxKept - 256<<10 // it forgets while they run
	var all sync.WaitGroup
	var got [6][]string
	for i := range got {
		all.Go(func() { got[i] = masks(shared, uint64(i)) })
	}
	all.Wait()
	for i := range got {
		alone, err := Compile(e, v, nil)
		require.NoError(t, err)
		require.Equal(t, masks(alone, uint64(i)), got[i])
	}
	require.Positive(t, shared.cache.age, "it has forgotten")
}
