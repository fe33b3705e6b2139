package replica

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel"
)

var goodSettings = Settings{
	Context: 4096, MaxTokens: 512, Reduce: parallel.Exact,
	SequenceBudget: 1 << 34,
	Placement:      upTo(86, 171, 171, 256),
}

const goodJSON = `{"context":4096,"max_tokens":512,"reduce":"exact","placement":[` +
	`{"experts":[0,86],"heads":[0,0],"shared":[0,0],"vocabulary":[0,0],"weight":1},` +
	`{"experts":[86,171],"heads":[0,0],"shared":[0,0],"vocabulary":[0,0],"weight":1},` +
	`{"experts":[171,171],"heads":[0,0],"shared":[0,0],"vocabulary":[0,0],"weight":1},` +
	`{"experts":[171,256],"heads":[0,0],"shared":[0,0],"vocabulary":[0,0],"weight":1}],"sequence_budget":17179869184}`

func TestSettings(t *testing.T) {
	b, err := goodSettings.Encode()
	require.NoError(t, err)
	require.Equal(t, goodJSON, string(b))
	got, err := ParseSettings(b)
	require.NoError(t, err)
	require.Equal(t, goodSettings, got)

	other := goodSettings
	other.Placement = other.Placement[:1]
	other.SequenceBudget--
	require.True(t, goodSettings.loadAlike(other))
	for _, change := range []func(s *Settings){
		func(s *Settings) { s.Context++ }, func(s *Settings) { s.MaxTokens++ }, func(s *Settings) { s.Reduce = parallel.Sum },
	} {
		other := goodSettings
		change(&other)
		require.False(t, goodSettings.loadAlike(other))
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for want, change := range map[string][2]string{
		"unknown field \"threads\"":      {`"max_tokens"`, `"threads"`},
		"data follows their end":         {`84}`, `84} {}`},
		"context is 1":                   {`4096`, `1`},
		"sequence_budget is -1":          {`17179869184`, `-1`},
		"max_tokens is 0":                {`512`, `0`},
		"max_tokens is -4":               {`512`, `-4`},
		"cannot unmarshal string":        {`512`, `"512"`},
		"reduce is \"mean\"":             {`exact`, `mean`},
		"a range has 1 numbers":          {`[86,171]`, `[86]`},
		"a range has 3 numbers":          {`[86,171]`, `[86,171,1]`},
		"rank 1 gets experts 85 to 171":  {`[86,171]`, `[85,171]`},
		"rank 2 gets experts 171 to 170": {`[171,171]`, `[171,170]`},
		"rank 0 gets experts -1 to 86":   {`[0,86]`, `[-1,86]`},
		"unknown field \"more\"":         {`"weight":1},{"experts":[86`, `"weight":1,"more":0},{"experts":[86`},
		"settings of the plan: unexpec":  {`84}`, `84`},
	} {
		text := strings.Replace(goodJSON, change[0], change[1], 1)
		require.NotEqual(t, goodJSON, text)
		_, err := ParseSettings([]byte(text))
		require.ErrorContains(t, err, want)
	}
	none := goodSettings
	none.Placement = nil
	_, err := none.Encode()
	require.ErrorContains(t, err, "a placement of 0 experts among 0 ranks")
	none.Placement = upTo(0, 0)
	_, err = none.Encode()
	require.ErrorContains(t, err, "a placement of 0 experts among 2 ranks")
	_, err = Settings{}.Encode()
	require.ErrorContains(t, err, "context is 0")
}

// FuzzParseSettings: accepted settings can be encoded and read again.
func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(goodJSON))
	f.Add([]byte(`{"placement":[{"experts":[0]}]}`))
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
