package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/settings"
	"ringmaster/internal/testenv"
)

// effective are the settings that config prints as JSON.
func effective(t *testing.T, args ...string) map[string]cli.Setting {
	t.Helper()
	out, err := command(t, append([]string{"config", "--json"}, args...)...)
	require.NoError(t, err)
	report := testenv.FromJSON[struct{ Settings []cli.Setting }](t, out)
	by := map[string]cli.Setting{}
	for _, s := range report.Settings {
		by[s.Name] = s
	}
	return by
}

// TestConfigShowsOrigins: values with their places, by precedence, for the command that
// is asked about.
func TestConfigShowsOrigins(t *testing.T) {
	path := written(t, "ctx = 11\nthreads = 1\nmax-batch = 5\n[serve]\nqueue = 3\nthreads = 2\napi-key = \"hunter2hunter2\"\n[bench]\nctx = 12\n[chat]\nurl = \"http://me:hunter2@box/\"\n")
	t.Setenv("RINGMASTER_MAX_BATCH", "6")
	t.Setenv("RINGMASTER_CONFIG", path)
	serve := effective(t, "serve", "--cache-entries", "4")
	for name, want := range map[string]cli.Setting{
		"ctx":           {Value: 11., Source: "file", Where: path + ":1", File: path, Line: 1},
		"threads":       {Value: 2., Source: "file", Where: path + ":6", File: path, Line: 6},
		"max-batch":     {Value: 6., Source: "environment", Where: "environment RINGMASTER_MAX_BATCH"},
		"cache-entries": {Value: 4., Source: "command line", Where: "command line"},
		"max-active":    {Value: 8., Source: "default", Where: "default"},
		"api-key":       {Secret: true, Source: "file", Where: path + ":7", File: path, Line: 7},
	} {
		want.Name = name
		require.Equal(t, want, serve[name])
	}
	require.NotContains(t, serve, settings.Flag)
	require.Equal(t, []any{"error"}, serve["log"].Value)
	require.Equal(t, 12., effective(t, "bench")["ctx"].Value)
	require.NotContains(t, effective(t, "chat"), "ctx")
	require.Equal(t, "default", effective(t, "--config", settings.None)["ctx"].Source)
	for _, c := range []string{"serve", "chat"} {
		out, err := command(t, "config", c)
		require.NoError(t, err)
		require.NotContains(t, out, "hunter2")
	}
}

// TestConfigOutputIsAFile: what config prints for any command, read as a file, gives the
// same values.
func TestConfigOutputIsAFile(t *testing.T) {
	commands, _ := cli.Settings(newRoot())
	require.Contains(t, commands, "key new")
	require.NotContains(t, commands, "rails")
	for name := range commands {
		path := strings.Fields(name)
		out, err := command(t, append([]string{"config"}, path...)...)
		require.NoError(t, err, name)
		// Defaults are comments; some are no values (an empty --listen), so only these
		// whole lines are made settings.
		all := regexp.MustCompile(`(?m)^# ([a-z-]+ = (?:\d+|'[^']+'|true|false)  # default)$`).ReplaceAllString(out, "$1")
		before, after := effective(t, path...), effective(t, append(path, "--config", written(t, all))...)
		fromFile := 0
		for flag, s := range before {
			require.Equal(t, s.Value, after[flag].Value, "%s --%s", name, flag)
			if after[flag].Source == "file" {
				fromFile++
			}
		}
		require.Positive(t, fromFile, name)
	}
}

// TestFileSetsFlags: the file's values are those that a command works with, and a mistake
// in any table ends every command with exit code 2.
func TestFileSetsFlags(t *testing.T) {
	for text, want := range map[string]string{
		"ctx = -1":                 "expected a whole number from 0",
		"[serve]\nmax-active = 0":  "expected a whole number from 1",
		"[serve]\ntls-key = 'x'":   "needs --tls-cert",
		"log = 'loud'":             "expected debug, info, warn, error or json",
		"[bench]\nrepeat = 'many'": ":2: repeat is a string; expected a whole number",
		"[serve]\nqeue = 3":        `:2: there is no setting "qeue" in [serve]; did you mean "queue"?`,
		"[serve]\napi-key = ''":    ":2: api-key is empty; leave it out",
		"[serve]\napi-key = []":    ":2: api-key is empty; leave it out",
		"cluster-key-file = ' '":   ":1: cluster-key-file is empty; leave it out",
		"[serve]\nlisten = ''":     ":2: listen: ",
		"rank = 9\ndistributed = true\nworld-size = 2\ncoordinator = '127.0.0.1:1'": "rank",
	} {
		_, err := command(t, "--config", written(t, text))
		requireRefused(t, err, text, want)
	}
	bad := written(t, "[serve]\nqeue = 3")
	for _, args := range [][]string{{"chat", "x"}, {"drain"}, {"rails", "here"}, {"key", "new", "a"}, {"pull", "x"}, {"doctor"}, {"config"}, {"config", "bench"}} {
		_, err := command(t, append(args, "--config", bad)...)
		if args[0] == "config" {
			_, err = command(t, append([]string{"config", "--config", bad}, args[1:]...)...)
		}
		requireRefused(t, err, args[0], `did you mean "queue"?`)
	}
	for _, args := range []string{"config nothing", "config rails", "config man", "config config", "config serve --no-such-flag", "config --config nothing.toml"} {
		_, err := command(t, strings.Fields(args)...)
		requireRefused(t, err, args)
	}
}

