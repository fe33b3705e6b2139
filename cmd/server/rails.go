package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ringmaster/distributed/rdma/matrix"
)

// newRails builds the commands that find the RDMA cables between hosts.
func newRails() *cobra.Command {
	rails := &cobra.Command{
		Use:   "rails",
		Short: "Find the RDMA devices of hosts and the cables between them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Nothing here belongs to a group or a model: their flags are not checked.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), os.LookupEnv)
		},
	}
	rails.AddCommand(newRailsHere(hostProbe), newRailsPlan())
	return rails
}

func newRailsHere(probe func() *railsProbe) *cobra.Command {
	var asJSON bool
	var name string
	cmd := &cobra.Command{
		Use:   "here",
		Short: "Tell what this host knows of its RDMA devices",
		Long: `Tells which RDMA devices this host has, what they are attached to, and what is
missing. It opens no device and changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := probe()
			if name != "" {
				p.name = name
			}
			report := p.report(cmd.Context())
			if !asJSON {
				_, err := io.WriteString(cmd.OutOrStdout(), report.text())
				return err
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return enc.Encode(report)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print for rails plan instead of for people")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the host in the map; empty is its own")
	return cmd
}

func newRailsPlan() *cobra.Command {
	var out string
	var switched bool
	cmd := &cobra.Command{
		Use:   "plan HOST0.json HOST1.json ...",
		Short: "Find the cables between hosts and write the device matrix",
		Long: `Reads what rails here --json has printed on each host, in the order of the ranks,
finds out which devices are the ends of one cable, prints who is joined to whom,
and writes the file for JACCL_IBV_DEVICES or MLX_IBV_DEVICES.`,
		Args: cobra.RangeArgs(2, 8),
		RunE: func(cmd *cobra.Command, args []string) error {
			reports := make([]railsReport, len(args))
			for i, path := range args {
				var err error
				if reports[i], err = readRails(path); err != nil {
					return err
				}
			}
			plan, err := planRails(reports, switched, matrix.RingWanted(os.LookupEnv))
			if _, werr := io.WriteString(cmd.OutOrStdout(), plan.Map); err == nil {
				err = werr
			}
			if err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(plan.Matrix.Format())
				return err
			}
			return os.WriteFile(out, plan.Matrix.Format(), 0o644)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`file` for the matrix; empty prints it after the map")
	cmd.Flags().BoolVar(&switched, "switched", false, "all ports are on one switched InfiniBand or RoCE network, so every port reaches every other")
	return cmd
}
