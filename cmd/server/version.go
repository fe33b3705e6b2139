package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ringmaster/internal/cli"
	"ringmaster/internal/program"
)

// newVersion builds the command that prints the version, which some people type in place
// of --version.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     cli.VersionName,
		Short:   "Print the version of the program, and what it was built for",
		Example: `  ringmaster version`,
		Args:    cobra.NoArgs,
		// It works whatever the settings are.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "ringmaster version %s for %s\n", program.Version(), program.Platform())
			return err
		},
	}
}
