package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
)

// HelpWidth is the most columns of a help text.
const HelpWidth = 100

// Help writes the part of a command's help below its description: its usage, examples,
// commands, and its flags in lines of HelpWidth. Flags without a heading come first, then
// the others by headings in the given order.
func Help(c *cobra.Command, headings []string) error {
	var b strings.Builder
	if c.Runnable() {
		fmt.Fprintf(&b, "Usage:\n  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nCommands:\n")
		for _, s := range c.Commands() {
			if s.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-12s %s\n", s.Name(), s.Short)
			}
		}
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.TrimRight(c.Example, "\n"))
	}
	own, grouped := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]*pflag.FlagSet{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		set := own
		if h := flags.Heading(f); h != "" {
			if grouped[h] == nil {
				grouped[h] = pflag.NewFlagSet("", pflag.ContinueOnError)
			}
			set = grouped[h]
		}
		set.AddFlag(f)
	})
	title := "Flags"
	if len(grouped) > 0 {
		title = "Flags of " + c.Name()
		if !c.HasParent() || c.Name() == "serve" {
			title = "Serving"
		}
	}
	section := func(title string, set *pflag.FlagSet) {
		if set != nil && set.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsagesWrapped(HelpWidth))
		}
	}
	section(title, own)
	for _, h := range headings {
		section(h, grouped[h])
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help says more about a command.\n", c.CommandPath())
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}
