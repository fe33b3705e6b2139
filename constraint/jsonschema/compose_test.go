package jsonschema

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
)

// Multiples, also of fractions and within bounds, are those of arithmetic.
func TestMultiples(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	texts := []string{"0", "0.0", "0.00", "-0.5", "0.01", "0.010", "0.001", "1", "1.0", "1.5", "2.50", "10", "12", "12.25", "99.99", "100", "-7", "-12.5", "1000", "1234.56", "00", ".5", "5.", "-", "", "1e1"}
	for range 400 {
		text := fmt.Sprint(r.IntN(3000))
		if r.IntN(2) == 0 {
			text += "." + fmt.Sprintf("%0*d", 1+r.IntN(3), r.IntN(10))
		}
		if r.IntN(3) == 0 && strings.Trim(text, "0.") != "" {
			text = "-" + text
		}
		texts = append(texts, text)
	}
	found := 0
	for _, of := range []string{"0.01", "0.25", "0.5", "1", "3", "5", "7", "12.5", "100", "1e-2", "1023"} {
		modulus, ok := new(big.Rat).SetString(of)
		require.True(t, ok)
		for _, bounds := range []string{"", `,"minimum":0`, `,"exclusiveMinimum":0,"maximum":100`, `,"maximum":-2.5`, `,"minimum":-12.5,"exclusiveMaximum":12.5`, `,"minimum":9.9`, `,"minimum":95,"maximum":1005`} {
			for _, kind := range []string{"number", "integer"} {
				schema := `{"type":"` + kind + `","multipleOf":` + of + bounds + `}`
				var g *c.Grammar // nil: no multiple is within the bounds
				e, err := Compile([]byte(schema), Options{})
				if failed, ok := asError(err); !ok || failed.Message != c.ErrNothing.Error() {
					require.NoError(t, err, schema)
					g, err = c.Compile(e, vocabulary, nil)
					require.NoError(t, err, schema)
				}
				for _, text := range texts {
					v, valid := new(big.Rat).SetString(text)
					valid = valid && text != "00" && text != ".5" && text != "5." && text != "1e1" && (kind == "number" || !strings.Contains(text, ".")) && !strings.HasPrefix(text, "-0.0")
					if valid {
						valid = new(big.Rat).Quo(v, modulus).IsInt()
						for _, b := range strings.Split(strings.TrimPrefix(bounds, ","), ",") {
							if name, at, ok := strings.Cut(b, ":"); ok {
								bound, _ := new(big.Rat).SetString(at)
								d := v.Cmp(bound)
								valid = valid && map[string]bool{`"minimum"`: d >= 0, `"exclusiveMinimum"`: d > 0, `"maximum"`: d <= 0, `"exclusiveMaximum"`: d < 0}[name]
							}
						}
					}
					if valid {
						found++
					}
					require.Equal(t, valid, g != nil && matches(g, text), "%s: %s", schema, text)
				}
			}
		}
	}
	require.Greater(t, found, 1000)
	for _, of := range []string{"1025", "0.1234567", "1e300"} {
		_, err := Compile([]byte(`{"type":"number","multipleOf":`+of+`}`), Options{})
		require.ErrorContains(t, err, "multipleOf", of)
	}
}

