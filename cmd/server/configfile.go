package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
)

// prepare gives the flags of a command that are not on its command line their values,
// from the environment, then from the file; sets the logger by them; and logs which file
// was read. What is wrong with any of them is an error of usage.
func prepare(cmd *cobra.Command) (settings.Origins, error) {
	b, err := bind(cmd, os.LookupEnv)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	level, format := cmd.Flags().Lookup(logLevelFlag), cmd.Flags().Lookup(logFormatFlag)
	if level != nil && format != nil { // else the command stands alone, without the root's flags
		if err := setLogger(cmd.ErrOrStderr(), level.Value.String(), format.Value.String()); err != nil {
			return nil, usage.Wrap(err)
		}
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return nil, usage.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	b.log()
	for _, w := range unknownVariables(os.Environ()) {
		slog.Warn(w)
	}
	return b.origins, nil
}

// bound is what became of the flags of a command.
type bound struct {
	origins settings.Origins
	path    string // of the file that was read; empty if none was
	set     int    // flags that have their values from it
	secret  bool   // it has a key
}

// log says which file was read, if one was.
func (b *bound) log() {
	if b.path == "" {
		return
	}
	slog.Info("settings from a file", "file", b.path, "settings", b.set)
	if b.secret {
		warnIfOthersMay(b.path, 0o007, "file of settings with a key")
	}
}

// bind sets the flags of a command from the environment and the file, and refuses empty ones.
func bind(cmd *cobra.Command, lookup func(string) (string, bool)) (*bound, error) {
	b := &bound{origins: settings.Origins{}}
	if err := settings.FromEnvironment(cmd.Flags(), environmentPrefix, lookup, b.origins); err != nil {
		return nil, err
	}
	if err := refuseEmpty(cmd.Flags(), b.origins); err != nil {
		return nil, err
	}
	if err := refuseRemoved(cmd, lookup); err != nil {
		return nil, err
	}
	named := cmd.Flags().Lookup(settings.Flag)
	if named == nil || !readsFile(cmd) {
		return b, nil
	}
	path, text, err := settings.Find(named.Value.String(), settings.Places(lookup))
	if err != nil || path == "" {
		return b, err
	}
	// The values of all commands are tried on flags that nobody uses.
	commands, shared := settingsOf(newRoot())
	file, err := settings.Parse(path, text, commands, shared, removedFlag)
	if err != nil {
		return nil, err
	}
	b.path = path
	b.secret = file.HasSecret(commands)
	if b.set, err = file.Apply(tableOf(cmd), runsModel(cmd), cmd.Flags(), b.origins); err != nil {
		return nil, err
	}
	return b, refuseEmpty(cmd.Flags(), b.origins)
}

// readsFile reports whether a command has settings: not those that write completions and
// manual pages.
func readsFile(cmd *cobra.Command) bool {
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

// runsModel reports whether a command has the flags of a model or its group: those take
// what is before the first table of the file. Elsewhere a name such as --model or --rank
// is the command's own.
func runsModel(cmd *cobra.Command) bool { return cmd.Flags().Lookup("world-size") != nil }

// settingsOf lists the flags that a file may set of all commands of a tree, and the
// commands that take what is before the first table.
func settingsOf(root *cobra.Command) (commands settings.Commands, shared []string) {
	commands = settings.Commands{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.HasParent() && c.RunE != nil && readsFile(c) && c.Name() != configName && (!c.HasSubCommands() || runsModel(c)) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.AddFlagSet(c.Flags())
			flags.AddFlagSet(c.InheritedFlags())
			commands[tableOf(c)] = flags
			if runsModel(c) {
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
