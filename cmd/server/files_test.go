package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/metal"
)

// otherwise are arguments with which a command would work, but for a file that is given to
// its flag beside them: it must find that out before anything else. Flags that several
// commands have in common are tried with one of them.
var otherwise = map[string]string{
	"serve --model": "--listen 127.0.0.1:0", "bench --model": "", "tokenize --model": "", "logits --model": "--tokens {ids} --out {new}",
	"serve --api-keys": "--listen 127.0.0.1:0 --model {none}", "serve --tls-cert": "--tls-key {pem} --model {none}", "serve --tls-key": "--tls-cert {pem} --model {none}",
	"bench --cluster-key-file": "--distributed --world-size 2 --coordinator 127.0.0.1:1",
	"bench --rdma-devices":     "--distributed --world-size 2 --coordinator 127.0.0.1:1 --transport rdma",
	"logits --tokens":          "--out {new}", "chat --load": "question --url http://127.0.0.1:1", "drain --cluster-key-file": "--rank 1 --coordinator 127.0.0.1:1",
	"plan --model": "--host 1GiB", "simulate --bench": "", "verify --recorded": "--url http://127.0.0.1:1",
	"verify --cluster-key-file": "--coordinator 127.0.0.1:1", "verify --model": "--coordinator 127.0.0.1:1", "bench --config": "",
}

// outputs are the same for files and directories to write.
var outputs = map[string]string{
	"bench --state": "", "bench --svg": "", "serve --audit-log": "--listen 127.0.0.1:0 --model {none}", "serve --cache-dir": "--listen 127.0.0.1:0 --model {none}", "chat --save": "question --url http://127.0.0.1:1",
	"key new --api-keys": "name", "logits --out": "--tokens {ids}", "pull --dir": "http://127.0.0.1:1/m.gguf", "rails plan --out": "{none} {none}",
	"join --dir": "127.0.0.1:1 --code 4KQ-M2X", "share --dir": "--rank 1 --world-size 2 --coordinator 127.0.0.1:1", "verify --record": "--url http://127.0.0.1:1", "verify --report": "--url http://127.0.0.1:1",
}

// badFiles writes files that are no input of any command, by what is wrong with them, and
// returns the names for {}.
func badFiles(t *testing.T) (bad map[string]string, names *strings.Replacer) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	whole := testenv.ReadFile(t, tinyModel(t, nil))
	for name, data := range map[string][]byte{"empty": nil, "junk": []byte("\x00 junk {"), "head": whole[:100], "half": whole[:len(whole)/2], "ids": []byte("1 2"), "pem": []byte("-----BEGIN CERTIFICATE-----")} {
		require.NoError(t, os.WriteFile(at(name), data, 0o600))
	}
	require.NoError(t, os.Mkdir(at("directory"), 0o700))
	bad = map[string]string{"missing": at("none"), "a directory": at("directory"), "empty": at("empty"), "junk": at("junk"),
		"the head of a model": at("head"), "half a model": at("half"), "below a file": filepath.Join(at("ids"), "x")}
	if os.Geteuid() != 0 { // root may read everything
		require.NoError(t, os.WriteFile(at("closed"), []byte("1"), 0o600))
		require.NoError(t, os.Chmod(at("closed"), 0))
		bad["unreadable"] = at("closed")
	}
	return bad, strings.NewReplacer("{ids}", at("ids"), "{pem}", at("pem"), "{new}", at("new"), "{none}", at("none"))
}

// flagsOf calls visit for each flag of a kind of each command.
func flagsOf(kind flags.Kind, visit func(c *cobra.Command, f *pflag.Flag)) {
	for _, c := range commandsOf(newRoot()) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if v, ok := f.Value.(flags.Value); ok && v.Kind() == kind && c.HasParent() {
				visit(c, f)
			}
		})
	}
}

// TestEveryFileIsRefused: a file that cannot be read, or is not what it should be, ends every
// command that takes one with one line that names it, and exit code 2, before the command
// asks anybody or loads anything. A flag for a file that is not in the table fails the test.
func TestEveryFileIsRefused(t *testing.T) {
	t.Setenv(cli.Variable(settings.Flag), settings.None)
	bad, names := badFiles(t)
	covered, parent := map[string]bool{}, map[string]string{"below a file": "ids"}
	for _, kind := range []struct {
		table map[string]string
		files []string
	}{
		{otherwise, []string{"missing", "a directory", "empty", "junk", "the head of a model", "half a model", "below a file", "unreadable"}},
		{outputs, []string{"below a file"}},
	} {
		for which, rest := range kind.table {
			name, flag, _ := strings.Cut(which, " --")
			covered[flag] = true
			for _, what := range kind.files {
				path, ok := bad[what]
				switch {
				case !ok, flag == "config" && what == "empty": // a file without settings
					continue
				case flag == "cluster-key-file" && strings.Contains(what, "model"): // long enough for a key
					continue
				}
				args := append(strings.Fields(name), strings.Fields(names.Replace(rest))...)
				start := time.Now()
				_, err := command(t, append(args, "--"+flag, path)...)
				requireRefused(t, err, which+": "+what, cmp.Or(parent[what], filepath.Base(path)))
				require.Less(t, time.Since(start), 20*time.Second, which)
			}
		}
	}
	for _, kind := range []flags.Kind{flags.Input, flags.Output} {
		flagsOf(kind, func(c *cobra.Command, f *pflag.Flag) {
			require.True(t, covered[f.Name], "%s --%s is in no table", c.CommandPath(), f.Name)
		})
	}
	_, err := os.Stat(names.Replace("{new}"))
	require.ErrorIs(t, err, os.ErrNotExist, "a refused command has written nothing")
}

