package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/settings"
)

// ConfigName is the name of the command that shows settings; it has no settings of its
// own.
const ConfigName = "config"

// VersionName is the name of the command that prints the version, whatever the settings
// are.
const VersionName = "version"

// ReadsFile reports whether a command has settings. Commands that write completions and
// manual pages, and the one that prints the version, do not.
func ReadsFile(cmd *cobra.Command) bool {
	return !cmd.Hidden && cmd.Name() != VersionName && (!cmd.HasParent() || cmd.Parent().Name() != "completion")
}

// tableOf returns the name of a command's table: its path below the root. The root's
// table is serve.
func tableOf(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "serve"
	}
	_, below, _ := strings.Cut(cmd.CommandPath(), " ")
	return below
}

// RunsModel reports whether a command has the flags of a model or its group. These
// commands use the part before the first table of the file. In others a name such as
// --model or --rank has its own meaning.
func RunsModel(cmd *cobra.Command) bool { return cmd.Flags().Lookup("data-port") != nil }

// Settings returns the flags of all commands of a tree that a file may set, and the
// commands that use the part before the first table.
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
