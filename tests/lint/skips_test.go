package lint

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllowedSkips: every line of .ci/allowed-skips is about tests that exist and a reason
// that some test gives, so none outlives what it was for.
func TestAllowedSkips(t *testing.T) {
	var all strings.Builder
	for _, f := range sources(t, "*.go") {
		all.WriteString(read(t, f))
	}
	below := regexp.MustCompile(`\(/\\S\+\)\?$|/\\S\+$`)
	whole := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	literal := regexp.MustCompile(`^\.\*$|^[^\\.*+?(\[$:]+`)
	for line := range strings.Lines(read(t, ".ci/allowed-skips")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.SplitN(strings.TrimSuffix(line, "$"), ": ", 5)
		require.Len(t, parts, 5, line)
		packages := regexp.MustCompile("^" + parts[1] + "$")
		tests := regexp.MustCompile("^" + below.ReplaceAllString(parts[2], "") + "$")
		declared := map[string]bool{}
		for _, f := range sources(t, "*_test.go") {
			if !packages.MatchString("ringmaster/" + filepath.Dir(f)) {
				continue
			}
			for _, m := range testDecl.FindAllStringSubmatch(read(t, f), -1) {
				declared[m[1]] = true
			}
		}
		found := false
		for name := range declared {
			found = found || tests.MatchString(name)
		}
		require.True(t, found, "no such test: %s", line)
		for _, name := range whole.FindAllString(parts[2], -1) {
			require.True(t, declared[name], "no test %s: %s", name, line)
		}
		reason := literal.FindString(parts[4])
		if reason == ".*" || reason == "" {
			continue
		}
		require.True(t, strings.Contains(all.String(), strings.TrimSpace(reason)), "no test gives this reason: %s", line)
	}
}
