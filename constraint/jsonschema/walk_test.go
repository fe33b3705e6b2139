package jsonschema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
)

// walk writes a random answer of a grammar byte by byte; it ends soon after it can.
func walk(t *testing.T, g *c.Grammar, r *rand.Rand) string {
	m := g.Matcher(byteTokens{}, c.NewWork())
	var out []byte
	mask := make([]uint64, 5)
	for len(out) < 20000 {
		clear(mask)
		_ = m.Mask(t.Context(), mask)
		var ids, closing []int32
		for id := range int32(257) {
			if mask[id/64]>>(id%64)&1 != 0 {
				ids = append(ids, id)
				if strings.IndexByte(`"]},:`, byte(id)) >= 0 && id < 256 || id == 256 {
					closing = append(closing, id)
				}
			}
		}
		require.NotEmpty(t, ids, "a dead end after %q", out)
		id := ids[r.IntN(len(ids))]
		if len(closing) > 0 && (r.IntN(3) == 0 || len(out) > 300) {
			id = closing[r.IntN(len(closing))]
		}
		if id == 256 {
			return string(out)
		}
		require.NoError(t, m.Accept(id))
		out = append(out, byte(id))
	}
	require.Fail(t, "no end", "%q ... %q", out[:200], out[len(out)-200:])
	return ""
}

// randomSchema returns a schema of what is supported.
func randomSchema(r *rand.Rand, depth int) map[string]any {
	kinds := []string{"string", "integer", "number", "boolean", "null", "array", "object"}
	if depth == 0 {
		kinds = kinds[:5]
	}
	s := map[string]any{"type": kinds[r.IntN(len(kinds))]}
	small := func() int { return r.IntN(4) }
	switch s["type"] {
	case "string":
		switch r.IntN(6) {
		case 0:
			s["minLength"], s["maxLength"] = small(), 4+small()
		case 1:
			s["pattern"] = []string{"^a+$", "^.{0,3}b$", "^[0-9]{2,3}-x?$", `^"\\$`}[r.IntN(4)]
		case 2:
			s["format"] = []string{"date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname"}[r.IntN(8)]
		case 3:
			s["enum"] = []string{"a", "b\n", "\"c\"", "é"}
		}
	case "integer", "number":
		low := r.IntN(2000) - 1000
		switch r.IntN(5) {
		case 0:
			s["minimum"] = low
		case 1:
			s["exclusiveMinimum"], s["maximum"] = low, low+1+r.IntN(500)
		case 2:
			s["maximum"] = float64(low) / 8
		case 3:
			if s["type"] == "integer" {
				s["multipleOf"] = 1 + r.IntN(12)
			}
		}
	case "array":
		s["items"] = randomSchema(r, depth-1)
		if r.IntN(2) == 0 {
			s["minItems"], s["maxItems"] = small(), 3+small()
		}
		if r.IntN(4) == 0 {
			s["prefixItems"] = []any{randomSchema(r, depth-1), randomSchema(r, 0)}
		}
	case "object":
		properties, required := map[string]any{}, []string{}
		for i := range small() {
			name := fmt.Sprintf("p%d", i)
			properties[name] = randomSchema(r, depth-1)
			if r.IntN(2) == 0 {
				required = append(required, name)
			}
		}
		s["properties"], s["required"] = properties, required
		switch r.IntN(3) {
		case 0:
			s["additionalProperties"] = false
		case 1:
			s["additionalProperties"] = randomSchema(r, 0)
		}
		if r.IntN(4) == 0 {
			s["maxProperties"] = len(required) + 1
		}
	}
	if depth > 0 && r.IntN(6) == 0 {
		return map[string]any{"anyOf": []any{s, randomSchema(r, depth-1)}}
	}
	return s
}

