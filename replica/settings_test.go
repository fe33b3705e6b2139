package replica

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/moe"
)

var goodSettings = Settings{
	Context: 4096, MaxTokens: 512, Reduce: "exact", Wire: "f16",
	SequenceBudget: 1 << 34,
	Ranges:         []moe.Range{{Start: 0, End: 86}, {Start: 86, End: 171}, {Start: 171, End: 171}, {Start: 171, End: 256}},
}

const goodJSON = `{"context":4096,"max_tokens":512,"reduce":"exact","wire":"f16","ranges":[[0,86],[86,171],[171,171],[171,256]],"sequence_budget":17179869184}`

func TestSettings(t *testing.T) {
	b, err := goodSettings.Encode()
	require.NoError(t, err)
	require.Equal(t, goodJSON, string(b))
	got, err := ParseSettings(b)
	require.NoError(t, err)
	require.Equal(t, goodSettings, got)

	other := goodSettings
	other.Ranges = other.Ranges[:1]
	other.SequenceBudget--
	require.True(t, goodSettings.loadAlike(other))
	for _, change := range []func(s *Settings){
		func(s *Settings) { s.Context++ }, func(s *Settings) { s.MaxTokens++ }, func(s *Settings) { s.Reduce = "sum" },
		func(s *Settings) { s.Wire = "f32" },
	} {
		other := goodSettings
		change(&other)
		require.False(t, goodSettings.loadAlike(other))
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for want, change := range map[string][2]string{
		"unknown field \"threads\"":              {`"wire"`, `"threads"`},
		"more follows their end":                 {`84}`, `84} {}`},
		"context is 1":                           {`4096`, `1`},
		"sequence_budget is -1":                  {`17179869184`, `-1`},
		"max_tokens is 0":                        {`512`, `0`},
		"max_tokens is -4":                       {`512`, `-4`},
		"cannot unmarshal string":                {`512`, `"512"`},
		"reduce is \"mean\"":                     {`exact`, `mean`},
		"wire is \"bf16\"":                       {`f16`, `bf16`},
		"range of rank 1 has 1 numbers":          {`[86,171]`, `[86]`},
		"range of rank 1 has 3 numbers":          {`[86,171]`, `[86,171,1]`},
		"range of rank 1 is 85 to 171":           {`[86,171]`, `[85,171]`},
		"range of rank 2 is 171 to 170":          {`[171,171]`, `[171,170]`},
		"range of rank 0 is -1 to 86":            {`[0,86]`, `[-1,86]`},
		"ranges is empty":                        {`[[0,86],[86,171],[171,171],[171,256]]`, `[]`},
		"ranges is of no experts":                {`[[0,86],[86,171],[171,171],[171,256]]`, `[[0,0],[0,0]]`},
		"replica: settings of the plan: unexpec": {`84}`, `84`},
	} {
		text := strings.Replace(goodJSON, change[0], change[1], 1)
		require.NotEqual(t, goodJSON, text)
		_, err := ParseSettings([]byte(text))
		require.ErrorContains(t, err, want)
	}
	_, err := Settings{}.Encode()
	require.ErrorContains(t, err, "context is 0")
}

// FuzzParseSettings: what is taken can be written and read again.
func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(goodJSON))
	f.Add([]byte(`{"ranges":[[0]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSettings(b)
		if err != nil {
			return
		}
		again, err := s.Encode()
		require.NoError(t, err)
		got, err := ParseSettings(again)
		require.NoError(t, err)
		require.Equal(t, s, got)
	})
}
