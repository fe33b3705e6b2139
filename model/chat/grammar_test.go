package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"ringmaster/constraint"
)

// marked is a vocabulary of bytes and a format's markers, as control tokens.
type marked []string

func (m marked) Size() int             { return 257 + len(m) }
func (m marked) Added(id int32) bool   { return id >= 256 }
func (m marked) IsEnd(id int32) bool   { return id == 256 }
func (m marked) Bytes(id int32) []byte { return []byte{byte(id)}[:min(1, max(0, 256-int(id)))] }

func (m marked) ID(name string) (int32, bool) {
	for i, s := range m {
		if s == name {
			return int32(257 + i), true
		}
	}
	return 0, false
}

func (m marked) text(id int32) string {
	if id > 256 {
		return m[id-257]
	}
	return string([]byte{byte(id)})
}

var tools = []Function{
	{Name: "Read", Strict: true, Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer","minimum":1},"mode":{"enum":["a","b",3]},"x":{"type":["array","null"],"items":{"type":"string"}},"u":{"anyOf":[{"type":"string"},{"type":"null"}]},"v":{"type":["string","integer"],"minimum":5}},"required":["path","mode"],"additionalProperties":false}`)},
	{Name: "ls"},
	{Name: "any", Parameters: json.RawMessage(`{"type":"object","additionalProperties":true}`)},
}

// TestGrammarOfCalls: whatever the grammar lets a model write, the parser reads as calls
// of the offered functions, with arguments that fit their schemas, and none of the markup
// becomes text.
func TestGrammarOfCalls(t *testing.T) {
	doc, err := jsonschema6(tools[0].Parameters)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(21, 22))
	walked := map[string]bool{}
	for _, f := range Formats {
		if key := fmt.Sprintf("%+v %v", f.markup, f.thinking); f.markup != nil && walked[key] {
			continue // the grammar of another release
		} else {
			walked[key] = true
		}
		if f.markup == nil {
			_, err := f.Segments(&Conversation{Messages: []Message{{Role: User}}, Options: Options{Functions: tools}})
			require.ErrorIs(t, err, ErrUnsupported)
			continue
		}
		vocabulary := marked(f.Markers())
		tokens := constraint.NewVocabulary(vocabulary)
		for _, choice := range []Choice{Auto, Required} {
			for _, asked := range []bool{false, true} {
				c := Conversation{Options: Options{Functions: tools, Choice: choice, Thinking: asked}}
				e, err := f.Grammar(&c, nil, vocabulary.ID, nil)
				require.NoError(t, err)
				g, err := constraint.Compile(e, tokens, nil)
				require.NoError(t, err)
				called := 0
				for range 12 {
					text := walk(t, vocabulary, g, r)
					a := read(t, f.Parser(&c), text)
					require.True(t, choice == Auto || len(a.Calls) > 0, "%s: %q", f.Name, text)
					for _, mark := range f.calls {
						require.NotContains(t, a.Text+a.Reasoning, mark, "%s: %q", f.Name, text)
					}
					for _, call := range a.Calls {
						called++
						require.True(t, call.Ended, "%s: %q", f.Name, text)
						require.Contains(t, []string{"Read", "ls", "any"}, call.Name)
						require.True(t, json.Valid([]byte(call.Arguments)), "%s: %q of %q", f.Name, call.Arguments, text)
						if call.Name == "Read" {
							v, err := jsonschema.UnmarshalJSON(strings.NewReader(call.Arguments))
							require.NoError(t, err)
							require.NoError(t, doc.Validate(v), "%s: %s of %q", f.Name, call.Arguments, text)
						}
					}
				}
				require.True(t, choice == Auto || called >= 12)
			}
		}
	}
}

func jsonschema6(schema []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
}

// walk writes a random answer. It prefers markers and ends.
func walk(t *testing.T, v marked, g *constraint.Grammar, r *rand.Rand) string {
	m := g.Matcher(v, constraint.NewWork())
	var out strings.Builder
	mask := make([]uint64, (v.Size()+63)/64)
	for steps := 0; steps < 20000; steps++ {
		clear(mask)
		_ = m.Mask(context.Background(), mask)
		var ids, likely []int32
		for id := range int32(v.Size()) {
			if mask[id/64]>>(id%64)&1 != 0 {
				ids = append(ids, id)
				if id >= 256 || strings.IndexByte("\"]}</", byte(id)) >= 0 {
					likely = append(likely, id)
				}
			}
		}
		require.NotEmpty(t, ids, "a dead end after %q", out.String())
		id := ids[r.IntN(len(ids))]
		if len(likely) > 0 && (r.IntN(4) > 0 || steps > 2000) {
			id = likely[r.IntN(len(likely))]
		}
		if v.IsEnd(id) {
			return out.String()
		}
		require.NoError(t, m.Accept(id))
		out.WriteString(v.text(id))
	}
	require.Fail(t, "no end")
	return ""
}

// The grammar allows the calls that a template writes in the order of the schemas.
func TestGrammarTakesWhatTemplatesWrite(t *testing.T) {
	for _, f := range Formats {
		if f.markup == nil {
			continue
		}
		c := Conversation{Options: Options{Functions: tools}}
		m := Message{Role: Assistant, Content: "Hi", Calls: []Call{
			{Name: "Read", Arguments: `{"path": "a\nb", "n": 5, "mode": "b", "x": ["c", "d"]}`}, {Name: "ls", Arguments: "{}"}, {Name: "any", Arguments: `{"k": {"a": [1]}}`},
		}}
		written, ok := writtenBy(t, f, c, m)
		if !ok {
			require.Equal(t, "r1", f.Name) // its history has no reasoning
			continue
		}
		e, err := f.Grammar(&c, nil, marked{}.ID, nil)
		require.NoError(t, err)
		g, err := constraint.Compile(e, constraint.NewVocabulary(marked{}), nil)
		require.NoError(t, err)
		matcher := g.Matcher(marked{}, constraint.NewWork())
		for i := range len(written) {
			require.NoError(t, matcher.Accept(int32(written[i])), "%s: %q", f.Name, written[:i+1])
		}
		mask := make([]uint64, 5)
		_ = matcher.Mask(context.Background(), mask)
		require.Equal(t, uint64(1), mask[4], "%s: nothing may come but the end", f.Name)
	}
}

