package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// flagsOf returns the flags of two commands, one below another, and of one that shares
// nothing.
func flagsOf() (Commands, []string) {
	serve := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serve.Int("ctx", 7, "")
	serve.String("listen", "here", "")
	serve.String(Flag, "", "")
	serve.Float64("rate", 0.5, "")
	serve.Bool("strict", false, "")
	serve.Duration("timeout", time.Hour, "")
	serve.StringArray("api-key", nil, "")
	serve.StringSlice("host", []string{"a"}, "")
	serve.IntSlice("weights", nil, "")
	MarkSecret(serve, "api-key")
	bench := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	bench.Int("ctx", 7, "")
	bench.Int("repeat", 1, "")
	key := pflag.NewFlagSet("new", pflag.ContinueOnError)
	key.String("tokens", "", "")
	return Commands{"serve": serve, "bench": bench, "key new": key}, []string{"serve", "bench"}
}

// apply applies a text for serve, with arguments and an environment.
func apply(t *testing.T, text string, env map[string]string, args ...string) (*pflag.FlagSet, Origins) {
	t.Helper()
	commands, shared := flagsOf()
	file, err := Parse("f.toml", []byte(text), commands, shared, nil)
	require.NoError(t, err)
	commands, _ = flagsOf()
	flags, origins := commands["serve"], Origins{}
	require.NoError(t, flags.Parse(args))
	require.NoError(t, FromEnvironment(flags, "X_", func(n string) (string, bool) { v, ok := env[n]; return v, ok }, origins))
	_, err = file.Apply("serve", true, flags, origins)
	require.NoError(t, err)
	return flags, origins
}

// TestPrecedence: each place overrides those after it, and the origin says which it was.
func TestPrecedence(t *testing.T) {
	const both = "ctx = 1\n[serve]\nctx = 2\n"
	for _, c := range []struct {
		name, text, value, origin string
		env                       map[string]string
		args                      []string
	}{
		{"default", "", "7", "default", nil, nil},
		{"before the tables", "ctx = 1", "1", "f.toml:1", nil, nil},
		{"the table", both, "2", "f.toml:3", nil, nil},
		{"the environment", both, "3", "environment X_CTX", map[string]string{"X_CTX": "3"}, nil},
		{"the command line", both, "4", "command line", map[string]string{"X_CTX": "3"}, []string{"--ctx", "4"}},
		{"another command's table", "[bench]\nctx = 5", "7", "default", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			flags, origins := apply(t, c.text, c.env, c.args...)
			f := flags.Lookup("ctx")
			require.Equal(t, c.value, f.Value.String())
			require.Equal(t, c.origin, origins.Of(f).String())
			require.Equal(t, origins.Of(f).Source >= Environment, origins.Given(flags, "ctx"))
			require.Equal(t, c.origin != "default", f.Changed)
		})
	}
}

// TestValues: every type of flag, as TOML writes it; a list replaces the default and a
// comma is a part of a value.
func TestValues(t *testing.T) {
	for text, want := range map[string]any{
		"ctx = 1_000":                       int64(1000),
		"ctx = 0x10":                        int64(16),
		"rate = 2":                          2.0,
		"rate = 2.5":                        2.5,
		"strict = true":                     true,
		`timeout = "90s"`:                   "1m30s",
		`timeout = "2h"`:                    "2h",
		`listen = "[::]:1" # all`:           "[::]:1",
		`listen = "http://me:secret@h/"`:    "http://me:xxxxx@h/",
		`api-key = ["a,b", "c"]`:            []any{"a,b", "c"},
		`api-key = "a,b"`:                   []any{"a,b"},
		`host = ["b", "c,d"]`:               []any{"b", "c,d"},
		"host = []":                         []any{},
		"weights = [\n1, # one\n 2,\n]":     []any{int64(1), int64(2)},
		"serve.ctx = 5":                     int64(5),
		"serve = { ctx = 6, strict = true}": int64(6),
		`"serve"."ctx" = 8`:                 int64(8),
	} {
		flags, origins := apply(t, text, nil)
		name := strings.TrimSpace(strings.SplitN(text, "=", 2)[0])
		if strings.Contains(name, "serve") {
			name = "ctx"
		}
		require.Equal(t, want, Value(flags.Lookup(name)), text)
		require.Equal(t, "f.toml:1", origins.Of(flags.Lookup(name)).String(), text)
	}
}

