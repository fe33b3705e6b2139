package lint

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

func TestVet(t *testing.T) {
	testenv.Need(t, testenv.Full, "go vet")
	out, err := run(t, nil, "go", "vet", "./...")
	if err != nil && strings.Contains(out, "can't parse raw cgo file") {
		// With -trimpath the build cache does not tell checkouts apart, and vet looks for
		// the sources of cgo where they were compiled first. C that nothing runs is compiled
		// without optimisation, which takes half of the time; the last option counts.
		cc := filepath.Join(t.TempDir(), "cc")
		require.NoError(t, os.WriteFile(cc, []byte("#!/bin/sh\nexec \"${REAL_CC:-gcc}\" \"$@\" -O0\n"), 0o755))
		out, err = run(t, []string{"REAL_CC=" + os.Getenv("CC"), "CC=" + cc, "GOFLAGS=" + strings.ReplaceAll(os.Getenv("GOFLAGS"), "-trimpath", "")}, "go", "vet", "./...")
	}
	require.NoError(t, err, out)
}

// notChecked are the checks of staticcheck that are left out, each with the
// reason.
var notChecked = map[string]string{
	"ST1003": "names follow C where they mirror it (GGUF types, verbs)",
	"ST1005": "an error that a user reads may begin with a name or end with a sentence",
	"ST1016": "a receiver is named for its role in the file",
	"ST1020": "a comment begins with what matters, which need not be the name",
	"ST1021": "as ST1020, for types",
	"ST1022": "as ST1020, for variables",
	"ST1023": "a type that is written out says what is meant",
}

func TestStaticcheck(t *testing.T) {
	testenv.Need(t, testenv.Full, "staticcheck")
	checks := "all"
	for check := range notChecked {
		checks += ",-" + check
	}
	out, err := run(t, nil, "go", "tool", "staticcheck", "-checks", checks, "./...")
	require.NoError(t, err, out)
}

// testOnly are the functions that no program reaches and that stay, each with
// the reason: "package.Function" or "package.Type.Method".
var testOnly = map[string]string{
	"api.Budgets":                "a test of cmd/server compares the table with the document",
	"distributed/rdma/plan.Mesh": "tests of three packages plan without a device matrix",
	"distributed/rdma/plan.Ring": "as Mesh",
	"metal.Numbers":              "steps of a Mac are counted where there is none",
	"kernels.AlignedBytes":       "the backends that no program links, reference and deferred, share it",
}

// TestDeadCode finds functions that only tests reach, or nothing does. They must be used,
// moved into test code, or removed.
func TestDeadCode(t *testing.T) {
	testenv.Need(t, testenv.Full, "the search for dead functions")
	cmd := exec.CommandContext(t.Context(), "go", "tool", "deadcode", "-json", "./cmd/...", "./kernels/vulkan/shaders/compile")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var packages []struct {
		Path  string
		Funcs []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal(out, &packages))
	var dead []string
	met := map[string]bool{}
	for _, p := range packages {
		for _, f := range p.Funcs {
			name := strings.TrimPrefix(p.Path, "ringmaster/") + "." + f.Name
			if met[name] = true; testOnly[name] == "" {
				dead = append(dead, name)
			}
		}
	}
	require.Empty(t, dead, "functions that no program reaches")
	for name := range testOnly {
		require.True(t, met[name], "%s is reached by a program, or gone: it needs no exception", name)
	}
}

// TestClangFormat looks at the lines that are not committed yet: older ones keep
// the line breaks that their authors chose.
func TestClangFormat(t *testing.T) {
	out, err := run(t, nil, "scripts/format.sh", "--check")
	if strings.HasPrefix(out, "NOT CHECKED") {
		t.Skip(strings.TrimSpace(out))
	}
	require.NoError(t, err, "make fmt changes this:\n%s", out)
}

// TestClassTableIsCurrent runs the generator of model/tokenizer's table; the
// other generated files have such a test beside them.
func TestClassTableIsCurrent(t *testing.T) {
	testenv.NeedTool(t, "node", "no node here")
	version, err := exec.Command("node", "-p", "process.versions.unicode").Output()
	require.NoError(t, err)
	const file = "model/tokenizer/classtable.go"
	have := read(t, file)
	if !strings.Contains(have, `unicodeVersion = "`+strings.TrimSpace(string(version))+`"`) {
		t.Skipf("NOT CHECKED: this Node.js has Unicode %s", version)
	}
	cmd := exec.CommandContext(t.Context(), "node", "tests/tokenizer/classes.mjs")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	want, err := cmd.Output()
	require.NoError(t, err)
	require.True(t, string(want) == have, "%s is old: run go generate ./model/tokenizer", file)
}

