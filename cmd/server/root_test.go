package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/settings"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestEnvironmentSetsFlags(t *testing.T) {
	o := &modelOptions{}
	s := &serveOptions{}
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.register(f)
	s.register(f)
	require.NoError(t, f.Parse([]string{"--threads", "3"}))
	require.NoError(t, settings.FromEnvironment(f, cli.Prefix, lookup(map[string]string{
		"RINGMASTER_THREADS": "5", "RINGMASTER_CTX": "77", "RINGMASTER_API_KEY": "a,b", "RINGMASTER_MODEL": "x.gguf",
	}), settings.Origins{}))
	require.Equal(t, 3, o.node.Threads, "the command line takes precedence")
	require.Equal(t, 77, o.node.Context)
	require.Equal(t, "x.gguf", o.node.File.Path)
	require.Equal(t, []string{"a,b"}, s.Keys.Given, "one variable, one key")

	err := settings.FromEnvironment(f, cli.Prefix, lookup(map[string]string{"RINGMASTER_MAX_BATCH": "many"}), settings.Origins{})
	require.ErrorContains(t, err, `environment variable RINGMASTER_MAX_BATCH="many"`)
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"logits --tokens x", `required flag(s) "out" not set`},
		{"logits --tokens /nonexistent --out x", "/nonexistent"},
		{"serve --reduce never", "expected sum or exact"},
		{"serve --max-active 0", "--max-active is"},
		{"serve --queue -1", "--queue is"},
		{"serve --cache-entries -1", "--cache-entries is"},
		{"serve --max-connections 100000000", "raise ulimit -n to 100000032"},
		{"serve --max-connections 5,-1", "--max-connections is"},
		{"serve --max-connections 1,2,3", "has 3 numbers"},
		{"serve --cache-dir x=much", "--cache-dir x=much"},
		{"serve --cache-dir =1GiB", "--cache-dir =1GiB"},
		{"bench --simd sse9", "--simd is"},
		{"bench --ctx -1", "--ctx is"},
		{"bench --max-batch -1", "--max-batch is"},
		{"bench --repeat 0", "--repeat is"},
		{"tokenize --model /nonexistent.gguf", "/nonexistent.gguf"},
		{"serve extra", "extra"},
		{"serve --log loud", "--log is"},
		{"serve --log debug,warn", "--log has the levels debug and warn"},
		{"serve --listen nowhere:port", "--listen is"},
		{"serve --api-keys /nonexistent/keys", "--api-keys: stat /nonexistent/keys"},
		{"serve --audit-log /nonexistent/log", "--audit-log: open /nonexistent/log"},
		{"serve --tls-cert c.pem", "needs --tls-key"},
		{"serve --tls-key k.pem", "needs --tls-cert"},
		{"serve --tls-cert /nonexistent/c.pem --tls-key k.pem", "/nonexistent/c.pem: no such file"},
	} {
		_, _, err := logged(t, "", strings.Fields(c.args)...)
		requireRefused(t, err, c.args, c.want)
	}
}

// TestEmptyGuards checks that an unset variable in a flag that restricts access
// or memory is an error and does not lift the restriction.
func TestEmptyGuards(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "--api-key", ""}, {"--api-key", " "}, {"--api-key", "k", "--api-key="}, {"--api-key", " k"}, {"--api-key", "secr\net"},
		{"serve", "--allow-host", ""}, {"--allow-host", "a,"}, {"--cors-origin", ""},
		{"serve", "--cluster-key-file", ""}, {"--cluster-key-file= "}, {"bench", "--cluster-key-file", ""}, {"--memory", ""},
		{"--listen="}, {"--listen", " "}, {"--tls-cert", "", "--tls-key", ""}, {"--tls-key="}, {"--api-keys", ""}, {"--audit-log", ""},
	} {
		// The missing file ends the command if the flag is accepted.
		_, err := command(t, append(args, "--model", "nothing.gguf")...)
		require.ErrorContains(t, err, "--", "%q", args)
		require.NotContains(t, err.Error(), "nothing.gguf", "%q", args)
		require.NotContains(t, err.Error(), "secr", "an error must not show a key")
	}
	for _, name := range []string{"RINGMASTER_API_KEY", "RINGMASTER_ALLOW_HOST", "RINGMASTER_CORS_ORIGIN",
		"RINGMASTER_API_KEYS", "RINGMASTER_AUDIT_LOG", "RINGMASTER_TLS_CERT", "RINGMASTER_TLS_KEY", "RINGMASTER_CLUSTER_KEY_FILE", "RINGMASTER_LISTEN", "RINGMASTER_MEMORY"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "")
			_, err := command(t, "--model", "nothing.gguf")
			require.ErrorContains(t, err, name)
		})
	}
}

// TestLogFormats: the log is text or JSON, from the level on that was asked for.
func TestLogFormats(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	for format, want := range map[string]string{"warn": `level=WARN msg="a line" rank=2`, "json,warn": `"level":"WARN","msg":"a line","rank":2}`} {
		var out bytes.Buffer
		require.NoError(t, cli.SetLogger(&out, strings.Split(format, ",")))
		slog.Info("not this one")
		slog.Warn("a line", "rank", 2)
		require.Contains(t, out.String(), want)
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
	}
}