// TestArgumentsAreRefused: arguments that are missing, too many or no names end every command
// with one line and exit code 2; what may have been meant is proposed.
func TestArgumentsAreRefused(t *testing.T) {
	t.Setenv(cli.Variable(settings.Flag), settings.None)
	bad, _ := badFiles(t)
	for _, c := range []struct{ args, want string }{
		{"srve", `did you mean "serve"?`}, {"bnech --model x", `did you mean "bench"?`}, {"key nwe x", `did you mean "new"?`}, {"rails pln", `did you mean "plan"?`},
		{"config srve", `did you mean "serve"?`}, {"help srve", "srve"}, {"help key nwe", "nwe"}, {"completion basj", `did you mean "bash"?`},
		{"--modle x", "did you mean --model?"}, {"serve --lisen x", "did you mean --listen?"}, {"verify --agianst x", "did you mean --against?"},
		{"config serve --lisen x", "did you mean --listen?"}, {"serve -y", "unknown shorthand flag"}, {"serve --ctx", "--ctx"},
		{"qqqqqqqqqq", "see ringmaster --help"}, {"serve x", "serve --help"}, {"bench x", "bench --help"}, {"logits x", "logits --help"}, {"tokenize x", "tokenize --help"},
		{"plan x", "plan --help"}, {"simulate x", "simulate --help"}, {"verify x", "verify --help"}, {"drain x", "drain --help"}, {"rails here x", "here --help"},
		{"logits", `"out", "tokens" not set`}, {"pull", "hf:OWNER/REPO"}, {"pull a b", "hf:OWNER/REPO"}, {"pull nothing", "hf:OWNER/REPO"}, {"pull ftp://h/f.gguf", "https://HOST"},
		{"key new", "name of the key"}, {"key new a b", "name of the key"}, {"share a b --world-size 2", "at most one"}, {"chat a b", "at most 1"},
		{"rails plan", "between 2 and 8"}, {"rails plan x", "between 2 and 8"}, {"rails plan " + bad["missing"] + " x", "none"}, {"rails plan " + bad["junk"] + " x", "rails here --json"},
		{"man", "1 arg"}, {"man " + bad["missing"], "make it first"}, {"man " + bad["junk"], "no directory"}, {"doctor -- -x", "expected a name"}, {"drain --rank 1", "--coordinator"},
		{"chat x --url nowhere", "http://127.0.0.1:8080"}, {"verify --url ftp://h", "http://127.0.0.1:8080"}, {"verify --against //h", "http://127.0.0.1:8080"},
		{"serve --rank 1 --world-size 2", "--rank needs --distributed"}, {"bench --coordinator h:1", "--coordinator needs --distributed"},
		{"serve --ctx 99999999", "allows at most 32768"},
		{"plan", "give one to eight"}, {"simulate", "Give --bench"},
		{"key new x --api-keys " + bad["junk"], "is the file complete?"}, {"key new x --api-keys " + bad["a directory"], "directory"},
		{"logits --tokens x --out " + bad["a directory"], "x"}, {"pull http://127.0.0.1:1/m.gguf --dir " + bad["junk"], "expected a directory"},
	} {
		_, err := command(t, strings.Fields(c.args)...)
		requireRefused(t, err, c.args, c.want)
	}
	if !metal.Available {
		_, err := command(t, "serve", "--backend", "metal")
		requireRefused(t, err, "serve --backend metal", "--backend cpu")
	}
	for _, level := range []string{"neon", "avx2"} { // one of them is of another processor
		if l, err := cpu.ParseLevel(level); err == nil && !slices.Contains(cpu.Levels(), l) {
			_, err := command(t, "serve", "--simd", level)
			requireRefused(t, err, "serve --simd "+level, "this host does not support "+level)
		}
	}
	_, _, err := logged(t, `{"text":`, "tokenize")
	requireRefused(t, err, "tokenize", "standard input", "expected")
}