// Beside a form of the answer the model may still begin a call as the templates do, after
// blank lines, and nothing of them becomes text.
func TestGrammarOfAnswersOrCalls(t *testing.T) {
	for _, f := range Formats {
		if f.markup == nil {
			continue
		}
		vocabulary := marked(f.Markers())
		c := Conversation{Options: Options{Functions: []Function{{Name: "f"}}, Single: true, Ending: Continue}} // without reasoning
		e, err := f.Grammar(&c, constraint.Literal(`{"a":1}`), vocabulary.ID, nil)
		require.NoError(t, err)
		g, err := constraint.Compile(e, constraint.NewVocabulary(vocabulary), nil)
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(31, 32))
		answered, called := false, false
		for !answered || !called {
			text := walk(t, vocabulary, g, r)
			if text == `{"a":1}` {
				answered = true
				continue
			}
			called = true
			a := read(t, f.Parser(&c), "\n\n"+strings.TrimLeft(text, "\n"))
			require.Len(t, a.Calls, 1, "%s: %q", f.Name, text)
			require.Empty(t, strings.TrimSpace(a.Text), "%s: %q", f.Name, text)
		}
		m := g.Matcher(vocabulary, constraint.NewWork())
		require.NoError(t, m.Accept('\n'), f.Name)
		require.NoError(t, m.Accept('\n'), f.Name)
		require.Error(t, m.Accept('{'), "%s: blank lines precede calls only", f.Name)
	}
}

// A strict function with a schema that cannot be enforced is refused by name; any other
// function gets a looser grammar.
func TestStrictFunctions(t *testing.T) {
	fn := Function{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}`)}
	for _, f := range Formats {
		if f.markup == nil {
			continue
		}
		fn.Strict = false
		_, err := f.Grammar(&Conversation{Options: Options{Functions: []Function{fn}}}, nil, marked{}.ID, nil)
		require.NoError(t, err)
		fn.Strict = true
		_, err = f.Grammar(&Conversation{Options: Options{Functions: []Function{fn}}}, nil, marked{}.ID, nil)
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "uniqueItems")
	}
}

// A grammar with so many ways to continue that a mask would take minutes is given up
// soon, with an error.
func TestAmbiguousGrammarsAreGivenUp(t *testing.T) {
	tok := v4(t)
	e, err := constraint.Regexp(`(((.|..){1,9}|.){1,9}|..){1,12}`, true, constraint.Runes, nil)
	require.NoError(t, err)
	g, err := constraint.Compile(e, constraint.NewVocabulary(tok), nil)
	require.NoError(t, err)
	require.ErrorIs(t, g.Matcher(tok, constraint.NewWork()).Mask(context.Background(), make([]uint64, (tok.Size()+63)/64)), constraint.ErrTooSlow)
}

// BenchmarkMask measures masks over the vocabulary of DeepSeek V3: the first of a state,
// and the median and the worst of the later ones.
func BenchmarkMask(b *testing.B) {
	tok := v4(b)
	tokens := constraint.NewVocabulary(tok)
	compile := func() *constraint.Grammar {
		e, err := Formats[0].Grammar(&Conversation{Options: Options{Functions: tools}}, nil, tok.ID, nil)
		require.NoError(b, err)
		g, err := constraint.Compile(e, tokens, nil)
		require.NoError(b, err)
		return g
	}
	text := "I will read it.\n\n" + dsmlBlock(invoke("Read", parameterOf("path", "true", "src/server/main.go"), parameterOf("n", "false", "120"), parameterOf("mode", "true", "a")))
	ids := tok.Encode(text, true)
	mask := make([]uint64, (tok.Size()+63)/64)
	for _, first := range []bool{true, false} {
		name := map[bool]string{true: "first", false: "again"}[first]
		b.Run(name, func(b *testing.B) {
			g := compile()
			var each []time.Duration
			write := func() {
				m := g.Matcher(tok, constraint.NewWork())
				for _, id := range ids {
					began := time.Now()
					_ = m.Mask(context.Background(), mask)
					each = append(each, time.Since(began))
					require.NoError(b, m.Accept(id))
				}
			}
			if !first {
				write() // the first use of each state
				each = nil
				b.ResetTimer()
			}
			for range b.N {
				if first {
					b.StopTimer()
					g = compile()
					b.StartTimer()
				}
				write()
			}
			slices.Sort(each)
			b.ReportMetric(float64(each[len(each)/2].Nanoseconds())/1e3, "us-median-mask")
			b.ReportMetric(float64(each[len(each)-1].Nanoseconds())/1e3, "us-worst-mask")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "us/token")
		})
	}
	b.Run("compile", func(b *testing.B) {
		var forty []Function
		for i := range 40 {
			fn := tools[0]
			fn.Name = "Read" + string(rune('A'+i))
			forty = append(forty, fn)
		}
		for range b.N {
			e, err := Formats[0].Grammar(&Conversation{Options: Options{Functions: forty}}, nil, tok.ID, nil)
			require.NoError(b, err)
			_, err = constraint.Compile(e, tokens, nil)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/compile")
	})
}
