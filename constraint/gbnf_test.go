package constraint

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// jsonGrammar is JSON, in the notation as people write it.
const jsonGrammar = `# JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
    string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
`

func TestGBNF(t *testing.T) {
	for _, tt := range []struct {
		grammar string
		yes, no []string
	}{
		{`root ::= "a"`, []string{"a"}, []string{"", "aa", "b"}},
		{`root ::= "a" | "b" "c"?`, []string{"a", "b", "bc"}, []string{"ac", "c"}},
		{"root ::= x{2,3} y*\nx ::= [a-c]\ny ::= \"-\" x+", []string{"ab", "abc", "ab-a-bc"}, []string{"a", "abca", "ab-"}},
		{"root ::= x{2}{2}\nx ::= \"x\"", []string{"xxxx"}, []string{"xx", "xxx", "xxxxx"}},
		{`root ::= "x"{,2} "y"{1,}`, []string{"y", "xxyy"}, []string{"xx", "xxxy"}},
		{"root ::= # comment\r\n  \"a\"\r\n  | \"b\" # another\n# and an end", []string{"a", "b"}, []string{"ab"}},
		{"root::=\"a\" root|\"b\"", []string{"b", "aab"}, []string{"a", ""}},
		{`root ::= [^a-z\n]+`, []string{"A漢🎪-"}, []string{"a", "\n", ""}},
		{`root ::= [a\-z\]^]{3}`, []string{"a-]", "^z]"}, []string{"b-]"}},
		{`root ::= [-a] [a-]`, []string{"--", "aa"}, []string{"b-"}},
		{`root ::= "\x41\u00e9\U0001F3AA\t\\\""`, []string{"Aé🎪\t\\\""}, []string{"A"}},
		{`root ::= .`, []string{"漢", "\n", "a"}, []string{"", "ab", "\xe6"}},
		{"root ::= a-b _c\na-b ::= \"1\"\n_c ::= \"2\"", []string{"12"}, []string{"1"}},
		{"root ::= (\"a\" | )", []string{"", "a"}, []string{"b"}},
		{"root ::= \"(\" root \")\" | \"\"", []string{"", "((()))"}, []string{"(()", ")"}},
		{jsonGrammar, []string{`{}`, `{"a": [1, -2.5e+3, "x\n\u00e9", {"b":null}]}`, "{ \"a\":true\n}"}, []string{`[]`, `{"a"}`, `{"a":01}`, `{"a":"` + "\n" + `"}`, `{,}`}},
	} {
		g := parsed(t, tt.grammar)
		for _, s := range tt.yes {
			require.True(t, matches(g, s), "%s\n%q", tt.grammar, s)
		}
		for _, s := range tt.no {
			require.False(t, matches(g, s), "%s\n%q", tt.grammar, s)
		}
	}
}

