package doctor

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// FuzzFacts: any answer over ssh is refused or taken as the facts of a host, and the
// checks of these end.
func FuzzFacts(f *testing.F) {
	good := testenv.JSON(f, Facts{Version: FactsVersion})
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