// TestSkipsSayWhy: the message of a skipped test says whether something was not
// checked or there was nothing to check; the summary of a run is made of these.
func TestSkipsSayWhy(t *testing.T) {
	skip := regexp.MustCompile(`\.Skipf?\("[^"]*`)
	good := regexp.MustCompile(`"NOT (CHECKED|APPLICABLE): `)
	for _, f := range sources(t, "*_test.go") {
		for _, call := range skip.FindAllString(read(t, f), -1) {
			require.Regexp(t, good, call, f)
		}
	}
}

// TestLevelsOfTests: package testenv alone decides how much of a test runs.
func TestLevelsOfTests(t *testing.T) {
	other := regexp.MustCompile(`testing\.Sho` + `rt\(|env\("RINGMASTER_FU` + `LL"\)|\.Att` + `r\(`)
	for _, f := range sources(t, "*.go") {
		if strings.HasPrefix(f, "internal/testenv/") {
			continue
		}
		require.Empty(t, other.FindString(read(t, f)), "%s: ask internal/testenv", f)
	}
}

// TestNamesOfFilesAndKernels: files are named in lower case with underscores,
// Metal kernels and C macros as C names them.
func TestNamesOfFilesAndKernels(t *testing.T) {
	file := regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)
	rules := map[string]*regexp.Regexp{
		"a kernel is not in lower case":   regexp.MustCompile(`^\s*kernel\s+void\s+\w*([a-z]\w*[A-Z]|[A-Z]\w*[a-z])`),
		"a macro with arguments has both": regexp.MustCompile(`^\s*#\s*define\s+([A-Z]\w*[a-z]\w*|[a-z]\w*[A-Z]\w*)\(`),
		"a class has no prefix":           regexp.MustCompile(`^@implementation\s+(?:[a-z]|[A-Z][a-z]*\s*$)`),
	}
	for _, f := range sources(t, "*.c", "*.h", "*.inc", "*.m", "*.mm", "*.cpp", "*.metal") {
		if strings.HasPrefix(f, "tests/metalsim/include/") || strings.HasPrefix(f, "tests/metalsim/darwin/include/") {
			continue // the headers have the names of Apple's
		}
		require.Regexp(t, file, filepath.Base(f), "%s: the name of a file", f)
		for i, line := range strings.Split(read(t, f), "\n") {
			for what, rule := range rules {
				require.False(t, rule.MatchString(line), "%s:%d: %s: %s", f, i+1, what, line)
			}
		}
	}
}

// TestCPrefixes: what the header of a package declares begins with the package's
// prefix, since all C of the program is linked into one namespace.
func TestCPrefixes(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^[a-z][\w ]*[ *](\w+)\(`)
	for header, prefix := range map[string]string{
		"metal/host.h":                 "rmm_",
		"metal/residency.h":            "rmm_",
		"kernels/gpu/device.h":         "rmg_",
		"tests/metalsim/device/sim.h":  "sim_",
		"tests/metalsim/msl/msl_abi.h": "msl_",
	} {
		for _, m := range declared.FindAllStringSubmatch(read(t, header), -1) {
			require.True(t, strings.HasPrefix(m[1], prefix), "%s: %s does not begin with %s", header, m[1], prefix)
		}
	}
}

// TestCWarnings compiles every C file with all warnings as errors. GCC finds some only
// when it optimises, which takes long, so for arm64 it optimises only what mentions arm64;
// the warnings of clang do not depend on that.
func TestCWarnings(t *testing.T) {
	testenv.Need(t, testenv.Full, "compiling C with all warnings as errors")
	files, forArm := sources(t, "*.c"), regexp.MustCompile(`neon|__aarch64__`)
	for _, cc := range []string{"gcc", "clang", "aarch64-linux-gnu-gcc"} {
		t.Run(cc, func(t *testing.T) {
			if _, err := exec.LookPath(cc); err != nil && cc == "clang" {
				cc = "clang-19" // as Debian names it
			}
			if _, err := exec.LookPath(cc); err != nil {
				t.Skipf("NOT CHECKED: no %s here", cc)
			}
			for _, f := range files {
				if strings.Contains(f, "testdata") {
					continue
				}
				args := []string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-I" + filepath.Dir(f), "-c", f, "-o", filepath.Join(t.TempDir(), "x.o")}
				if arm := cc == "aarch64-linux-gnu-gcc"; arm && !forArm.MatchString(f+read(t, f)) || !arm && cc != "gcc" {
					args = append(args, "-fsyntax-only") // gcc's own warnings come from its optimiser
				}
				out, err := run(t, nil, cc, args...)
				require.NoError(t, err, out)
			}
		})
	}
}