func TestGBNFErrors(t *testing.T) {
	for grammar, want := range map[string]string{
		"":                                     `line 1, column 1: there is no rule "root"`,
		"a ::= \"x\"":                          `there is no rule "root"`,
		"root ::= a\n":                         `line 1, column 10: there is no rule "a"`,
		"root ::= \"a\"\nroot ::= \"b\"":       `line 2, column 1: the rule "root" is already defined in line 1`,
		"root ::= \"é\" ?? x":                  `line 1, column 17: there is no rule "x"`,
		"root ::= \"a\n\"":                     `line 1, column 10: this text has no closing quote`,
		"root ::= \"a\" )":                     `line 1, column 14: there is no "(" for this ")"`,
		"root ::= (\"a\"":                      `line 1, column 10: there is no ")" for this "("`,
		"root ::= (\"a\"\nb ::= \"c\"":         `line 2, column 1: a rule begins within a group`,
		"root ::= [a":                          `line 1, column 10: there is no "]"`,
		"root ::= [z-a]":                       `line 1, column 11: the range goes from 'z' down to 'a'`,
		"root ::= []":                          `line 1, column 10: this class has no character`,
		"root ::= [^\\x00-\\U0010FFFF]":        `this class has no character`,
		"root ::= \"\\q\"":                     `line 1, column 11: "\\q" is no character`,
		"root ::= \"\\uD800\"":                 `"\\uD800" is no character`,
		"root ::= \"\\":                        `line 1, column 11`,
		"root ::= *":                           `line 1, column 10: there is nothing before '*'`,
		"root ::= \"a\"{3,2}":                  `line 1, column 13: {3,2} allows no number`,
		"root ::= \"a\"{}":                     `must be {m}`,
		"root ::= \"a\"{99999999999999999999}": `must be {m}`,
		"root ::= \"a\"{1":                     `there is no "}"`,
		"root ::= <think>":                     `line 1, column 10: tokens are not supported`,
		"root = \"a\"":                         `line 1, column 6: expected "::=" after the name "root", not '='`,
		"?":                                    `line 1, column 1: expected the name of a rule, not '?'`,
		"root ::= $":                           `line 1, column 10: expected a text in quotes`,
		"root ::= \"a\" root":                  `line 1, column 1: the rule "root" never ends`,
		"root ::= a | \"x\"\na ::= b \"y\"\nb ::= a": `line 2, column 1: the rule "a" never ends`,
		"root ::= " + strings.Repeat("(", 100):       `more than 64 nested groups`,
		"root ::= \xff":                              `not valid UTF-8`,
		strings.Repeat("#", maxGrammarText+1):        `at most 65536 are allowed`,
	} {
		_, err := GBNF(grammar)
		require.ErrorContains(t, err, want, grammar)
	}
	var many strings.Builder
	many.WriteString("root ::= \"a\"\n")
	for i := range maxGrammarRules {
		fmt.Fprintf(&many, "r%d ::= \"a\"\n", i)
	}
	_, err := GBNF(many.String())
	require.ErrorContains(t, err, "line 513, column 1: the grammar has more than 512 rules")

	e, err := GBNF("root ::= \"a\" |\n  b \"x\"\nb ::= root?")
	require.NoError(t, err)
	_, err = Compile(e, NewVocabulary(pieces), nil)
	require.ErrorContains(t, err, "in line ", "left recursion is found when the grammar is compiled")
}

// Random walks through the grammar of JSON are JSON.
func TestGBNFWalks(t *testing.T) {
	g := parsed(t, jsonGrammar)
	random := rand.New(rand.NewPCG(1, 2))
	ended := 0
	for range 200 {
		m, text := g.Matcher(pieces, NewWork()), ""
		for range 60 {
			ids := allowed(m)
			require.NotEmpty(t, ids, "%q", text)
			id := ids[random.IntN(len(ids))]
			if pieces.IsEnd(id) {
				require.True(t, json.Valid([]byte(text)), "%q", text)
				ended++
				break
			}
			require.NoError(t, m.Accept(id))
			text += string(pieces.Bytes(id))
		}
	}
	require.Positive(t, ended)
}

// FuzzGBNF: a grammar is refused, with a place in it, or is compiled and can be followed;
// neither takes long.
func FuzzGBNF(f *testing.F) {
	for _, s := range []string{jsonGrammar, `root ::= ("" | "a"*)*`, `root ::= ((root?)+ "x")*`, "root ::= a\na ::= [^é-漢]{2,} | .", `root ::= "\x41\u00e9" ("b"{1,3}){2}`, "root ::= \"a\x00\""} {
		f.Add(s)
	}
	v := NewVocabulary(pieces)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := GBNF(text)
		if err != nil {
			if utf8.ValidString(text) && len(text) <= maxGrammarText {
				require.Regexp(t, `^line \d+, column \d+: `, err.Error())
			}
			return
		}
		g, err := Compile(e, v, nil)
		if err != nil {
			return
		}
		m := g.Matcher(pieces, NewWork())
		for i := range 20 {
			ids := allowed(m)
			if len(ids) == 0 || pieces.IsEnd(ids[i%len(ids)]) {
				return
			}
			require.NoError(t, m.Accept(ids[i%len(ids)]))
		}
	})
}
