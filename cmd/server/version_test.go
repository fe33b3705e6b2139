package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/program"
)

// TestVersion: the command says what --version says, and for which system, whatever the
// settings are.
func TestVersion(t *testing.T) {
	t.Setenv("RINGMASTER_CONFIG", "/nonexistent.toml")
	t.Setenv("RINGMASTER_CTX", "many")
	out, err := command(t, "version")
	require.NoError(t, err)
	require.Equal(t, "ringmaster version "+program.Version()+" for "+program.Platform()+"\n", out)
	flag, err := command(t, "--version")
	require.NoError(t, err)
	require.Equal(t, "ringmaster version "+program.Version()+"\n", flag)
}

// TestCompletions: what the shells propose for flags of the real commands.
func TestCompletions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--share", ""}, "auto\nexperts\nall\n"},
		{[]string{"serve", "--backend", ""}, "auto\ncpu\nmetal\nvulkan\nmetal+cpu\nvulkan+cpu\n"},
		{[]string{"plan", "--preset", "v4"}, "v4-flash\nv4-pro\n"},
		{[]string{"serve", "--on-loss", ""}, "continue\nwait\nfail\n"},
		{[]string{"serve", "--log", "d"}, "debug\n"},
	} {
		out, _, err := logged(t, "", append([]string{"__complete"}, c.args...)...)
		require.NoError(t, err)
		require.Contains(t, out, c.want, "%q", c.args)
	}
}

// TestForeignHints: the flags of other servers that people try first.
func TestForeignHints(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--port", "8080"}, "use --listen ADDRESS:PORT"},
		{[]string{"--host", "0.0.0.0"}, "use --listen ADDRESS:PORT"},
		{[]string{"serve", "-ngl", "99"}, "use --backend metal"},
		{[]string{"chat", "-m", "x"}, "the server has the model"},
		{[]string{"doctor", "--port", "1"}, "--listen"},
		{[]string{"model.gguf"}, "--model model.gguf"},
		{[]string{"launch", "--ctx", "9", "a"}, "flags of every rank go after --"},
	} {
		_, err := command(t, c.args...)
		requireRefused(t, err, c.args[0], c.want)
	}
}