// alone returns the status of a model on this rank alone.
func TestFileBelowLaunchers(t *testing.T) {
	path := written(t, "distributed = true\nrank = 0\nworld-size = 3\ncoordinator = \"10.0.0.1:1\"\n")
	require.Equal(t, 0., effective(t, "--config", path)["rank"].Value)
	t.Setenv("MLX_RANK", "2")
	t.Setenv("MLX_WORLD_SIZE", "4")
	got := effective(t, "--config", path)
	require.Equal(t, cli.Setting{Name: "rank", Value: 2., Source: "environment", Where: "environment MLX_RANK"}, got["rank"])
	require.Equal(t, 4., got["world-size"].Value)
	require.Equal(t, "10.0.0.1:1", got["coordinator"].Value)
	t.Setenv("RINGMASTER_RANK", "1")
	require.Equal(t, "environment RINGMASTER_RANK", effective(t, "--config", path)["rank"].Where)
}

// TestFileIsLogged: the file that was read is in the log of every command, and so is that
// others can read a key in it; completions and manual pages read none.
func TestFileIsLogged(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	dir := filepath.Join(home, "ringmaster")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "ringmaster.toml")
	run := func(args ...string) string {
		_, log, err := logged(t, "", args...)
		require.NoError(t, err)
		return log
	}
	require.Empty(t, run("rails", "here"))
	require.NoError(t, os.WriteFile(path, []byte("[chat]\napi-key = \"hunter2\"\n[rails.here]\njson = true\n"), 0o644))
	for _, args := range [][]string{{"rails", "here"}, {"rails", "here", "--log", "json"}} {
		log := run(args...)
		require.Contains(t, log, path)
		require.Contains(t, log, "settings from a file")
		require.Contains(t, log, "file of settings with a key")
		require.NotContains(t, log, "hunter2")
	}
	require.NoError(t, os.Chmod(path, 0o600))
	require.NotContains(t, run("rails", "here"), "with a key")
	require.Empty(t, run("rails", "here", "--config", "none"))
	require.NoError(t, os.WriteFile(path, []byte("not TOML"), 0o600))
	require.Empty(t, run("completion", "bash"))
	require.Empty(t, run("man", t.TempDir()))
}

// TestSecretsAreMarked: a flag that takes a key is one whose value is never shown; those
// that take the name of a file, a limit or a number are not.
func TestSecretsAreMarked(t *testing.T) {
	word := regexp.MustCompile(`key|token|secret|password|^code$`)
	text := regexp.MustCompile(`^string`)
	commands, _ := cli.Settings(newRoot())
	marked := 0
	for name, flags := range commands {
		flags.VisitAll(func(f *pflag.Flag) {
			harmless := strings.Contains(f.Usage, "file`") || strings.Contains(f.Usage, "`limit`") || !text.MatchString(f.Value.Type())
			require.Equal(t, word.MatchString(f.Name) && !harmless, settings.Secret(f), "%s --%s", name, f.Name)
			if settings.Secret(f) {
				marked++
			}
		})
	}
	require.Equal(t, 6, marked)
}

// TestPackagedSettings: the sample is right as it is, and with everything in it in force.
func TestPackagedSettings(t *testing.T) {
	text := testenv.ReadFile(t, "../../packaging/ringmaster.toml")
	commands, shared := cli.Settings(newRoot())
	for _, text := range [][]byte{text, regexp.MustCompile(`(?m)^#([a-z-]+ = )`).ReplaceAll(text, []byte("$1"))} {
		_, err := settings.Parse("ringmaster.toml", text, commands, shared, cli.RemovedFlag)
		require.NoError(t, err)
	}
}
