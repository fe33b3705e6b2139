package jsonschema

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
	"ringmaster/internal/testenv"
)

// notOurs are what cannot be enforced of the schemas of libraries, by their names.
var notOurs = map[string]string{
	"emoji": "Extended_Pictographic", "set": "uniqueItems",
}

// The schemas that zod and pydantic make are enforced: what the library accepts is
// accepted, what it refuses blocked. tests/clients compares these files with the
// libraries.
func TestLibraries(t *testing.T) {
	for _, file := range []string{"testdata/zod.json", "testdata/pydantic.json"} {
		cases := testenv.FromJSON[map[string]struct {
			Schema  json.RawMessage
			Yes, No []json.RawMessage
		}](t, testenv.ReadFile(t, file))
		require.Greater(t, len(cases), 60)
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			tt := cases[name]
			short, _, _ := strings.Cut(name, ",")
			budget := c.NewBudget(t.Context(), c.DefaultWork)
			e, err := Compile(tt.Schema, Options{Budget: budget})
			if refusal := notOurs[short]; refusal != "" {
				require.ErrorContains(t, err, refusal, name)
				continue
			}
			require.NoError(t, err, "%s: %s", name, tt.Schema)
			g, err := c.Compile(e, vocabulary, budget)
			require.NoError(t, err, name)
			accepted := func(v json.RawMessage) bool {
				value, err := decode(v, nil)
				require.NoError(t, err)
				return slices.ContainsFunc(forms(value), func(form string) bool { return matches(g, form) })
			}
			for _, v := range tt.Yes {
				require.True(t, accepted(v), "%s accepts %s", name, v)
			}
			for _, v := range tt.No {
				require.False(t, accepted(v), "%s refuses %s", name, v)
			}
			lenient, err := Compile(tt.Schema, Options{Closed: true, Lenient: true})
			require.NoError(t, err, "%s as a tool", name)
			_, err = c.Compile(lenient, vocabulary, nil)
			require.NoError(t, err, name)
		}
	}
}
