package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// commandNamed is a command of a tree of its own.
func commandNamed(t *testing.T, name string) *cobra.Command {
	c, _, err := newRoot().Find([]string{name})
	require.NoError(t, err)
	require.Equal(t, name, c.Name())
	return c
}

// TestSettingsAlike: the flags that ranks must have alike, as set at up, are those of a host
// that joins; one that differs there is an error, and nothing else is taken over.
func TestSettingsAlike(t *testing.T) {
	up := commandNamed(t, upName)
	require.NoError(t, up.ParseFlags([]string{"--activations", "8", "--override-kv", "a=int:1", "--override-kv", "b=int:2", "--cluster-encrypt", "--ctx", "100"}))
	given := settingsAlike(up.Flags())
	require.Equal(t, map[string][]string{"activations": {"8"}, "override-kv": {"a=int:1", "b=int:2"}, "cluster-encrypt": {"on"}}, given)

	join := commandNamed(t, joinName)
	given["threads"] = []string{"99"}
	require.NoError(t, takeSettings(join.Flags(), given))
	require.Equal(t, "8", join.Flags().Lookup("activations").Value.String())
	require.Equal(t, "[a=int:1,b=int:2]", join.Flags().Lookup("override-kv").Value.String())
	require.Equal(t, "on", join.Flags().Lookup("cluster-encrypt").Value.String())
	require.Equal(t, "0", join.Flags().Lookup("threads").Value.String())

	for flag, values := range map[string][]string{"activations": {"7"}, "override-kv": {"a"}} {
		require.ErrorContains(t, takeSettings(commandNamed(t, joinName).Flags(), map[string][]string{flag: values}), "the group's --"+flag)
	}
	join = commandNamed(t, joinName)
	require.NoError(t, join.ParseFlags([]string{"--activations", "15"}))
	require.ErrorContains(t, takeSettings(join.Flags(), given), "--activations is 15 here and 8 in the group")
	join = commandNamed(t, joinName)
	require.NoError(t, join.ParseFlags([]string{"--activations", "8"}))
	require.NoError(t, takeSettings(join.Flags(), given))
}

// TestGatherUsage: what up and join refuse before they begin.
func TestGatherUsage(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{upName, "--on-loss", "wait"}, "continues after a loss"},
		{[]string{upName, "--group", " x"}, "--group"},
		{[]string{upName, "--rank", "1"}, "--rank"},
		{[]string{joinName, "a", "b"}, "at most one"},
		{[]string{joinName, "--code", "hello"}, "expected a code such as"},
		{[]string{joinName, "--share", "all"}, "--share"},
	} {
		_, err := command(t, c.args...)
		requireRefused(t, err, c.says, c.says)
	}
}
