package pull

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKept: the second start uses what the first has fetched, without any server; a file
// that has another size is no longer trusted; another reference has a folder of its own.
func TestKept(t *testing.T) {
	h, dir := newHub(t, threeParts), t.TempDir()
	n := &notes{t: t}
	o := Options{Dir: dir, Endpoint: h.api.URL, Token: "hf_secret", DirSetting: "XDG_CACHE_HOME", Report: n}
	const ref = "hf:owner/repo:Q4_K_M"
	first, err := Kept(t.Context(), ref, o)
	require.NoError(t, err)
	require.Len(t, first, 3)
	for i, name := range threeNames {
		require.Equal(t, filepath.Base(name), filepath.Base(first[i]))
		require.FileExists(t, first[i])
	}
	require.NotEmpty(t, n.lines, "where the model is kept")
	other, err := Kept(t.Context(), "hf:owner/repo:Q8_0", o)
	require.NoError(t, err)
	require.NotEqual(t, filepath.Dir(first[0]), filepath.Dir(other[0]))

	h.api.Close()
	again, err := Kept(t.Context(), ref, o)
	require.NoError(t, err)
	require.Equal(t, first, again)

	require.NoError(t, os.Truncate(first[1], 5))
	o.Connections = 99 // ends a pull before it asks the server that is gone
	_, err = Kept(t.Context(), ref, o)
	require.ErrorIs(t, err, ErrInput)
	_, err = Kept(t.Context(), "hf:owner", o)
	require.ErrorContains(t, err, "names no repository")
}
