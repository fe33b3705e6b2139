//go:build unix

// Command links runs a command beside a network of its own on this host: network
// namespaces for the ranks of a cluster, with links of a chosen speed. See
// scripts/bench-distributed.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/tests/cluster/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var hosts int
	var rate string
	var delay time.Duration
	c := &cobra.Command{
		Use:   "links [flags] -- COMMAND...",
		Short: "Run a command beside a network of hosts with slow links",
		Long: `Makes network namespaces, the hosts of ranks 0 to --hosts less 1, joined by a switch,
and runs COMMAND with $HOSTS, to which a rank is appended for the name of its
namespace (ip netns exec). Rank r has the address 10.77.0.(r+1). Needs root.`,
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			n, err := harness.NewNet(hosts)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, n.Close()) }()
			for r := range hosts {
				if rate != "" {
					if err := n.Slow(r, rate); err != nil {
						return err
					}
				}
				if delay > 0 && r > 0 { // so each message between two hosts of two is delayed once
					if err := n.Delay(r, delay); err != nil {
						return err
					}
				}
			}
			run := exec.CommandContext(cmd.Context(), args[0], args[1:]...)
			run.Env = append(os.Environ(), "HOSTS="+n.Prefix())
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
			run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
			run.WaitDelay = time.Minute
			return run.Run()
		},
	}
	c.Flags().IntVar(&hosts, "hosts", 2, "how many")
	c.Flags().StringVar(&rate, "rate", "", "of each host's link, both ways, such as 1gbit (tc's tbf)")
	c.Flags().DurationVar(&delay, "delay", 0, "of what hosts other than 0 send and receive")
	return c
}
