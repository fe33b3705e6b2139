package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSameProgram: two ranks run the same program only if that is known: by the files of one
// platform, by the commit of several.
func TestSameProgram(t *testing.T) {
	leader := Hello{Build: "v1", Program: "aaaaaaaaaaaaaaaa", Platform: "linux/amd64", Commit: "c1"}
	for name, c := range map[string]struct {
		change func(*Hello)
		cure   string // "" if they are the same
	}{
		"the same file":                         {func(*Hello) {}, ""},
		"another version":                       {func(h *Hello) { h.Build = "v2" }, "same version"},
		"another file of one version":           {func(h *Hello) { h.Program = "bbbbbbbbbbbbbbbb" }, "copy one program file"},
		"another file with an equal beginning":  {func(h *Hello) { h.Program = "aaaaaaaaaaaaaaab" }, "copy one program file"},
		"no hash":                               {func(h *Hello) { h.Program = "" }, "copy one program file"},
		"another platform, same commit":         {func(h *Hello) { h.Program, h.Platform = "b", "darwin/arm64" }, ""},
		"another platform, other commit":        {func(h *Hello) { h.Program, h.Platform, h.Commit = "b", "darwin/arm64", "c2" }, "the commit that both were built from"},
		"another platform, no commit":           {func(h *Hello) { h.Program, h.Platform, h.Commit = "b", "darwin/arm64", "" }, "the commit that both were built from"},
		"another platform, the file's own hash": {func(h *Hello) { h.Platform, h.Commit = "darwin/arm64", "" }, "the commit that both were built from"},
	} {
		h := leader
		h.Rank, h.Size = 1, 2
		a := leader
		a.Size = 2
		c.change(&h)
		got := mismatch(a, h)
		if c.cure == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Contains(t, got, c.cure, name)
		require.Contains(t, got, "v1 for linux/amd64 with hash aaaaaaaaaaaa", name)
	}
	// Neither side knows a commit: two platforms cannot be compared.
	a, h := leader, leader
	a.Size, h.Size, h.Rank = 2, 2, 1
	a.Commit, h.Commit, h.Platform = "", "", "linux/arm64"
	require.Contains(t, mismatch(a, h), "clean clone")
}
