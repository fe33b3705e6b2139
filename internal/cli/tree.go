package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/settings"
)

// ConfigName is the name of the command that shows settings, which has none itself.
const ConfigName = "config"

// ReadsFile reports whether a command has settings: not those that write completions and
// manual pages.
func ReadsFile(cmd *cobra.Command) bool {
	return !cmd.Hidden && (!cmd.HasParent() || cmd.Parent().Name() != "completion")
}

// tableOf is the name of a command's table: its path below the root, whose own is serve.
func tableOf(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "serve"
	}
	_, below, _ := strings.Cut(cmd.CommandPath(), " ")
	return below
}

// RunsModel reports whether a command has the flags of a model or its group: those take
// what is before the first table of the file. Elsewhere a name such as --model or --rank
// is the command's own.
func RunsModel(cmd *cobra.Command) bool { return cmd.Flags().Lookup("world-size") != nil }

// Settings lists the flags that a file may set of all commands of a tree, and the
// commands that take what is before the first table.
func Settings(root *cobra.Command) (commands settings.Commands, shared []string) {
	commands = settings.Commands{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.HasParent() && c.RunE != nil && ReadsFile(c) && c.Name() != ConfigName && (!c.HasSubCommands() || RunsModel(c)) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.AddFlagSet(c.Flags())
			flags.AddFlagSet(c.InheritedFlags())
			commands[tableOf(c)] = flags
			if RunsModel(c) {
				shared = append(shared, tableOf(c))
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return commands, shared
}
