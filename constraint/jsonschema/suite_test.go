package jsonschema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/google/jsonschema-go/jsonschema" // its module has the suite
	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
)

// byteTokens is a vocabulary of the 256 bytes and an end.
type byteTokens struct{}

func (byteTokens) Size() int             { return 257 }
func (byteTokens) Bytes(id int32) []byte { return []byte{byte(id)}[:min(1, max(0, 256-int(id)))] }
func (byteTokens) Added(id int32) bool   { return id == 256 }
func (byteTokens) IsEnd(id int32) bool   { return id == 256 }

var vocabulary = c.NewVocabulary(byteTokens{})

func grammar(t testing.TB, schema string, o Options) *c.Grammar {
	t.Helper()
	e, err := Compile([]byte(schema), o)
	require.NoError(t, err, schema)
	g, err := c.Compile(e, vocabulary, nil)
	require.NoError(t, err, schema)
	return g
}

// matches reports whether a grammar matches a text as a whole.
func matches(g *c.Grammar, text string) bool {
	m := g.Matcher(byteTokens{}, c.NewWork())
	for i := range len(text) {
		if m.Accept(int32(text[i])) != nil {
			return false
		}
	}
	var mask [5]uint64
	_ = m.Mask(context.Background(), mask[:])
	return mask[4]&1 != 0 // the end
}

func asError(err error) (*Error, bool) {
	var e *Error
	return e, errors.As(err, &e)
}

// forms returns ways to write a value: with its members in every order if they are few,
// integers without a point.
func forms(v *value) []string {
	var out []string
	switch v.kind {
	case integer, number:
		d, ok := v.decimal()
		if !ok || !d.small() {
			return []string{v.text}
		}
		r := d.rat()
		if r.IsInt() {
			return []string{r.Num().String()}
		}
		return []string{strings.TrimRight(r.FloatString(maxFraction), "0")}
	case array:
		lists := [][]string{}
		for _, item := range v.items {
			lists = append(lists, forms(item))
		}
		for _, one := range product(lists, 200) {
			out = append(out, "["+strings.Join(one, ",")+"]")
		}
	case object:
		orders := permutations(v.keys)
		for _, keys := range orders {
			lists := [][]string{}
			for _, key := range keys {
				list := []string{}
				for _, f := range forms(v.members[key]) {
					list = append(list, quote(key)+": "+f)
				}
				lists = append(lists, list)
			}
			for _, one := range product(lists, 50) {
				out = append(out, "{"+strings.Join(one, ", ")+"}")
			}
		}
	case text:
		return []string{quote(v.text)}
	case boolean:
		return []string{fmt.Sprint(v.yes)}
	default:
		return []string{"null"}
	}
	return out
}

func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.NewReplacer("\u2028", "\u2028").Replace(strings.TrimSpace(b.String()))
}

func product(lists [][]string, most int) [][]string {
	out := [][]string{{}}
	for _, list := range lists {
		var next [][]string
		for _, head := range out {
			for _, tail := range list {
				if len(next) < most {
					next = append(next, append(append([]string{}, head...), tail))
				}
			}
		}
		out = next
	}
	return out
}

func permutations(keys []string) [][]string {
	if len(keys) < 2 || len(keys) > 5 {
		return [][]string{keys}
	}
	var out [][]string
	for i := range keys {
		rest := append(append([]string{}, keys[:i]...), keys[i+1:]...)
		for _, p := range permutations(rest) {
			out = append(out, append([]string{keys[i]}, p...))
		}
	}
	return out
}

// suite returns the path of the JSON-Schema-Test-Suite, which is part of a module.
func suite(t *testing.T, draft string) string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	require.NoError(t, err)
	dir := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata", draft)
	_, err = os.Stat(dir)
	require.NoError(t, err)
	return dir
}

