package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/rails"
	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
)

// newRails builds the commands that find the RDMA cables between hosts.
func newRails() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rails",
		Short: "Find the RDMA devices of hosts and the cables between them",
		Example: `  ringmaster rails here
  ringmaster rails plan host0.json host1.json`,
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: flagsOnly,
	}
	cmd.AddCommand(newRailsHere(), newRailsPlan())
	return cmd
}

// newRailsHere builds the command that reports the devices of this host.
func newRailsHere() *cobra.Command {
	var asJSON bool
	var name string
	cmd := &cobra.Command{
		Use:   "here",
		Short: "Show the RDMA devices of this host",
		Long: `Shows the RDMA devices of this host, what they are connected to, and any problems
with their cures. It opens no device and changes nothing.`,
		Example: `  ringmaster rails here
  ringmaster rails here --json > host0.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := rails.Here(cmd.Context(), name)
			if !asJSON {
				_, err := io.WriteString(cmd.OutOrStdout(), report.Text())
				return err
			}
			return cli.WriteJSON(cmd.OutOrStdout(), report)
		},
	}
	flags.Bool(cmd.Flags(), &asJSON, "json", false, "print JSON, the input of rails plan")
	flags.Text(cmd.Flags(), &name, "name", "", "`name` of the host in the map; default is its host name")
	return cmd
}

// newRailsPlan builds the command that finds the cables from the reports of all
// hosts.
func newRailsPlan() *cobra.Command {
	var out string
	var switched bool
	cmd := &cobra.Command{
		Use:   "plan HOST0.json HOST1.json ...",
		Short: "Find the cables between hosts and write the device matrix",
		Long: `Reads the output of rails here --json from each host, in the order of the ranks,
finds which devices are the two ends of a cable, prints the map of the cables, and
writes the device matrix for JACCL_IBV_DEVICES or MLX_IBV_DEVICES.`,
		Example: `  ringmaster rails plan host0.json host1.json --out matrix.json`,
		Args:    cobra.RangeArgs(2, 8),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.CheckOut("out", out); err != nil {
				return err
			}
			reports := make([]rails.Report, len(args))
			for i, path := range args {
				var err error
				if reports[i], err = rails.ReadReport(path); err != nil {
					return usage.Wrap(err)
				}
			}
			plan, err := rails.MakePlan(reports, switched, matrix.RingWanted(os.LookupEnv))
			_, werr := io.WriteString(cmd.OutOrStdout(), plan.Map)
			if err = errors.Join(err, werr); err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(plan.Matrix.Format())
				return err
			}
			return os.WriteFile(out, plan.Matrix.Format(), 0o644)
		},
	}
	flags.Out(cmd.Flags(), &out, "out", "", "`file` for the device matrix; default is to print it after the map")
	flags.Bool(cmd.Flags(), &switched, "switched", false, "all ports are on one switched InfiniBand or RoCE network, so every port reaches every other")
	return cmd
}
