package main

import (
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"ringmaster/internal/program"
	"ringmaster/internal/usage"
)

// newMan builds the command that writes the manual pages, for make install.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages of all commands",
		Hidden: true,
		Long: `Writes a manual page for each command into a directory that exists. The date in
them is that of SOURCE_DATE_EPOCH if it is set.`,
		Example:           `  ringmaster man share/man/man1`,
		Args:              cobra.ExactArgs(1),
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err != nil || !info.IsDir() {
				return usage.Errorf("%s is no directory; make it first", args[0])
			}
			date := time.Now().UTC()
			if s, ok := os.LookupEnv("SOURCE_DATE_EPOCH"); ok {
				n, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					return usage.Errorf("SOURCE_DATE_EPOCH is %q; expected seconds since 1970", s)
				}
				date = time.Unix(n, 0).UTC()
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same source gives the same pages
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Ringmaster " + program.Version(), Manual: "Ringmaster", Date: &date}, args[0])
		},
	}
}
