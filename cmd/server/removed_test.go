package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/cli"
	"ringmaster/internal/settings"
)

// TestRemovedFlags: a flag that was removed is an error that names what takes its place, on
// the command line, in the environment and in the file, for every command that runs a model.
func TestRemovedFlags(t *testing.T) {
	t.Setenv(cli.Variable(settings.Flag), settings.None)
	for name, instead := range cli.Removed {
		for _, c := range commandsOf(newRoot()) {
			require.False(t, cli.RunsModel(c) && c.Flags().Lookup(name) != nil, "%s has --%s", c.CommandPath(), name)
		}
		for _, args := range [][]string{{"serve", "--" + name}, {"--" + name + "=1"}, {"bench", "--ctx", "64", "--" + name, "1"}} {
			_, err := command(t, args...)
			requireRefused(t, err, name, "--"+name+" was removed: ", instead)
		}
		t.Run(name, func(t *testing.T) {
			for table, text := range map[string]string{"before the tables": "", "serve": "[serve]\n", "bench": "[bench]\n"} {
				path := written(t, text+name+" = 1\n")
				_, err := command(t, "serve", "--config", path)
				requireRefused(t, err, table, path+":", "--"+name+" was removed: ", instead)
			}
			t.Setenv(cli.Variable(name), "1")
			_, err := command(t, "bench")
			requireRefused(t, err, name, cli.Variable(name), "--"+name+" was removed: ", instead)
		})
	}
}

// TestFlagsOfServe: a flag more is one that every reader of the help has to pass. Two flags
// of one thing are one, what only a test sets is none, and a good default needs none.
func TestFlagsOfServe(t *testing.T) {
	serve, _, err := newRoot().Find([]string{"serve"})
	require.NoError(t, err)
	n := 0
	serve.Flags().AddFlagSet(serve.InheritedFlags())
	serve.Flags().VisitAll(func(*pflag.Flag) { n++ })
	require.LessOrEqual(t, n, 50)
}

// TestSettle: what flags with several values say, and what serve derives from others.
func TestSettle(t *testing.T) {
	m := &modelOptions{}
	m.cluster.WorkTimeout = time.Hour
	for _, c := range []struct {
		conns []int
		dir   string
		want  []any
	}{
		{nil, "", []any{0, 0, "", int64(0)}}, {[]int{9}, "/a", []any{9, 0, "/a", int64(0)}}, {[]int{9, 5}, "/a=1GiB", []any{9, 5, "/a", int64(1 << 30)}},
		{[]int{0, 5}, "/a=b/c", []any{0, 5, "/a=b/c", int64(0)}}, {nil, "a=b/c=2MiB", []any{0, 0, "a=b/c", int64(2 << 20)}},
	} {
		o := &serveOptions{conns: c.conns, cacheDir: c.dir}
		require.NoError(t, o.settle(m))
		require.Equal(t, c.want, []any{o.Connections, o.ConnectionsPerAddress, o.Disk.Dir, o.Disk.Budget})
		require.Equal(t, 12*time.Minute, o.Engine.StuckAfter)
	}
	for _, dir := range []string{"/a=", "/a=16G", "=1GiB", "a=b"} { // a slip in the size names no other directory
		require.Error(t, (&serveOptions{cacheDir: dir}).settle(m), dir)
	}
}

// TestOnLoss: what --on-loss says, and what it refuses.
func TestOnLoss(t *testing.T) {
	for text, want := range map[string]lossPolicy{
		"continue":       {given: true, policy: cluster.Continue},
		"continue:2":     {given: true, policy: cluster.Continue, least: 2},
		"continue:1,90s": {given: true, policy: cluster.Continue, least: 1, rejoin: 90 * time.Second},
		"wait":           {given: true, policy: cluster.Await},
	} {
		got, err := parseOnLoss(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := parseOnLoss(got.String())
		require.NoError(t, err, text)
		require.Equal(t, want, again, text)
	}
	for _, text := range []string{"continue:0", "continue:9", "continue:", "continue:1,", "continue:1,0s", "continue:1,-1s", "continue:1,x", "wait:1", "fail:1,1s"} {
		_, err := parseOnLoss(text)
		require.Error(t, err, text)
	}
}
