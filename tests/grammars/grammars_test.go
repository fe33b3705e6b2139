// Package grammars compares our constraint engine with xgrammar: grammars as text
// must accept the same texts, and what a schema lets a model write must fit
// xgrammar's grammar of that schema.
package grammars

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/constraint"
	"ringmaster/constraint/jsonschema"
	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// byteTokens is a vocabulary of the bytes and an end token.
type byteTokens struct{}

const end = 256

func (byteTokens) Size() int { return end + 1 }
func (byteTokens) Bytes(id int32) []byte {
	if id == end {
		return nil
	}
	return []byte{byte(id)}
}
func (byteTokens) Added(id int32) bool { return id == end }
func (byteTokens) IsEnd(id int32) bool { return id == end }

var vocabulary = constraint.NewVocabulary(byteTokens{})

// allowed are the tokens that may come next.
func allowed(m *constraint.Matcher) (ids []int32) {
	mask := make([]uint64, (end+64)/64)
	_ = m.Mask(context.Background(), mask)
	for id := range int32(end + 1) {
		if mask[id/64]>>(id%64)&1 != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// matches reports whether a grammar allows a text as a whole.
func matches(t *testing.T, g *constraint.Grammar, text string) bool {
	m := g.Matcher(byteTokens{}, constraint.NewWork())
	for _, b := range ids(text) {
		if !has(allowed(m), b) {
			return false
		}
		require.NoError(t, m.Accept(b))
	}
	return has(allowed(m), end)
}

func ids(text string) (out []int32) {
	for i := range len(text) {
		out = append(out, int32(text[i]))
	}
	return out
}

func has(ids []int32, id int32) bool { return slices.Contains(ids, id) }

// walk writes a text that a grammar allows, of ASCII where it can; ok is false if it
// does not come to an end.
func walk(t *testing.T, g *constraint.Grammar, r *rand.Rand) (text string, ok bool) {
	m := g.Matcher(byteTokens{}, constraint.NewWork())
	for len(text) < 400 {
		next := allowed(m)
		require.NotEmpty(t, next, "a dead end after %q", text)
		if has(next, end) && (len(next) == 1 || r.IntN(4) == 0) {
			return text, true
		}
		var plain []int32
		for _, id := range next {
			if id >= ' ' && id < 127 {
				plain = append(plain, id)
			}
		}
		if len(plain) > 0 {
			next = plain
		}
		// What closes something is chosen often, so that texts end.
		id := next[r.IntN(len(next))]
		for _, c := range []int32{'"', '}', ']', ','} {
			if has(next, c) && r.IntN(3) == 0 {
				id = c
			}
		}
		if id == end {
			return text, true
		}
		require.NoError(t, m.Accept(id))
		text += string(byte(id))
	}
	return "", false
}

// spoilt is a text with a small change.
func spoilt(text string, r *rand.Rand) string {
	const letters = `ab19-,."{}[] x`
	i := r.IntN(len(text) + 1)
	c := string(letters[r.IntN(len(letters))])
	switch r.IntN(3) {
	case 0:
		return text[:i] + c + text[i:]
	case 1:
		return text[:i]
	}
	return text[:i] + c + text[min(i+1, len(text)):]
}

var texts = []string{
	`root ::= "a"`, `root ::= "a" | "b" "c"?`, "root ::= x{2,3} y*\nx ::= [a-c]\ny ::= \"-\" x+\n", `root ::= [^a-z\n]+ "x"`,
	"root ::= (\"a\" | \"b\"{2,}) (\",\" [0-9]{1,3})*\n", "root ::= \"(\" root \")\" | \"\"\n", `root ::= "\x41\n\\\"" [a\-z]`,
	"root ::= value\nvalue ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n" +
		"object ::= \"{\" (string \":\" value (\",\" string \":\" value)*)? \"}\"\narray ::= \"[\" (value (\",\" value)*)? \"]\"\n" +
		"string ::= \"\\\"\" [^\"\\\\\\n]* \"\\\"\"\nnumber ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)?\n",
}

var schemas = []string{
	`{"type":"object","properties":{"a":{"enum":["x","y"]},"n":{"type":"integer"}},"required":["a","n"],"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false}`,
	`{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3}`,
	`{"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false,"minItems":2}`,
	`{"anyOf":[{"type":"boolean"},{"type":"object","properties":{"k":{"const":"v"}},"required":["k"],"additionalProperties":false}]}`,
	`{"type":"integer","minimum":-3,"maximum":120}`,
	`{"type":"string","minLength":2,"maxLength":5}`,
	`{"type":"string","pattern":"^[a-c]{2}-[0-9]+$"}`,
	`{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}`,
	`{"$ref":"#/$defs/list","$defs":{"list":{"type":"array","items":{"$ref":"#/$defs/one"}},"one":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}}}`,
}

type question struct {
	Schema  string   `json:"schema,omitempty"`
	Grammar string   `json:"grammar,omitempty"`
	Texts   []string `json:"texts"`

	grammar *constraint.Grammar
}

func TestAgreesWithXGrammar(t *testing.T) {
	testenv.Need(t, testenv.Full, "our grammars beside those of xgrammar, from npm")
	npm.Need(t)
	require.NoError(t, npm.Install(t.Context(), "."))
	r := rand.New(rand.NewPCG(5, 6))
	var questions []question
	for _, text := range texts {
		e, err := constraint.GBNF(text)
		require.NoError(t, err, text)
		questions = append(questions, ask(t, question{Grammar: text}, e, r))
	}
	for _, schema := range schemas {
		e, err := jsonschema.Compile([]byte(schema), jsonschema.Options{})
		require.NoError(t, err, schema)
		questions = append(questions, ask(t, question{Schema: schema}, e, r))
	}
	in := testenv.JSON(t, questions)
	cmd := exec.CommandContext(t.Context(), "node", "judge.cjs")
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &complaints
	require.NoError(t, cmd.Run(), "%s", &complaints)
	verdicts := testenv.FromJSON[[][]bool](t, out.Bytes())
	require.Len(t, verdicts, len(questions))
	yes, no := 0, 0
	for i, q := range questions {
		require.Len(t, verdicts[i], len(q.Texts))
		for j, text := range q.Texts {
			ours, theirs := matches(t, q.grammar, text), verdicts[i][j]
			if q.Grammar != "" {
				require.Equal(t, theirs, ours, "%s\n%q", q.Grammar, text)
			} else if ours && !strings.Contains(text, "-0") && !strings.Contains(text, `\`) {
				// They allow more white space, but no -0, and no escapes in strings
				// of a given length, which are JSON.
				require.True(t, theirs, "%s\n%q", q.Schema, text)
			}
			if ours {
				yes++
			} else {
				no++
			}
		}
	}
	t.Logf("%d texts that we allow, %d that we do not", yes, no)
	require.Greater(t, yes, 500)
	require.Greater(t, no, 500)
}

// ask adds texts to a question: some that our grammar allows, and each of them spoilt.
func ask(t *testing.T, q question, e *constraint.Expr, r *rand.Rand) question {
	g, err := constraint.Compile(e, vocabulary, nil)
	require.NoError(t, err, "%s%s", q.Schema, q.Grammar)
	q.grammar = g
	for range 60 {
		if text, ok := walk(t, g, r); ok {
			q.Texts = append(q.Texts, text, spoilt(text, r), spoilt(text, r))
		}
	}
	require.NotEmpty(t, q.Texts)
	return q
}
