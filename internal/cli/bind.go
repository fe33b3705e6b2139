package cli

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/settings"
	"ringmaster/internal/trust"
	"ringmaster/internal/usage"
)

// Prepare sets the flags of a command that are not on its command line, from the
// environment, then from the file. It sets the logger accordingly and logs which file was
// read. A mistake in any of them is an error of usage.
func (p Program) Prepare(cmd *cobra.Command) (settings.Origins, error) {
	b, err := p.Bind(cmd, os.LookupEnv)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	if f := cmd.Flags().Lookup(logFlag); f != nil { // otherwise the command is used without the root's flags
		words := f.Value.(pflag.SliceValue).GetSlice()
		if !f.Changed && p.Terse != nil && p.Terse(cmd) {
			words = []string{"warn"}
		}
		if err := SetLogger(cmd.ErrOrStderr(), words); err != nil {
			return nil, usage.Wrap(err)
		}
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return nil, usage.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	b.log()
	for _, w := range p.Unknown(os.Environ()) {
		slog.Warn(w)
	}
	return b.Origins, nil
}

// Bound describes where the flags of a command got their values.
type Bound struct {
	Origins settings.Origins
	Path    string // the file that was read; empty if none was
	set     int    // number of flags that have their values from it
	secret  bool   // the file has a key
}

// log logs which file was read, if one was.
func (b *Bound) log() {
	if b.Path == "" {
		return
	}
	slog.Info("settings from a file", "file", b.Path, "settings", b.set)
	if b.secret {
		trust.WarnIfOthersMay(b.Path, 0o007, "file of settings with a key")
	}
}

// Bind sets the flags of a command from the environment and the file, and refuses empty
// guarded ones.
func (p Program) Bind(cmd *cobra.Command, lookup func(string) (string, bool)) (*Bound, error) {
	b := &Bound{Origins: settings.Origins{}}
	if err := settings.FromEnvironment(cmd.Flags(), Prefix, lookup, b.Origins); err != nil {
		return nil, err
	}
	if err := refuseEmpty(cmd.Flags(), b.Origins); err != nil {
		return nil, err
	}
	if err := refuseRemoved(cmd, lookup); err != nil {
		return nil, err
	}
	named := cmd.Flags().Lookup(settings.Flag)
	if named == nil || !ReadsFile(cmd) {
		return b, nil
	}
	path, text, err := settings.Find(named.Value.String(), settings.Places(lookup))
	if err != nil || path == "" {
		return b, err
	}
	// The values of all commands are tried on flags of a separate tree.
	commands, shared := Settings(p.Root())
	file, err := settings.Parse(path, text, commands, shared, RemovedFlag)
	if err != nil {
		return nil, err
	}
	b.Path = path
	b.secret = file.HasSecret(commands)
	if b.set, err = file.Apply(tableOf(cmd), RunsModel(cmd), cmd.Flags(), b.Origins); err != nil {
		return nil, err
	}
	return b, refuseEmpty(cmd.Flags(), b.Origins)
}
