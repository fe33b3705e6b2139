package metalsim

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// golden is darwin/golden.txt: the contents of Apple's API.
type golden struct {
	selectors, foundation map[string]bool
	values                map[string]int64
}

func readGolden(t *testing.T) golden {
	t.Helper()
	g := golden{map[string]bool{}, map[string]bool{}, map[string]int64{}}
	f, err := os.Open("darwin/golden.txt")
	require.NoError(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		w := strings.Fields(s.Text())
		switch {
		case len(w) == 0 || strings.HasPrefix(w[0], "#"):
		case w[0] == "selector":
			g.selectors[w[1]] = true
		case w[0] == "foundation":
			g.foundation[w[1]] = true
		case w[0] == "value":
			n, err := strconv.ParseInt(w[2], 0, 64)
			require.NoError(t, err, s.Text())
			g.values[w[1]] = n
		default:
			t.Fatalf("darwin/golden.txt: %s", s.Text())
		}
	}
	require.NoError(t, s.Err())
	require.Greater(t, len(g.selectors), 50)
	return g
}

var (
	comments   = regexp.MustCompile(`//.*`)
	properties = regexp.MustCompile(`@property\s*\(([^)]*)\)\s*([^;]*);`)
	methods    = regexp.MustCompile(`(?m)^[-+]\s*\([^;]*?;`)
	blocks     = regexp.MustCompile(`\(\^\)\([^)]*\)`)
	types      = regexp.MustCompile(`\([^()]*\)`)
	parts      = regexp.MustCompile(`(\w+)\s*:`)
	word       = regexp.MustCompile(`\w+`)
	constants  = regexp.MustCompile(`(?m)^\s+(MTL\w+)(?: MTL_MACOS15)?\s*=\s*([^,\n]+),`)
)

// declared lists the selectors that a header declares.
func declared(header string) []string {
	var out []string
	for _, m := range methods.FindAllString(header, -1) {
		m = strings.ReplaceAll(blocks.ReplaceAllString(m, ""), "MTL_MACOS15", "")
		for types.MatchString(m) {
			m = types.ReplaceAllString(m, " ")
		}
		if p := parts.FindAllStringSubmatch(m, -1); p != nil {
			sel := ""
			for _, x := range p {
				sel += x[1] + ":"
			}
			out = append(out, sel)
		} else {
			out = append(out, word.FindString(m))
		}
	}
	for _, m := range properties.FindAllStringSubmatch(header, -1) {
		words := word.FindAllString(strings.ReplaceAll(m[2], "MTL_MACOS15", ""), -1)
		name := words[len(words)-1]
		out = append(out, name)
		if !strings.Contains(m[1], "readonly") {
			out = append(out, "set"+strings.ToUpper(name[:1])+name[1:]+":")
		}
	}
	return out
}

// evaluate computes the constants of the header: numbers, sums and shifts.
func evaluate(t *testing.T, s string) int64 {
	t.Helper()
	s = strings.TrimSpace(s)
	var a, b, c int64
	if n, _ := fmt.Sscanf(s, "(%d << %d) + %d", &a, &b, &c); n == 3 {
		return a<<b + c
	}
	if n, _ := fmt.Sscanf(s, "%d << %d", &a, &b); n == 2 {
		return a << b
	}
	v, err := strconv.ParseInt(s, 0, 64)
	require.NoError(t, err, "value %q", s)
	return v
}

// TestHeader: the fake header declares only what Apple's API has, with its
// values, and the list contains nothing that the header does not declare.
func TestHeader(t *testing.T) {
	g := readGolden(t)
	text := testenv.ReadFile(t, "include/Metal/Metal.h")
	// What it declares for GNUstep is of Foundation.
	foundation := regexp.MustCompile(`(?s)#ifndef __APPLE__.*?#endif`)
	header := comments.ReplaceAllString(foundation.ReplaceAllString(string(text), ""), "")
	seen := map[string]bool{}
	for _, s := range declared(header) {
		require.True(t, g.selectors[s], "the header declares %q, which darwin/golden.txt does not confirm", s)
		seen[s] = true
	}
	for s := range g.selectors {
		require.True(t, seen[s], "%q of darwin/golden.txt is not in the header", s)
	}
	found := constants.FindAllStringSubmatch(header, -1)
	for _, m := range found {
		want, ok := g.values[m[1]]
		require.True(t, ok, "%s is not in darwin/golden.txt", m[1])
		require.Equal(t, want, evaluate(t, m[2]), m[1])
	}
	require.Len(t, found, len(g.values))
}

// host lists the Objective-C files of metal/.
func host(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../metal/*.m")
	require.NoError(t, err)
	require.NotEmpty(t, files, "metal/ has no Objective-C files")
	return files
}

func darwin(t *testing.T, more ...string) result {
	t.Helper()
	env(t)
	args := []string{"-target", "arm64-apple-macos14", "-fblocks", "-fobjc-exceptions", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
		"-ffreestanding", "-nostdlibinc", "-Idarwin/include", "-Iinclude", "-I../../kernels/gpu"}
	return start(t, nil, "clang-19", append(args, more...)...)
}

// TestHostSyntax: the host code compiles for arm64 macOS against stubs: no
// selector is misspelt, no type is wrong, and what was introduced in macOS 15
// is used behind @available.
func TestHostSyntax(t *testing.T) {
	for _, f := range host(t) {
		r := darwin(t, f)
		require.Zero(t, r.code, r.out)
	}
}

// TestHostSelectors: every message that the host code sends is in Apple's API.
func TestHostSelectors(t *testing.T) {
	g := readGolden(t)
	message := regexp.MustCompile(`ObjC(?:MessageExpr|SelectorExpr).* selector=(\S+)|ObjCSelectorExpr.* (\S+:)$`)
	for _, f := range host(t) {
		r := darwin(t, "-Wno-error", "-Xclang", "-ast-dump", f)
		n := 0
		for _, m := range message.FindAllStringSubmatch(r.out, -1) {
			s := m[1] + m[2]
			require.True(t, g.selectors[s] || g.foundation[s], "%s: %q is not in darwin/golden.txt", f, s)
			n++
		}
		require.NotZero(t, n, "%s: no messages found:\n%.2000s", f, r.out)
	}
}

// TestHostSyntaxFinds: the check finds the errors that it is for.
func TestHostSyntaxFinds(t *testing.T) {
	for name, c := range map[string][2]string{
		"selector":  {"[d newBufferWithLength:4 option:0];", "not found"},
		"type":      {"[d newBufferWithLength:d options:0];", "incompatible"},
		"available": {"[q addResidencySet:0];", "macOS 15.0"},
		"constant":  {"(void)MTLStorageModeMine;", "undeclared"},
	} {
		t.Run(name, func(t *testing.T) {
			f := filepath.Join(t.TempDir(), "x.m")
			text := "#import <Foundation/Foundation.h>\n#import <Metal/Metal.h>\nvoid f(id<MTLDevice> d, id<MTLCommandQueue> q);\n" +
				"void f(id<MTLDevice> d, id<MTLCommandQueue> q) {\n    (void)d;\n    (void)q;\n    " + c[0] + "\n}\n"
			require.NoError(t, os.WriteFile(f, []byte(text), 0o600))
			r := darwin(t, f)
			require.NotZero(t, r.code)
			require.Contains(t, r.out, c[1])
		})
	}
}
