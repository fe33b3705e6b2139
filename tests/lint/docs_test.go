package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]+`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	word    = regexp.MustCompile(`[\w./…*-]+`)
	// placeholder is a part of a path that the reader fills in: model/NAME.
	placeholder = regexp.MustCompile(`(^|/)[A-Z]{4,}(/|$)`)
	baseName    = regexp.MustCompile(`^\w[\w-]*\.(go|c|h|inc|m|cpp|metal|sh|mjs|py)$`)
	testName    = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w*(…?)$`)
	testDecl    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)[A-Z]\w*)\(`)
)

// slug is the anchor that a heading gets where Markdown is rendered.
func slug(h string) string {
	h = strings.ToLower(strings.NewReplacer("`", "", "*", "").Replace(h))
	return strings.ReplaceAll(notSlug.ReplaceAllString(h, ""), " ", "-")
}

// anchors lists the slugs of a document's headings.
func anchors(t *testing.T, file string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(read(t, file), ""), -1) {
		found[slug(m[1])] = true
	}
	return found
}

func exists(file string) bool {
	_, err := os.Stat(filepath.Join(root, file))
	return err == nil
}

// TestLinksOfDocuments: relative links lead to files that exist, and their
// fragments to headings.
func TestLinksOfDocuments(t *testing.T) {
	for _, file := range sources(t, "*.md") {
		prose := code.ReplaceAllString(fence.ReplaceAllString(read(t, file), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], ":") {
				continue // a URL
			}
			name, fragment, _ := strings.Cut(m[1], "#")
			target := file
			if name != "" {
				target = path.Join(path.Dir(file), name)
			}
			require.True(t, exists(target), "%s links to %s, which does not exist", file, m[1])
			if fragment != "" && strings.HasSuffix(target, ".md") {
				require.True(t, anchors(t, target)[fragment], "%s links to %s, but %s has no such heading", file, m[1], target)
			}
		}
	}
}

// documentTests are the tests that documents may name.
type documentTests struct {
	named map[string]bool // functions
	// shared are subtests that all architectures run below the functions of sharedTests.
	shared map[string]bool
}

// sharedTests run the subtests of decodertest in the package of every architecture.
var sharedTests = map[string]bool{"TestAlone": true, "TestOnRanks": true}

// knownTests reads the names of all tests in the tree.
func knownTests(t *testing.T) documentTests {
	known := documentTests{named: map[string]bool{}, shared: map[string]bool{}}
	table := read(t, "model/decoder/decodertest/run.go")
	for _, m := range regexp.MustCompile(`\{"(\w+)", testenv`).FindAllStringSubmatch(table, -1) {
		known.shared[m[1]] = true
	}
	for _, f := range sources(t, "*.go") {
		if strings.HasSuffix(f, "_test.go") || strings.HasPrefix(f, "distributed/grouptest/") || strings.Contains(f, "inguest/") {
			for _, m := range testDecl.FindAllStringSubmatch(read(t, f), -1) {
				known.named[m[1]] = true
			}
		}
	}
	return known
}

// unknown reports whether a word has the form of a test's name but names no test; TestX…
// is any that begins so.
func (k documentTests) unknown(word string) bool {
	if name, sub, within := strings.Cut(word, "/"); within && sharedTests[name] {
		return sub != "…" && !k.shared[sub]
	}
	if !testName.MatchString(word) {
		return false
	}
	prefix, open := strings.CutSuffix(word, "…")
	if !open {
		return !k.named[word]
	}
	for name := range k.named {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// TestPathsInDocuments: a path of the repository, a source file or a test that
// a document names in code exists, so a rename cannot leave one behind.
func TestPathsInDocuments(t *testing.T) {
	known := knownTests(t)
	top, base := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t, "*") {
		base[path.Base(f)] = true
		if dir, _, ok := strings.Cut(f, "/"); ok {
			top[dir] = true
		}
	}
	for _, file := range sources(t, "*.md") {
		text := read(t, file)
		if file == "CHANGELOG.md" {
			continue // tells of what was, also of names that are gone
		}
		for _, c := range append(code.FindAllString(text, -1), fence.FindAllString(text, -1)...) {
			for _, w := range word.FindAllString(strings.Trim(c, "`"), -1) {
				require.False(t, known.unknown(w), "%s names the test %s, which does not exist", file, w)
				w = strings.TrimRight(strings.TrimPrefix(strings.TrimSuffix(w, "/..."), "./"), "./")
				dir, rest, ok := strings.Cut(w, "/")
				switch {
				case strings.ContainsAny(w, "*…") || placeholder.MatchString(w):
				case ok && rest != "" && top[dir]:
					require.True(t, exists(w) || exists(path.Join(path.Dir(file), w)), "%s names %s, which does not exist", file, w)
				case baseName.MatchString(w):
					require.True(t, base[w], "%s names the file %s, which does not exist", file, w)
				}
			}
		}
	}
}