// TestWalks: whatever the grammar of a random schema lets a model write, another
// implementation of JSON schema considers valid.
func TestWalks(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for i := range 250 {
		schema, err := json.Marshal(randomSchema(r, 3))
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
		require.NoError(t, err)
		judge := jsonschema.NewCompiler()
		judge.AssertFormat()
		require.NoError(t, judge.AddResource("schema.json", doc))
		compiled, err := judge.Compile("schema.json")
		require.NoError(t, err)
		e, err := Compile(schema, Options{})
		if failed, ok := asError(err); ok && failed.Message == "nothing can satisfy it" {
			continue
		}
		require.NoError(t, err, "%s", schema)
		g, err := c.Compile(e, vocabulary, nil)
		require.NoError(t, err, "%s", schema)
		for range 4 {
			text := walk(t, g, r)
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			require.NoError(t, err, "schema %d, %s: %q", i, schema, text)
			require.NoError(t, compiled.Validate(v), "schema %d, %s: %s", i, schema, text)
		}
	}
}

// Hostile schemas are refused, or compiled within bounds.
func TestHostileSchemas(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 500) + `true` + strings.Repeat(`}`, 500)
	for _, schema := range []string{
		deep, `5`, `[]`, `{"type":"x"}`, `{"type":5}`, `{"$ref":"#"}`, `{"$ref":"http://x/y"}`, `{"$ref":"#/a/b"}`, `{"allOf":[{"$ref":"#"}]}`, `{"anyOf":[]}`, `{"minLength":-1}`,
		`{"enum":5}`, `{"properties":[]}`, `{"required":[5]}`, `{"pattern":5}`, `{"multipleOf":0}`, `{"minimum":"a"}`, `{"not":{}}`, `{"const":1,"enum":[2]}`, `false`,
		`{"type":"string","pattern":"(a{1000}){1000}"}`, `{"minProperties":1000000000}`,
	} {
		e, err := Compile([]byte(schema), Options{})
		if failed, ok := asError(err); ok {
			require.NotEmpty(t, failed.Message)
			continue
		}
		_, err = c.Compile(e, vocabulary, nil) // a rule that is only itself
		require.ErrorContains(t, err, "refers to itself", "%.60s", schema)
	}
	// 2^20 paths through references, and counts that no expansion could hold.
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range 20 {
		fmt.Fprintf(&b, `"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	b.WriteString(`"d20":{"type":"string","maxLength":1000000}}}`)
	g := grammar(t, b.String(), Options{})
	require.True(t, matches(g, `{"a": {"b": {}}}`))
	require.False(t, matches(g, `{"b": {}, "a": 5}`))
	require.True(t, matches(grammar(t, `{"type":"array","items":{"type":"integer"},"maxItems":1000000000}`, Options{}), "[1, 2]"))
}

// Any schema is compiled or refused.
func FuzzCompile(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`)
	f.Add(`{"anyOf":[{"type":"string","pattern":"^a"},{"const":[1,{"a":null}]}],"minimum":1.5}`)
	f.Add(`{"prefixItems":[true,false],"items":{"multipleOf":7},"additionalProperties":{"enum":[1,"a"]},"maxProperties":3}`)
	f.Fuzz(func(t *testing.T, schema string) {
		for _, o := range []Options{{}, {Closed: true, Lenient: true}} {
			e, err := Compile([]byte(schema), o)
			if err != nil {
				_, ok := asError(err)
				require.True(t, ok)
				continue
			}
			if g, err := c.Compile(e, vocabulary, nil); err == nil {
				matches(g, `{"a": 1}`)
			}
		}
		_, _, _ = Parameters([]byte(schema), c.Free("x"), Options{Lenient: true})
		a := MembersOf([]byte(schema)).Find("a")
		a.Takes([]byte("[1]"))
	})
}

// Alternatives that are references may contain themselves, as in lists and trees.
func TestRecursiveAlternatives(t *testing.T) {
	g := grammar(t, `{"type":"object","properties":{"v":{"type":"integer"},"next":{"description":"the rest","anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}`, Options{})
	require.True(t, matches(g, `{"v": 1, "next": {"v": 2, "next": {"v": 3, "next": null}}}`))
	require.False(t, matches(g, `{"v": 1, "next": {"v": 2}}`))
	g = grammar(t, `{"$defs":{"tree":{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/$defs/tree"}}]}},"$ref":"#/$defs/tree"}`, Options{})
	require.True(t, matches(g, `["a", ["b", []]]`))
	require.False(t, matches(g, `["a", [1]]`))
	_, err := Compile([]byte(`{"anyOf":[]}`), Options{})
	require.Error(t, err)
}
