package cli

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
)

// Other finds the command of a tree that args name, serve if they name none, and sets its
// flags to the values that they would have. file is config's own flag of the file.
func (p Program) Other(root *cobra.Command, args []string, file *pflag.Flag) (*cobra.Command, *Bound, error) {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	target, rest, err := root.Find(args)
	if err != nil {
		return nil, nil, err
	}
	commands, _ := Settings(root)
	if commands[tableOf(target)] == nil || !target.HasParent() {
		return nil, nil, fmt.Errorf("%s is not a command with settings%s; see ringmaster --help", strings.Join(args, " "), nearestCommand(target, args))
	}
	if err := target.ParseFlags(rest); err != nil {
		return nil, nil, fmt.Errorf("%w%s; see %s --help", flags.Explain(err), nearestFlag(target, err), target.CommandPath())
	}
	if named := target.Flags().Lookup(settings.Flag); file.Changed && !named.Changed {
		if err := target.Flags().Set(settings.Flag, file.Value.String()); err != nil {
			return nil, nil, err
		}
	}
	b, err := p.Bind(target, os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range p.Unknown(os.Environ()) {
		slog.Warn(w)
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

// PrintTOML writes the settings as a file that gives the same ones. Defaults and keys are
// comments in it.
func (b *Bound) PrintTOML(w io.Writer, cmd *cobra.Command) error {
	var out strings.Builder
	file := "no file was read"
	if b.Path != "" {
		file = "file " + b.Path
	}
	table := strings.ReplaceAll(tableOf(cmd), " ", ".")
	fmt.Fprintf(&out, "# Settings of ringmaster %s and where they come from; %s.\n[%s]\n", tableOf(cmd), file, table)
	var failed error
	visitSettings(cmd, func(f *pflag.Flag) {
		from := b.Origins.Of(f)
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

// Setting is a setting in JSON.
type Setting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"` // null for a key and for an unset flag
	Secret bool   `json:"secret,omitempty"`
	Source string `json:"source"`         // default, file, environment or command line
	Where  string `json:"where"`          // the variable, or the file and the line
	File   string `json:"file,omitempty"` // only the path
	Line   int    `json:"line,omitempty"`
}

// PrintJSON writes the settings as JSON.
func (b *Bound) PrintJSON(w io.Writer, cmd *cobra.Command) error {
	report := struct {
		Command  string    `json:"command"`
		File     string    `json:"file"` // the file that was read; empty if none was
		Settings []Setting `json:"settings"`
	}{tableOf(cmd), b.Path, nil}
	visitSettings(cmd, func(f *pflag.Flag) {
		from := b.Origins.Of(f)
		s := Setting{Name: f.Name, Secret: settings.Secret(f), Source: from.Source.String(), Where: from.String(), Line: from.Line}
		if from.Source == settings.InFile {
			s.File = from.Name
		}
		if !s.Secret && !flags.Unset(f) {
			s.Value = settings.Value(f)
		}
		report.Settings = append(report.Settings, s)
	})
	return WriteJSON(w, report)
}

// WriteJSON writes a value as JSON for people and programs.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
