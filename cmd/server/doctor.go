package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/internal/cli"
	"ringmaster/internal/doctor"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
)

// newDoctor builds the command that examines hosts.
func newDoctor() *cobra.Command {
	o := &doctor.Options{}
	var asJSON, facts bool
	cmd := &cobra.Command{
		Use:   "doctor [HOST...]",
		Short: "Examine this host, or several over ssh, with evidence and cures",
		Long: `Examines this host, or the given ones over ssh, where the program must lie: the
processor's instruction sets, memory and its rate, the model's file and where it
lies, limits, clocks, network, ports, RDMA devices, GPUs that Vulkan shows, on a
Mac its switches; of several hosts also what must be the same on all. It changes
nothing.

Exit code 0: nothing worse than a note; 3: warnings; 4: errors; 2: the command
cannot work as it was given; 1: it failed.`,
		Example: `  ringmaster doctor --model /models/F.gguf
  ringmaster doctor --model /models/F.gguf --json host1 host2 host3`,
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, hosts []string) error {
			return stopped(cmd.Context(), examine(cmd.Context(), cmd.OutOrStdout(), o, hosts, asJSON, facts))
		},
	}
	f := cmd.Flags()
	flags.Text(f, &o.Model, "model,m", "", "GGUF `file` to examine (the first part of a split file)")
	flags.Bool(f, &o.Weights, "check-weights", false, "read the whole model and check that no weight is NaN or infinite")
	flags.Addresses(f, &o.Listen, "listen", "`address` that a server or a coordinator shall listen on; may be repeated")
	flags.Bool(f, &o.Quick, "quick", false, "do not measure the rate of the memory")
	flags.Bool(f, &asJSON, "json", false, "print facts and findings as JSON")
	flags.Text(f, &o.SSH, "ssh", doctor.DefaultSSH, "`command` that reaches other hosts")
	flags.Text(f, &o.Program, "program", "ringmaster", "the program's `path` on other hosts")
	flags.Duration(f, &o.Limit, "timeout", 2*time.Minute, flags.AnyDuration(), "longest time for a host; with --check-weights it reads the whole model")
	flags.Bool(f, &facts, "facts", false, "print the facts of this host only, for doctor on another one")
	if err := f.MarkHidden("facts"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// examine prints the report on the hosts, or on this one if none are named.
func examine(ctx context.Context, w io.Writer, o *doctor.Options, hosts []string, asJSON, facts bool) error {
	if err := o.Check(hosts); err != nil {
		return usage.Wrap(err)
	}
	if facts {
		if len(hosts) > 0 {
			return usage.Errorf("hosts need --ssh and --program, and no --facts")
		}
		return cli.WriteJSON(w, o.Facts(ctx))
	}
	report, err := o.Report(ctx, hosts)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.WriteJSON(w, report)
	} else {
		err = report.Write(w)
	}
	if err == nil && report.ExitCode() != 0 {
		return &verdict{report.ExitCode(), fmt.Sprintf("doctor: the worst finding is of severity %q", report.Worst())}
	}
	return err
}