// TestMistakes: each is named with its line and a cure, and no secret value is shown.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"\nctxx = 1":                        `f.toml:2: there is no setting "ctxx"; did you mean "ctx"?`,
		"# c\n[serve]\napi_key = 'hunter2'": `f.toml:3: there is no setting "api_key" in [serve]; did you mean "api-key"?`,
		"zzzzzzzzzz = 1":                    `f.toml:1: there is no setting "zzzzzzzzzz"`,
		"[server]":                          "f.toml:1: there is no command for the table [server]; did you mean [serve]?",
		"[key]\n[key.old]":                  "f.toml:2: there is no command for the table [key.old]; did you mean [key.new]?",
		"[key]\ntokens = 'x'":               `f.toml:2: there is no setting "tokens" in [key]; it belongs in [key.new]`,
		"tokens = 'x'":                      `f.toml:1: there is no setting "tokens"; it belongs in [key.new]`,
		"[bench]\nlisten = 'x'":             `f.toml:2: there is no setting "listen" in [bench]; it belongs in [serve]`,
		"[[serve]]\nctx = 1":                "the settings of that command are a table, [serve]",
		"config = 'x'":                      `there is no setting "config"`,
		"ctx = 'hunter2'":                   "f.toml:1: ctx is a string; expected a whole number",
		"ctx = 1.5":                         "ctx is a number with a fraction; expected a whole number",
		"ctx = true":                        "ctx is true or false; expected a whole number",
		"ctx = [1]":                         "ctx is a list; expected a whole number",
		"rate = inf\nctx = {}":              "f.toml:2: there is no command for the table [ctx]",
		"listen = 3":                        "listen is a whole number; expected a string",
		"listen = 2027-01-31":               "listen is a date or time; expected a string",
		"strict = 'true'":                   "strict is a string; expected true or false",
		"timeout = 5":                       `timeout is a whole number; expected a duration such as "90s"`,
		"timeout = 'soon'":                  `f.toml:1: timeout: invalid argument "soon"`,
		"weights = [1, 'hunter2']":          "weights is a string; expected a whole number or a list",
		"api-key = [['hunter2']]":           "api-key is a list; expected a string or a list",
		"ctx = 1\nctx = 2":                  "f.toml:2: not TOML: key ctx is already defined",
		"[serve]\n[bench]\n[serve]":         "f.toml:3: not TOML: table serve already exists",
		"api-key = hunter2":                 "f.toml:1:11: not TOML: ",
		"api-key = 'hunter2":                "f.toml:1:",
		"api-key = \"hunter2\\x\"":          "f.toml:1:",
		"api-key = 'a' 'hunter2'":           "f.toml:1:",
		"api-key = 98765432109876543210":    "f.toml:1:11: not TOML: couldn't parse decimal number: value out of range",
		"a = 1\n\xff":                       "f.toml:2:1: not TOML: ",
	} {
		commands, shared := flagsOf()
		_, err := Parse("f.toml", []byte(text), commands, shared, nil)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "hunter2", text)
		require.NotContains(t, err.Error(), "98765432109876543210", text)
		require.NotContains(t, err.Error(), "\n", text)
	}
}

// TestMistakesOfTheEnvironment: an error quotes a value unless it is secret.
func TestMistakesOfTheEnvironment(t *testing.T) {
	commands, _ := flagsOf()
	err := FromEnvironment(commands["serve"], "X_", func(n string) (string, bool) { return "many", n == "X_CTX" }, Origins{})
	require.ErrorContains(t, err, `environment variable X_CTX="many"`)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Int("pin", 0, "")
	MarkSecret(flags, "pin")
	err = FromEnvironment(flags, "X_", func(string) (string, bool) { return "hunter2", true }, Origins{})
	require.EqualError(t, err, "environment variable X_PIN: not a value of --pin")
	_, err = Parse("f", []byte("pin = 99999999999"), Commands{"a": flags}, []string{"a"}, nil)
	require.NoError(t, err)
	require.Panics(t, func() { MarkSecret(flags, "pun") })
}

// TestFind: the first existing file, or the named one, is read; an unreadable file is an
// error and is not skipped.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("a"), []byte("A"), 0o600))
	require.NoError(t, os.WriteFile(path("b"), []byte("B"), 0o644))
	require.NoError(t, os.WriteFile(path("large"), make([]byte, MaxBytes+1), 0o644))
	require.NoError(t, os.WriteFile(path("most"), make([]byte, MaxBytes), 0o644))
	for _, c := range []struct {
		named  string
		places []string
		want   string
		err    string
	}{
		{"", nil, "", ""},
		{"", []string{path("no"), path("b"), path("a")}, path("b"), ""},
		{"", []string{path("a/below")}, "", "not a directory"},
		{path("a"), []string{path("b")}, path("a"), ""},
		{None, []string{path("b")}, "", ""},
		{path("no"), []string{path("b")}, "", "no such file or directory; --config names another file, or is none"},
		{dir, nil, "", "is not a regular file"},
		{"", []string{dir, path("a")}, "", "is not a regular file"},
		{path("large"), nil, "", "larger than 64 KiB"},
		{path("most"), nil, path("most"), ""},
	} {
		got, text, err := Find(c.named, c.places)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		require.Equal(t, got != "", len(text) > 0)
	}
	at := func(env map[string]string) []string {
		return Places(func(n string) (string, bool) { v, ok := env[n]; return v, ok })
	}
	require.Equal(t, []string{"/x/ringmaster/ringmaster.toml", SystemPath}, at(map[string]string{"XDG_CONFIG_HOME": "/x", "HOME": "/h"}))
	require.Equal(t, []string{"/h/.config/ringmaster/ringmaster.toml", SystemPath}, at(map[string]string{"XDG_CONFIG_HOME": "x", "HOME": "/h"}))
	require.Equal(t, []string{SystemPath}, at(map[string]string{"HOME": "h"}))
}

// FuzzSettingsFile: no text makes the reader panic; an error is one line that begins with the
// path; what is accepted applies.
func FuzzSettingsFile(f *testing.F) {
	for _, s := range []string{"", "ctx = 1\n[serve]\nlisten = 'x'", "[key.new]\ntokens=\"a\"", "serve = {ctx=1}", "[[serve]]", "api-key = ['a', \"b\\u0000\"]",
		"serve.ctx = 1\nserve.listen=''", "weights = [1,\n2]", "timeout=\"1h\"", "\"\" = 1", "[serve]\n\"ctx\" = 1\nctx = 2", "a.b.c.d = []", "listen = '''\nx'''"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			return
		}
		commands, shared := flagsOf()
		file, err := Parse("f.toml", text, commands, shared, nil)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "f.toml:"), "%v", err)
			return
		}
		for name := range commands {
			fresh, _ := flagsOf()
			origins := Origins{}
			n, err := file.Apply(name, name != "key new", fresh[name], origins)
			require.NoError(t, err)
			require.Len(t, origins, n)
			for _, o := range origins {
				require.LessOrEqual(t, 1, o.Line)
				require.LessOrEqual(t, o.Line, 1+strings.Count(string(text), "\n"))
			}
		}
	})
}
