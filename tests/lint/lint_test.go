// Package lint holds the rules of the source as tests: format, vet,
// staticcheck, the direction of imports, documentation, lengths, and the
// builds for other machines.
package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

const root = "../.."

// run executes a command in the root of the module and returns its output.
func run(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// read returns the text of a file of the module.
func read(t *testing.T, file string) string {
	t.Helper()
	text := testenv.ReadFile(t, filepath.Join(root, file))
	return string(text)
}

// sources lists the tracked files, and those new ones that are not ignored,
// with a name that matches one of the patterns.
func sources(t *testing.T, patterns ...string) []string {
	t.Helper()
	args := append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, patterns...)
	out, err := run(t, nil, "git", args...)
	require.NoError(t, err, out)
	var files []string
	for _, f := range strings.Fields(out) {
		if _, err := os.Stat(filepath.Join(root, f)); err == nil {
			files = append(files, f)
		}
	}
	require.NotEmpty(t, files, "git lists no files for %v", patterns)
	return files
}

func TestGofmt(t *testing.T) {
	out, err := run(t, nil, "gofmt", append([]string{"-l"}, sources(t, "*.go")...)...)
	require.NoError(t, err, out)
	require.Empty(t, out, "files that gofmt would change")
}

func TestFileLengths(t *testing.T) {
	for _, f := range sources(t, "*.go", "*.c", "*.h", "*.inc", "*.m", "*.mm", "*.cpp", "*.metal", "*.py", "*.mjs", "*.sh") {
		text := read(t, f)
		if strings.Contains(text, "Code generated") || strings.Contains(f, "grids") {
			continue // data
		}
		require.LessOrEqual(t, strings.Count(text, "\n"), 600, "%s: a file has one purpose", f)
	}
}

// TestKernelsAreCompiledOnce: for a test file inside of package cpu, go test would compile
// the C of the kernels, which takes minutes, a second time.
func TestKernelsAreCompiledOnce(t *testing.T) {
	for _, f := range sources(t, "kernels/cpu/*_test.go") {
		if filepath.Dir(f) == "kernels/cpu" {
			require.Contains(t, "\n"+read(t, f), "\npackage cpu_test\n", f)
		}
	}
}

// TestNoLeftovers looks for unfinished marks, waits in place of conditions and
// places of one machine.
func TestNoLeftovers(t *testing.T) {
	rules := map[string]*regexp.Regexp{
		"unfinished mark":        regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`),
		"path of one machine":    regexp.MustCompile(`(^|[\s"'=(])/(ro` + `ot|wo` + `rk|ho` + `me)/[a-z]`),
		"sleep for a condition":  regexp.MustCompile(`\btime\.Sl` + `eep\(`),
		"host of a registry":     regexp.MustCompile(`(proxy\.golang|registry\.npm|deb\.debian)` + `\.`),
		"conflict marker of git": regexp.MustCompile(`^(<<<<<<<|>>>>>>>) `),
	}
	for _, f := range sources(t, "*.go", "*.c", "*.h", "*.inc", "*.m", "*.mm", "*.cpp", "*.metal", "*.py", "*.mjs", "*.js", "*.json", "*.sh", "*.md", ".ci/*", "*.html", "Makefile") {
		for i, line := range strings.Split(read(t, f), "\n") {
			for what, rule := range rules {
				require.False(t, rule.MatchString(line), "%s:%d: %s: %s", f, i+1, what, strings.TrimSpace(line))
			}
		}
	}
}

// TestPlainWords looks for words that have a plain one: again or re-form, no one or no rank,
// made no progress, resumed.
func TestPlainWords(t *testing.T) {
	words := regexp.MustCompile(`(?i)\b(an` + `ew|no` + `body|brought no` + `thing|is gone o` + `n with)\b`)
	for _, f := range sources(t, "*.go", "*.c", "*.h", "*.m", "*.metal", "*.sh", "*.md", "*.js", "*.html", "Makefile") {
		if f == "CHANGELOG.md" || strings.Contains(f, "testdata/") {
			continue
		}
		for i, line := range strings.Split(read(t, f), "\n") {
			require.False(t, words.MatchString(line), "%s:%d: %s", f, i+1, strings.TrimSpace(line))
		}
	}
}

// TestSocketsAreOpenedInOnePlace: a listener or a dialler made elsewhere may use Multipath
// TCP, or listen on more addresses than it was given.
func TestSocketsAreOpenedInOnePlace(t *testing.T) {
	opens := regexp.MustCompile(`\bnet\.(Listen|Dial|DialTimeout|DialTCP|ListenTCP)\(|\bnet\.(Dialer|ListenConfig)\{|\b(var \w+|new\()\s*net\.(Dialer|ListenConfig)\b`)
	for _, f := range sources(t, "*.go") {
		if strings.HasSuffix(f, "_test.go") || strings.HasPrefix(f, "tests/") || strings.HasPrefix(f, "internal/network/") || strings.HasPrefix(f, "internal/testenv/") {
			continue
		}
		require.NotRegexp(t, opens, read(t, f), "%s opens a socket; use internal/network", f)
	}
}

// TestDependenciesAreListed: each direct requirement earns its place in
// docs/dependencies.md.
func TestDependenciesAreListed(t *testing.T) {
	doc := read(t, "docs/dependencies.md")
	mod := read(t, "go.mod")
	// A line of go.mod without "// indirect"; the version's path is cut off.
	line := regexp.MustCompile(`^\s+(\S+\.\S+?/\S+?)(?:/v\d+)? v\S+$`)
	n := 0
	for _, l := range strings.Split(mod, "\n") {
		if m := line.FindStringSubmatch(l); m != nil {
			n++
			require.Contains(t, doc, m[1], "docs/dependencies.md must say why %s is needed", m[1])
		}
	}
	require.NotZero(t, n, "go.mod names no direct requirement")
}