// TestSuite: for every schema of the suite that compiles, every valid instance is
// accepted byte by byte and every invalid one is blocked. Refused schemas are counted by
// the keyword of the error; docs/constraints.md has the table.
func TestSuite(t *testing.T) {
	type group struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	refusedBy := map[string]int{}
	compiled, instances := 0, 0
	for _, draft := range []string{"draft2020-12", "draft7"} {
		files, err := filepath.Glob(filepath.Join(suite(t, draft), "*.json"))
		require.NoError(t, err)
		require.Greater(t, len(files), 30)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var groups []group
			require.NoError(t, json.Unmarshal(data, &groups))
			for _, g := range groups {
				if draft == "draft7" && bytes.HasPrefix(g.Schema, []byte("{")) && !bytes.Contains(g.Schema, []byte("$schema")) {
					g.Schema = append([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#",`), g.Schema[1:]...)
					g.Schema = bytes.Replace(g.Schema, []byte(",}"), []byte("}"), 1)
				}
				name := draft + "/" + filepath.Base(file) + ": " + g.Description
				e, err := Compile(g.Schema, Options{})
				if err != nil {
					failed, ok := asError(err)
					require.True(t, ok)
					refusedBy[failed.Keyword]++
					allInvalid := true
					for _, tt := range g.Tests {
						allInvalid = allInvalid && !tt.Valid
					}
					if failed.Keyword == "" && !allInvalid {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				m, err := c.Compile(e, vocabulary, nil)
				require.NoError(t, err, name)
				compiled++
				for _, tt := range g.Tests {
					instances++
					v, err := decode(tt.Data, nil)
					require.NoError(t, err)
					accepted := ""
					list := forms(v)
					for _, form := range list {
						if matches(m, form) {
							accepted = form
							break
						}
					}
					if (accepted != "") != tt.Valid {
						t.Errorf("%s, %s: valid %v, accepted %q of %d forms of %s, schema %s", name, tt.Description, tt.Valid, accepted, len(list), tt.Data, g.Schema)
					}
				}
			}
		}
	}
	t.Logf("%d schemas compiled, %d instances; refused: %v", compiled, instances, refusedBy)
	require.Greater(t, compiled, 250)
}

// TestRanges compares ranges of numbers with arithmetic.
func TestRanges(t *testing.T) {
	texts := []string{}
	for _, whole := range []string{"0", "1", "2", "3", "9", "10", "11", "19", "99", "100", "101", "250", "999", "1000"} {
		for _, f := range []string{"", ".0", ".05", ".1", ".5", ".50", ".55", ".9", ".99"} {
			texts = append(texts, whole+f)
			if whole+f != "0" && strings.Trim(whole+f, "0.") != "" {
				texts = append(texts, "-"+whole+f)
			}
		}
	}
	bounds := []string{"", "-100", "-10.5", "-2", "-0.5", "0", "0.05", "0.5", "1", "9", "10", "10.55", "99", "100.1", "250"}
	rat := func(s string) *big.Rat {
		if s == "" {
			return nil
		}
		r, ok := new(big.Rat).SetString(s)
		require.True(t, ok)
		return r
	}
	at := func(s string, open bool) bound {
		d, ok := parseDecimal(s)
		return bound{s != "" && ok, d, open}
	}
	compiled := func(e *c.Expr) *c.Grammar { // nil: it allows nothing
		g, err := c.Compile(e, vocabulary, nil)
		if !errors.Is(err, c.ErrNothing) {
			require.NoError(t, err)
		}
		return g
	}
	matches := func(g *c.Grammar, text string) bool { return g != nil && matches(g, text) }
	for _, low := range bounds {
		for _, high := range bounds {
			for open := range 4 {
				lo, hi := at(low, open&1 != 0), at(high, open&2 != 0)
				whole, any := compiled(integers(lo, hi)), compiled(numbers(lo, hi))
				for _, text := range texts {
					v, l, h := rat(text), rat(low), rat(high)
					in := (l == nil || v.Cmp(l) > 0 || v.Cmp(l) == 0 && !lo.open) && (h == nil || v.Cmp(h) < 0 || v.Cmp(h) == 0 && !hi.open)
					require.Equal(t, in, matches(any, text), "%s in %q..%q, open %d", text, low, high, open)
					if !strings.Contains(text, ".") {
						require.Equal(t, in, matches(whole, text), "integer %s in %q..%q, open %d", text, low, high, open)
					}
				}
			}
		}
	}
}
