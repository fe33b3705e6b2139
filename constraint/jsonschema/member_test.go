package jsonschema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembers(t *testing.T) {
	m := MembersOf([]byte(`{"type":"object","$defs":{"color":{"enum":["red","1"]}},"properties":{
		"s":{"type":"string"},"n":{"type":"integer","minimum":1},"any":{},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},
		"color":{"anyOf":[{"$ref":"#/$defs/color"},{"type":"null"}]},"mixed":{"enum":["3",4,[1]]},"list":{"type":["array","string"]},"none":false}}`))
	for _, tt := range []struct {
		name              string
		known             bool
		isString, isOther bool
		takes, refuses    []string
	}{
		{"s", true, true, false, []string{`"5"`}, []string{`5`, `null`, `{`}},
		{"n", true, false, true, []string{`1`, `2.0`}, []string{`0`, `1.5`, `"1"`}},
		{"any", true, true, true, []string{`1`, `"x"`, `[{}]`}, []string{``, `1 2`}},
		{"maybe", true, true, true, []string{`null`, `"5"`}, []string{`5`, `true`}},
		{"color", true, true, true, []string{`null`, `"1"`}, []string{`1`, `"blue"`}},
		{"mixed", true, true, true, []string{`4`, `4.0`, `"3"`, `[1]`}, []string{`3`, `"4"`, `[2]`}},
		{"list", true, true, true, []string{`[1]`, `"a"`}, []string{`1`, `{}`}},
		{"other", false, true, true, []string{`1`, `"a"`}, []string{`x`}},
		{"none", true, false, false, nil, []string{`1`, `"a"`}},
	} {
		member := m.Find(tt.name)
		require.Equal(t, tt.known, member.Known, tt.name)
		isString, isOther := member.Kinds()
		require.Equal(t, []bool{tt.isString, tt.isOther}, []bool{isString, isOther}, tt.name)
		for _, v := range tt.takes {
			require.True(t, member.Takes([]byte(v)), "%s: %s", tt.name, v)
		}
		for _, v := range tt.refuses {
			require.False(t, member.Takes([]byte(v)), "%s: %s", tt.name, v)
		}
	}
	for _, schema := range []string{``, `[]`, `{"properties":5}`, `{"properties":{"a":{"$ref":"#/nowhere"}}}`, `{"anyOf":[{"properties":{"a":{"type":"string"}}},{}]}`} {
		a := MembersOf([]byte(schema)).Find("a")
		require.False(t, a.Known, schema)
	}
}