// Schemas that say together which members an object has.
func TestMembersTogether(t *testing.T) {
	const pets = `"oneOf":[{"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"}],"$defs":{"cat":{"type":"object","properties":{"kind":{"const":"cat","default":"cat"},"name":{"type":"string"}},"required":["name"]},"dog":{"type":"object","properties":{"kind":{"enum":["dog","wolf"],"default":"dog"},"name":{"type":"string"}}}}`
	for _, tt := range []struct {
		schema  string
		yes, no []string
	}{
		{`{` + pets + `}`, []string{`{"kind": "cat", "name": "a"}`, `{"kind": "wolf"}`}, []string{`{"name": "a"}`, `{}`, `{"kind": "dog", "name": 1}`}},
		{`{"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false},{"type":"object","properties":{"b":{}},"required":["b"],"additionalProperties":false}]}`, []string{`{"a": 1}`, `{"b": 1}`}, []string{`{}`, `{"a": 1, "b": 1}`}},
		{`{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}}}],"type":"object","unevaluatedProperties":false}`, []string{`{"a": "x"}`, `{"a": "x", "b": 1}`}, []string{`{"b": 1}`, `{"a": "x", "c": 1}`}},
		{`{"$ref":"#/$defs/base","properties":{"b":{}},"type":"object","unevaluatedProperties":{"type":"integer"},"$defs":{"base":{"properties":{"a":{}}}}}`, []string{`{"b": "x", "a": "x", "c": 1}`}, []string{`{"c": "x"}`}},
		{`{"allOf":[{"additionalProperties":{"type":"integer"}}],"type":"object","unevaluatedProperties":false}`, []string{`{"a": 1}`}, []string{`{"a": "x"}`}},
		{`{"type":"array","allOf":[{"prefixItems":[{"type":"integer"}]}],"unevaluatedItems":false}`, []string{`[]`, `[1]`}, []string{`[1, 2]`, `["a"]`}},
		{`{"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer"},"required":["a"]}`, []string{`{"a": 1}`, `{"a": 1, "b": 2}`}, []string{`{"b": 2}`, `{"a": 1, "c": 3}`, `{"a": "x"}`}},
		{`{"type":"object","propertyNames":{"anyOf":[{"const":"a"},{"enum":["b"]}]},"properties":{"a":{"type":"string"},"z":{}}}`, []string{`{}`, `{"a": "x", "b": 2}`}, []string{`{"a": 1}`, `{"z": 1}`}},
		{`{"type":"object","propertyNames":{"pattern":"^[a-c]+$"},"properties":{"a":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, []string{`{"a": "x", "b": 1, "aa": 2}`}, []string{`{"a": "x", "a": 1}`, `{"d": 1}`, `{"a": 1}`}},
		{`{"type":"object","patternProperties":{"^(.*)$":{"type":"integer"}}}`, []string{`{}`, `{"a": 1, "": 2}`}, []string{`{"a": "x"}`}},
		{`{"type":"object","properties":{"a":{"type":"string"}},"patternProperties":{"^a":{"minLength":2},"b$":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, []string{`{"a": "xx", "c": 1, "ab": "xx", "ac": "xx"}`, `{"ac": 1}`, `{"b": "x"}`}, []string{`{"a": "x"}`, `{"ab": "x"}`, `{"b": 1}`, `{"c": "x"}`, `{"ac": "x"}`}},
		{`{"type":"object","patternProperties":{"^x-":{}},"additionalProperties":false}`, []string{`{"x-a": 1}`}, []string{`{"y": 1}`}},
		{`{"not":{"type":["object","null"]}}`, []string{`1`, `"a"`, `[]`}, []string{`{}`, `null`}},
		{`{"type":"object","properties":{"never":{"not":{}},"a":{"not":false}}}`, []string{`{}`, `{"a": 1}`}, []string{`{"never": 1}`}},
		{`{"type":"object","propertyNames":{"maxLength":2},"required":["abc"],"minProperties":0}`, nil, nil},
	} {
		e, err := Compile([]byte(tt.schema), Options{})
		if tt.yes == nil {
			require.Error(t, err, tt.schema)
			continue
		}
		require.NoError(t, err, tt.schema)
		g, err := c.Compile(e, vocabulary, nil)
		require.NoError(t, err, tt.schema)
		for _, text := range tt.yes {
			require.True(t, matches(g, text), "%s: %s", tt.schema, text)
		}
		for _, text := range tt.no {
			require.False(t, matches(g, text), "%s: %s", tt.schema, text)
		}
	}
	for _, schema := range []string{
		`{"oneOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"b":{}}}]}`,
		`{"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}],"unevaluatedProperties":false}`,
		`{"properties":{"a":{}},"allOf":[{"properties":{"b":{}},"unevaluatedProperties":false}]}`,
		`{"allOf":[{"if":{"properties":{"a":{}}}}],"unevaluatedProperties":false}`,
	} {
		_, err := Compile([]byte(schema), Options{})
		require.Error(t, err, schema)
	}
	// Tools with parts: without a word about others, only the named members are allowed.
	g := grammar(t, `{"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, Options{Closed: true})
	require.True(t, matches(g, `{"a": 1, "b": 2}`))
	require.False(t, matches(g, `{"c": 1}`))
	g = grammar(t, `{"properties":{}}`, Options{Closed: true})
	require.True(t, matches(g, `{}`) && matches(g, `1`))
	require.False(t, matches(g, `{"c": 1}`))
}

// Patterns are enforced beside as many named members as a schema has, though the pattern
// that leaves them out is longer than a client's may be.
func TestPatternsBesideManyMembers(t *testing.T) {
	for _, form := range []string{"member_name_%03d", "%03d_nom_membre"} {
		var members []string
		for i := range 300 {
			members = append(members, fmt.Sprintf(`"`+form+`":{"type":"integer"}`, i))
		}
		b := c.NewBudget(t.Context(), c.DefaultWork)
		e, err := Compile([]byte(`{"type":"object","properties":{`+strings.Join(members, ",")+`},"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false}`), Options{Budget: b})
		require.NoError(t, err)
		g, err := c.Compile(e, vocabulary, b)
		require.NoError(t, err)
		name := fmt.Sprintf(form, 299)
		require.True(t, matches(g, `{"`+name+`": 1, "x-a": "b"}`))
		for _, text := range []string{`{"` + name + `": "b"}`, `{"x-a": 1}`, `{"` + name + `x": 1}`} {
			require.False(t, matches(g, text), text)
		}
	}
}
