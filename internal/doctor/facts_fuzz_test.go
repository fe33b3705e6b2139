package doctor

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFacts: any answer over ssh is refused or taken as the facts of a host, and the
// checks of these end.
func FuzzFacts(f *testing.F) {
	good, err := json.Marshal(Facts{Version: FactsVersion})
	require.NoError(f, err)
	f.Add("Last login: today\n" + string(good) + "\nbye")
	f.Add("{}")
	f.Add("\n{\"Version\":1e999}")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseFacts(text)
		if err != nil {
			require.Less(t, len(err.Error()), 2000)
			return
		}
		r := Examine([]Facts{h, {Version: FactsVersion}, h})
		require.NoError(t, r.Write(io.Discard))
	})
}
