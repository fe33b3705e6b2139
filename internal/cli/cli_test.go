package cli_test

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// tree is a program with one command, say, and a counter of what it says.
func tree(said *int) *cobra.Command {
	root := &cobra.Command{Use: "demo", SilenceErrors: true, SilenceUsage: true}
	cli.Register(root.PersistentFlags())
	times := 0
	say := &cobra.Command{Use: "say", RunE: func(*cobra.Command, []string) error {
		*said = times
		return nil
	}}
	loud := false
	flags.Bool(say.Flags(), &loud, "loud", false, "say it loudly")
	flags.Under(say.Flags(), "Sound")
	flags.Int(say.Flags(), &times, "times", 1, flags.From(1), "how often")
	root.AddCommand(say)
	cli.AllUsage(root)
	root.SetUsageFunc(func(c *cobra.Command) error { return cli.Help(c, []string{"Sound"}) })
	return root
}

// TestExpand: -v is short for --log info, until flags end.
func TestExpand(t *testing.T) {
	require.Equal(t, []string{"serve", "--log", "info", "--", "-v"}, cli.Expand([]string{"serve", "-v", "--", "-v"}))
	require.Empty(t, cli.Expand(nil))
}

// TestProgram: a flag has its value from the environment unless it is on the command line,
// and a flag that does not exist is an error with the nearest one.
func TestProgram(t *testing.T) {
	t.Setenv(cli.Variable(settings.Flag), settings.None)
	t.Setenv(cli.Variable("times"), "3")
	run := func(args ...string) (said int, out string, err error) {
		root := tree(&said)
		root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
			_, err := cli.Program{Root: func() *cobra.Command { return tree(new(int)) }}.Prepare(cmd)
			return err
		}
		var text bytes.Buffer
		root.SetOut(&text)
		root.SetErr(&text)
		root.SetArgs(append([]string{"say"}, args...))
		err = root.ExecuteContext(t.Context())
		return said, text.String(), err
	}
	said, _, err := run()
	require.NoError(t, err)
	require.Equal(t, 3, said)
	said, _, err = run("--times", "5")
	require.NoError(t, err)
	require.Equal(t, 5, said)
	_, _, err = run("--tims", "5")
	require.ErrorContains(t, err, "did you mean --times?")
	_, out, err := run("--help")
	require.NoError(t, err)
	require.Regexp(t, `(?s)Flags of say:\n.*--times int.*\nSound:\n +--loud +say it loudly\n`, out)
}
