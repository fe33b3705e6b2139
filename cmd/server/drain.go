package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/distributed/cluster"
	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
)

// newDrain builds the command that lets a rank leave a running group.
func newDrain() *cobra.Command {
	o := &clusterOptions{}
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "drain --rank N --coordinator HOST:PORT",
		Short: "Let a rank leave a group that runs, between two steps, without ending an answer",
		Long: `Asks the leader to continue without a rank. The leader first makes sure that the others
can: that they have room for the model and for the answers under way, and are enough for
--on-loss. Then the next epoch forms between two steps, and the process of the rank
ends with exit code 0. No answer ends; each pauses while the epoch forms. SIGTERM at the
rank does the same, without asking whether the others have room.

The request goes to the coordinator's port, with the cluster's key if there is one: who
may join the group may drain it, and no key of the API does.

Exit code 0: the rank has left; 1: refused, with the reason and nothing touched, or the
leader cannot be reached; 2: the command cannot work as it was given.`,
		Example: `  ringmaster drain --rank 2 --coordinator 10.0.0.1:32323 --cluster-key-file cluster.key`,
		Args:    cobra.NoArgs, PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkDrain(limit); err != nil {
				return usage.Wrap(err)
			}
			key, err := o.key()
			if err != nil {
				return usage.Wrap(err)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("--timeout %v is over", limit))
			defer cancel()
			name, err := cluster.Drain(ctx, cluster.Config{Coordinator: o.Coordinator, Key: key, Encrypt: o.Encrypt.TCP()}, o.Rank)
			var refused *cluster.DrainRefusedError
			switch {
			case errors.As(err, &refused):
				return fmt.Errorf("refused: %w", err)
			case err != nil:
				return stopped(cmd.Context(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s left the group; the other ranks continue\n", name)
			return err
		},
	}
	f := cmd.Flags()
	flags.Int(f, &o.Rank, "rank", 0, flags.Within(1, groupplan.MaxRanks-1), "the rank that is to leave; rank 0 leads the group and cannot leave it")
	flags.Address(f, &o.Coordinator, "coordinator", "", "`HOST:PORT` where rank 0 listens for the other ranks")
	flags.File(f, &o.keyFile, "cluster-key-file", "`file` with the secret that all ranks share")
	o.registerEncrypt(f)
	flags.Duration(f, &limit, "timeout", 2*time.Minute, flags.AnyDuration(), "how long to wait until the rank has left")
	return cmd
}

// checkDrain validates the flags of drain.
func (o *clusterOptions) checkDrain(limit time.Duration) error {
	switch {
	case o.Rank == 0:
		return fmt.Errorf("--rank is missing, the follower that is to leave, 1 or more: rank 0 leads the group and cannot leave it")
	case o.Coordinator == "":
		return fmt.Errorf("--coordinator HOST:PORT is missing, the address of rank 0")
	}
	return o.checkEncrypt()
}
