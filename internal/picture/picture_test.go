package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrite: a picture is SVG with the titles, axes and names of all charts, and the same
// data give the same bytes.
func TestWrite(t *testing.T) {
	charts := []Chart{
		{Title: "Decode", X: "hosts", Y: "tokens/s", Lines: []Line{{"experts", []Point{{1, 10}, {2, 11}, {8, 12}}}, {"all", []Point{{1, 10}, {2, 18}, {8, 40}}}}},
		{Title: "Left out", X: "x", Y: "y"},
		{Title: "Prefill", X: "hosts & more", Y: "tokens/s", Lines: []Line{{"<experts>", []Point{{1, 0}}}}},
	}
	path := filepath.Join(t.TempDir(), "a.svg")
	require.NoError(t, Write(path, charts...))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, Write(path, charts...))
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))

	var shown []string
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if c, ok := token.(xml.CharData); ok && strings.TrimSpace(string(c)) != "" {
			shown = append(shown, strings.TrimSpace(string(c)))
		}
	}
	for _, want := range []string{"Decode", "Prefill", "hosts", "hosts & more", "tokens/s", "experts", "<experts>", "all", "1", "2", "8"} {
		require.Contains(t, shown, want)
	}
	require.NotContains(t, shown, "Left out")
	require.NotContains(t, string(text), "NaN")
}

// TestWriteRefuses: a picture without lines, and a path that cannot be written.
func TestWriteRefuses(t *testing.T) {
	require.ErrorContains(t, Write(filepath.Join(t.TempDir(), "a.svg"), Chart{Title: "Empty"}), "nothing to draw")
	one := Chart{Title: "One", Lines: []Line{{"a", []Point{{1, 1}}}}}
	require.ErrorContains(t, Write(filepath.Join(t.TempDir(), "none", "a.svg"), one), "no such file")
}
