package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
)

// AllUsage makes mistakes in the flags and arguments of a command and its subcommands
// errors of usage, with the nearest name for an unknown one.
func AllUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if removed := removedOnLine(err); removed != nil {
			return usage.Wrap(removed)
		}
		return usage.Errorf("%w%s; see %s --help", flags.Explain(err), nearestFlag(c, err), c.CommandPath())
	})
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usage.Errorf("%w%s; see %s --help", err, nearestCommand(c, args), c.CommandPath())
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		AllUsage(c)
	}
}

// PassedFlags annotates a command that passes flags on to others, with what to do about a
// flag that is theirs.
const PassedFlags = "ringmaster-passed-flags"

// nearestFlag proposes a flag for an unknown one: that with the meaning which the name has
// in other servers, else the nearest name.
func nearestFlag(c *cobra.Command, err error) string {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	if short := missing.GetSpecifiedShortnames(); short != "" {
		name, _, _ := strings.Cut(short, "=")
		return foreignHint(c, name)
	}
	if hint := foreignHint(c, missing.GetSpecifiedName()); hint != "" {
		return hint
	}
	if hint := c.Annotations[PassedFlags]; hint != "" {
		return "; " + hint
	}
	var known []string
	note := func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	}
	c.LocalFlags().VisitAll(note)
	c.InheritedFlags().VisitAll(note)
	return settings.Nearest(missing.GetSpecifiedName(), "--%s", known)
}

// nearestCommand proposes a command for an unknown one.
func nearestCommand(c *cobra.Command, args []string) string {
	var known []string
	for _, s := range c.Commands() {
		if s.IsAvailableCommand() {
			known = append(known, s.Name())
		}
	}
	if len(args) == 0 {
		return ""
	}
	if hint := modelHint(c, args[0]); hint != "" || len(known) == 0 {
		return hint
	}
	return settings.Nearest(args[0], "%q", known)
}

// Strict makes cobra's own commands refuse meaningless arguments, because they would
// ignore them.
func Strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  ringmaster help serve"
			c.Args = func(_ *cobra.Command, args []string) error {
				_, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = errors.New("there is no command " + rest[0])
				}
				return err
			}
		case "completion":
			c.Example = "  ringmaster completion bash > ~/.local/share/bash-completion/completions/ringmaster"
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range c.Commands() {
				shell.Example = "  ringmaster completion " + shell.Name()
			}
		}
	}
}
