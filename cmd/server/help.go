package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the most columns of a help text.
const helpWidth = 100

// flagGroups are the headings under which help lists the flags of commands that run a
// model, with the flags' names; others come under the command's own heading.
var flagGroups = []struct {
	title string
	names string
}{
	{"Model and memory", "model override-kv ctx memory overcommit check-weights max-batch sessions session-timeout share-cache"},
	{"Performance", "backend threads simd keep-wired prefill-chunk max-active queue key-weights"},
	{"Cluster", "distributed rank world-size coordinator cluster-key-file cluster-encrypt shares share wire reduce offer-memory verify-model " +
		"connect-timeout peer-timeout work-timeout transport rdma-devices rdma-in-process"},
}

// groupOf is the heading of a flag in the help of a command, "" for its own.
func groupOf(name string) string {
	for _, g := range flagGroups {
		for n := range strings.FieldsSeq(g.names) {
			if n == name {
				return g.title
			}
		}
	}
	return ""
}

// usageOf writes the part of a command's help below its description: how it is called,
// examples, commands, and its flags by groups, in lines of helpWidth.
func usageOf(c *cobra.Command) error {
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
	// Only commands that run a model have the flags of a group: elsewhere a name such as
	// --model is the command's own.
	runs := c.Flags().Lookup("world-size") != nil
	c.Flags().VisitAll(func(f *pflag.Flag) {
		set := own
		if g := groupOf(f.Name); g != "" && runs {
			if grouped[g] == nil {
				grouped[g] = pflag.NewFlagSet("", pflag.ContinueOnError)
			}
			set = grouped[g]
		}
		set.AddFlag(f)
	})
	title := "Flags"
	if runs {
		title = "Flags of " + c.Name()
		if !c.HasParent() || c.Name() == "serve" {
			title = "Serving"
		}
	}
	section := func(title string, set *pflag.FlagSet) {
		if set != nil && set.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsagesWrapped(helpWidth))
		}
	}
	section(title, own)
	for _, g := range flagGroups {
		section(g.title, grouped[g.title])
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help says more about a command.\n", c.CommandPath())
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}
