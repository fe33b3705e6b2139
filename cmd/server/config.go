package main

import (
	"github.com/spf13/cobra"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
)

// newConfig builds the command that shows settings.
func newConfig() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   cli.ConfigName + " [COMMAND [FLAGS...]]",
		Short: "Show the settings of a command and where each comes from",
		Long: `Shows the value that each flag of a command would have, and where it comes from:
the command line, an environment variable, a line of the file, or the default. COMMAND
is serve if it is left out; its flags follow it. It checks the file, and no more.

What it prints is a file that can be read with --config: values that are not defaults,
and the defaults as comments. Keys are not shown. What mpirun gives a rank is not known
here.

A file is TOML. The keys before the first table are for the commands that run a model
(serve, bench, logits, tokenize, share), a table is for the command of its name:

  model = "/srv/models/F.gguf"
  ctx = 65536
  [serve]
  listen = "0.0.0.0:8080"
  allow-host = ["box", "box.example"]
  cache-timeout = "2h"

The first of these is taken: the command line, the environment, the command's table,
what is before the tables, the default. The values of a list are not joined.

Exit code 2: there is something wrong with a setting.`,
		Example: `  ringmaster config
  ringmaster config serve --listen 0.0.0.0:8080 --config ringmaster.toml
  ringmaster config --json bench`,
		Args: cobra.ArbitraryArgs,
		// The settings are those of the other command.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(cmd *cobra.Command, args []string) error {
			root, cluster := newTree()
			target, b, err := tree().Other(root, args, cmd.Flags().Lookup(settings.Flag))
			if err == nil && cli.RunsModel(target) {
				err = cluster.settle(target, b.Origins)
			}
			if err != nil {
				return usage.Wrap(err)
			}
			if asJSON {
				return b.PrintJSON(cmd.OutOrStdout(), target)
			}
			return b.PrintTOML(cmd.OutOrStdout(), target)
		},
	}
	flags.Bool(cmd.Flags(), &asJSON, "json", false, "print JSON: an object for each setting")
	cmd.Flags().SetInterspersed(false) // what follows COMMAND is for it
	return cmd
}
