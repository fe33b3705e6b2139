// Package lint holds the rules of the source as tests: format, vet,
// staticcheck, the direction of imports, documentation, lengths, and the
// builds for other machines.
package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// sources lists the tracked files, and those new ones that are not ignored,
// whose name matches one of the patterns.
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

// layers gives each package its height; a package imports only lower ones
// (architecture.md, "Rooms").
var layers = []struct {
	prefix string
	height int
}{
	{"ringmaster/gguf/", 1}, // helpers of tests
	{"ringmaster/gguf", 0},
	{"ringmaster/distributed/reduce", 1},
	{"ringmaster/distributed/control", 1},
	{"ringmaster/distributed/accept", 0},
	{"ringmaster/distributed/secure", 0},
	{"ringmaster/distributed/rdma/verbs", 1},
	{"ringmaster/distributed/rdma/matrix", 1},
	{"ringmaster/distributed/rdma/plan", 1},
	{"ringmaster/distributed/rdma/liveness", 1},
	{"ringmaster/distributed/rdma/engine", 2},
	{"ringmaster/distributed/rdma/helper", 2},
	{"ringmaster/distributed/rdma/bringup", 3},
	{"ringmaster/distributed/rdma", 4},
	{"ringmaster/distributed/", 2}, // transports; cluster
	{"ringmaster/distributed", 0},
	{"ringmaster/kernels/contract", 2}, // checks of arguments
	{"ringmaster/kernels/", 3},         // implementations
	{"ringmaster/kernels", 1},
	{"ringmaster/metal", 3},
	{"ringmaster/internal/only64bit", -1},
	{"ringmaster/internal/safetext", -2},  // texts of strangers
	{"ringmaster/internal/trust", -2},     // whose files are believed
	{"ringmaster/internal/testenv", 0},    // how much of a test runs
	{"ringmaster/internal/reload", 0},     // files that are read again when they change
	{"ringmaster/internal/highlight", -1}, // classes of code
	{"ringmaster/internal/mdtables", -1},  // tables of Markdown within a budget
	{"ringmaster/internal/usage", -1},     // errors with exit code 2
	{"ringmaster/internal/flags", -1},     // what flags take
	{"ringmaster/internal/settings", -1},  // flags, environment, file
	{"ringmaster/internal/network", -1},   // sockets
	{"ringmaster/parallel/cost", 0},       // knows ops and exchanges as numbers
	{"ringmaster/parallel", 3},
	{"ringmaster/pull/partial", -1}, // files that arrive in pieces
	{"ringmaster/pull", 0},          // fetches files; knows no models
	{"ringmaster/fanout", 3},        // files over a group
	{"ringmaster/moe", 4},
	{"ringmaster/model/synthetic", 1}, // writes files; knows no kernels
	{"ringmaster/model/tokenizer", 1},
	{"ringmaster/model/chat", 3},
	{"ringmaster/constraint/", 2}, // grammars of JSON schemas
	{"ringmaster/constraint", 1},
	{"ringmaster/model/builtin", 1},
	{"ringmaster/model/snapshot", 1},
	{"ringmaster/model/decoder/", 6}, // tests of all architectures
	{"ringmaster/model/decoder", 5},
	{"ringmaster/model/arch", 7},
	{"ringmaster/model/", 6}, // architectures
	{"ringmaster/model", 4},
	{"ringmaster/replica", 7},
	{"ringmaster/engine/diskcache", 6},
	{"ringmaster/engine/", 8}, // its test model
	{"ringmaster/engine", 7},
	{"ringmaster/simulate", 8}, // runs the engine's scheduler in virtual time
	{"ringmaster/api/apitest", 8},
	{"ringmaster/api/run", 8},
	{"ringmaster/api/keys", 8},
	{"ringmaster/api/dialect", 9}, // what the dialects share
	{"ringmaster/api/", 10},       // dialects
	{"ringmaster/api", 11},
	{"ringmaster/cmd/", 12},
}

func height(pkg string) (int, bool) {
	for _, l := range layers {
		if pkg == l.prefix || strings.HasSuffix(l.prefix, "/") && strings.HasPrefix(pkg, l.prefix) ||
			strings.HasPrefix(pkg, l.prefix+"/") {
			return l.height, true
		}
	}
	return 0, false
}

// TestImportsPointDown checks the arrows of the architecture: no package
// imports one that stands above it or beside it.
func TestImportsPointDown(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if strings.HasPrefix(p.ImportPath, "ringmaster/tests") {
			continue
		}
		from, ok := height(p.ImportPath)
		require.True(t, ok, "package %s has no place in the layers", p.ImportPath)
		for _, i := range p.Imports {
			if !strings.HasPrefix(i, "ringmaster/") {
				continue
			}
			to, ok := height(i)
			require.True(t, ok, "package %s has no place in the layers", i)
			sameRoom := strings.HasPrefix(i, p.ImportPath+"/") || strings.HasPrefix(p.ImportPath, "ringmaster/kernels/kerneltest") ||
				strings.HasPrefix(p.ImportPath, "ringmaster/kernels/cpu/")
			require.True(t, to < from || sameRoom && to <= from, "%s must not import %s: imports point down", p.ImportPath, i)
		}
	}
}

func TestFileLengths(t *testing.T) {
	for _, f := range sources(t, "*.go", "*.c", "*.h", "*.inc", "*.m", "*.mm", "*.cpp", "*.metal", "*.py", "*.mjs", "*.sh") {
		text, err := os.ReadFile(filepath.Join(root, f))
		require.NoError(t, err)
		if bytes.Contains(text, []byte("Code generated")) || strings.Contains(f, "grids") {
			continue // data
		}
		require.LessOrEqual(t, bytes.Count(text, []byte("\n")), 600, "%s: a file has one purpose", f)
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
		text, err := os.ReadFile(filepath.Join(root, f))
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			for what, rule := range rules {
				require.False(t, rule.MatchString(line), "%s:%d: %s: %s", f, i+1, what, strings.TrimSpace(line))
			}
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
		text, err := os.ReadFile(filepath.Join(root, f))
		require.NoError(t, err)
		require.NotRegexp(t, opens, string(text), "%s opens a socket; use internal/network", f)
	}
}

// TestDependenciesAreListed: each direct requirement earns its place in
// docs/dependencies.md.
func TestDependenciesAreListed(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	// A line of go.mod without "// indirect"; the version's path is cut off.
	line := regexp.MustCompile(`^\s+(\S+\.\S+?/\S+?)(?:/v\d+)? v\S+$`)
	n := 0
	for _, l := range strings.Split(string(mod), "\n") {
		if m := line.FindStringSubmatch(l); m != nil {
			n++
			require.Contains(t, string(doc), m[1], "docs/dependencies.md must say why %s is needed", m[1])
		}
	}
	require.NotZero(t, n, "go.mod names no direct requirement")
}
