package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// FuzzScan checks Elements and members against encoding/json on every value
// inside a document.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`[1, "a\"]", {"b": [null, true]}, [[]]]`, `{"a":{"b":"}"},"a":[1e9 ,-0]}`, `[{}, [ ], "" ]`, " [\"\\\\\"]\n"} {
		f.Add(seed)
	}
	var check func(t *testing.T, raw json.RawMessage)
	check = func(t *testing.T, raw json.RawMessage) {
		switch KindOf(raw) {
		case "array":
			want := testenv.FromJSON[[]json.RawMessage](t, raw)
			n := 0
			for i, item := range Elements(raw) {
				require.Equal(t, string(want[i]), string(item))
				check(t, item)
				n++
			}
			require.Equal(t, len(want), n)
		case "object":
			want := testenv.FromJSON[map[string]json.RawMessage](t, raw)
			o := &Fields{}
			o.ReadMembers(raw, len(raw))
			require.Nil(t, o.Err)
			require.Equal(t, want, o.Raw)
			for _, member := range o.Raw {
				check(t, member)
			}
		}
	}
	f.Fuzz(func(t *testing.T, document string) {
		if raw := bytes.Trim([]byte(document), JSONSpace); len(raw) < 1000 && json.Valid(raw) {
			check(t, raw)
		}
	})
}

// TestScan checks the scanner against encoding/json.
func TestScan(t *testing.T) {
	for _, value := range []string{
		`[]`, `[ ]`, ` [1 , -2.5e3,"a,]\\\"}",{"a":[1,{"b":"]"}]} , [ [ ] ],null,true ]`, `["\\","\\\\\""]`, `[[],{},"",0]`,
	} {
		raw := json.RawMessage(strings.Trim(value, JSONSpace))
		var want, got []json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &want))
		for _, item := range Elements(raw) {
			got = append(got, item)
		}
		require.Len(t, got, len(want), value)
		for i := range want {
			require.Equal(t, string(want[i]), string(got[i]), value)
		}
		require.Equal(t, min(len(want), 3), Count(raw, 2), value)
	}
	for _, value := range []string{`{}`, `{ }`, `{"a":1,"b" : [1,2] , "c\"}":{"d":"}"},"a":2}`} {
		want := testenv.FromJSON[map[string]json.RawMessage](t, value)
		f := &Fields{}
		f.ReadMembers(json.RawMessage(value), 9)
		require.Nil(t, f.Err)
		require.Equal(t, want, f.Raw)
	}
}
