package chatclient

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeepMarkdown: an answer that a server made to be costly stays plain text.
func TestDeepMarkdown(t *testing.T) {
	var lists strings.Builder
	for i := range 200 {
		lists.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	for name, source := range map[string]string{
		"quotes":              strings.Repeat(">", 60_000) + "a",
		"long":                strings.Repeat("[a](b", 200_000),
		"empty lines in list": lists.String() + strings.Repeat("\n", 24_000) + "a",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out := render(source, 80)
		runtime.ReadMemStats(&after)
		require.Equal(t, source+"\n", out, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20), name)
	}
	require.Contains(t, render(strings.Repeat(">", 30)+" *a*", 80), "a\x1b")
}
