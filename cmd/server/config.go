package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
)

// configName is the name of the command that shows settings.
const configName = "config"

// newConfig builds the command that shows settings.
func newConfig() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   configName + " [COMMAND [FLAGS...]]",
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
  session-timeout = "2h"

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
			target, b, err := boundCommand(args, cmd.Flags().Lookup(settings.Flag))
			if err != nil {
				return usage.Wrap(err)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), target, b)
			}
			return printTOML(cmd.OutOrStdout(), target, b)
		},
	}
	flags.Bool(cmd.Flags(), &asJSON, "json", false, "print JSON: an object for each setting")
	cmd.Flags().SetInterspersed(false) // what follows COMMAND is for it
	return cmd
}

// boundCommand builds the command that args name, serve if they name none, with the
// values that its flags would have. file is the flag of the file of config itself.
func boundCommand(args []string, file *pflag.Flag) (*cobra.Command, *bound, error) {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	root, cluster := newTree()
	target, rest, err := root.Find(args)
	if err != nil {
		return nil, nil, err
	}
	commands, _ := settingsOf(root)
	if commands[tableOf(target)] == nil || !target.HasParent() {
		return nil, nil, fmt.Errorf("%s is no command with settings%s; see ringmaster --help", strings.Join(args, " "), nearestCommand(target, args))
	}
	if err := target.ParseFlags(rest); err != nil {
		return nil, nil, fmt.Errorf("%w%s; see %s --help", flags.Explain(err), nearestFlag(target, err), target.CommandPath())
	}
	if named := target.Flags().Lookup(settings.Flag); file.Changed && !named.Changed {
		if err := target.Flags().Set(settings.Flag, file.Value.String()); err != nil {
			return nil, nil, err
		}
	}
	b, err := bind(target, os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range unknownVariables(os.Environ()) {
		slog.Warn(w)
	}
	if runsModel(target) {
		if err := cluster.settle(target, b.origins); err != nil {
			return nil, nil, err
		}
	}
	return target, b, nil
}

// visitSettings calls visit for each flag of a command that a file can set.
func visitSettings(cmd *cobra.Command, visit func(*pflag.Flag)) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if settings.Settable(f) {
			visit(f)
		}
	})
}

// printTOML writes the settings as a file that gives the same ones. Defaults and keys are
// comments in it.
func printTOML(w io.Writer, cmd *cobra.Command, b *bound) error {
	var out strings.Builder
	file := "no file was read"
	if b.path != "" {
		file = "file " + b.path
	}
	table := strings.ReplaceAll(tableOf(cmd), " ", ".")
	fmt.Fprintf(&out, "# Settings of ringmaster %s and where they come from; %s.\n[%s]\n", tableOf(cmd), file, table)
	var failed error
	visitSettings(cmd, func(f *pflag.Flag) {
		from := b.origins.Of(f)
		if settings.Secret(f) {
			if from.Source != settings.Default {
				fmt.Fprintf(&out, "# %s is set and not shown  # %v\n", f.Name, from)
			} else {
				fmt.Fprintf(&out, "# %s is not set\n", f.Name)
			}
			return
		}
		if flags.Unset(f) {
			fmt.Fprintf(&out, "# %s is not set\n", f.Name)
			return
		}
		line, err := toml.Marshal(map[string]any{f.Name: settings.Value(f)})
		if err != nil {
			failed = err
			return
		}
		if from.Source == settings.Default {
			out.WriteString("# ")
		}
		fmt.Fprintf(&out, "%s  # %v\n", strings.TrimSpace(string(line)), from)
	})
	if failed != nil {
		return failed
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// setting is one in JSON.
type setting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"` // null for a key and for what is not set
	Secret bool   `json:"secret,omitempty"`
	Source string `json:"source"`         // default, file, environment or command line
	Where  string `json:"where"`          // the variable, or the file and the line
	File   string `json:"file,omitempty"` // the path alone
	Line   int    `json:"line,omitempty"`
}

// printJSON writes the settings as JSON.
func printJSON(w io.Writer, cmd *cobra.Command, b *bound) error {
	report := struct {
		Command  string    `json:"command"`
		File     string    `json:"file"` // that was read; empty if none was
		Settings []setting `json:"settings"`
	}{tableOf(cmd), b.path, nil}
	visitSettings(cmd, func(f *pflag.Flag) {
		from := b.origins.Of(f)
		s := setting{Name: f.Name, Secret: settings.Secret(f), Source: from.Source.String(), Where: from.String(), Line: from.Line}
		if from.Source == settings.InFile {
			s.File = from.Name
		}
		if !s.Secret && !flags.Unset(f) {
			s.Value = settings.Value(f)
		}
		report.Settings = append(report.Settings, s)
	})
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
