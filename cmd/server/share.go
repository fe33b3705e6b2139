package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/internal/fanout"
	"ringmaster/internal/flags"
	"ringmaster/internal/progress"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
)

// sharingFlags are the flags of a group that the command share has.
const sharingFlags = "distributed rank world-size coordinator data-port cluster-key-file cluster-encrypt connect-timeout peer-timeout transport " +
	"rdma-devices rdma-in-process"

// sharingName is the name of that command. It is about a group, so that --distributed
// may be left out.
const sharingName = "share"

// newSharing builds the command that copies a model to the other ranks of a group.
func newSharing(o *modelOptions) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   sharingName + " [FILE]",
		Short: "Copy a model from rank 0 to the other ranks, over the group's links",
		Long: `Copies the GGUF files of a model, all parts of a split one, from rank 0 to the other
ranks. Start it on every host with the flags of the group, as serve; FILE is given
on rank 0, --dir on the others, which print the paths of what they received.

Each rank sends on what it receives, so a file crosses each link once, however many
ranks there are. Blocks have checksums, and the SHA-256 of each file is compared
with that of rank 0. A copy that ended early resumes where it stopped when the same
commands are run again. Files that are there are compared, never overwritten.

Exit code 2: the command cannot work as it was given; 1: it failed, and the same
command may work later.`,
		Example: `  ringmaster share /models/F.gguf --world-size 3 --coordinator 10.0.0.1:9000 --rank 0
  ringmaster share --dir /models  --world-size 3 --coordinator 10.0.0.1:9000 --rank 1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("%d arguments: want at most one, the first file of the model", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.cluster.checkSharing(args); err != nil {
				return usage.Wrap(err)
			}
			if err := flags.CheckDir("dir", dir); err != nil {
				return err
			}
			var err error
			g := o.cluster.nodeGroup()
			cfg := g.Config(g.Hello())
			if o.cluster.Rank == 0 {
				err = sendModel(cmd, cfg, args[0])
			} else {
				err = receiveModel(cmd, cfg, dir)
			}
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("stopped; what has arrived is kept: run the same commands again to resume")
			}
			return err
		},
	}
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.cluster.register(group)
	for name := range strings.FieldsSeq(sharingFlags) {
		cmd.Flags().AddFlag(group.Lookup(name))
	}
	flags.Out(cmd.Flags(), &dir, "dir", ".", "`directory` for the files, on the ranks other than 0")
	return cmd
}

// checkSharing validates the flags of the command share.
func (o *clusterOptions) checkSharing(args []string) error {
	switch {
	case o.Size < 2:
		return fmt.Errorf("--world-size is %d; expected the number of ranks that get the model and rank 0, 2 to 8", o.Size)
	case o.Rank == 0 && len(args) == 0:
		return errors.New("rank 0 needs the FILE to copy")
	case o.Rank != 0 && len(args) == 1 && !o.mpiFollower():
		return fmt.Errorf("rank %d receives the files of rank 0: give it --dir instead of %s", o.Rank, args[0])
	}
	return nil
}

// sendModel copies the model at path from rank 0.
func sendModel(cmd *cobra.Command, cfg cluster.Config, path string) error {
	parts, err := gguf.Parts(path)
	if err != nil {
		return usage.Wrap(err)
	}
	f, err := arch.OpenFile(path) // a file that does not run is not worth the time
	if err != nil {
		return usage.Wrap(err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return fanout.Lead(cmd.Context(), cfg, parts, progress.New(cmd.ErrOrStderr()))
}

// receiveModel receives the model of rank 0 into dir and prints its paths.
func receiveModel(cmd *cobra.Command, cfg cluster.Config, dir string) error {
	paths, err := fanout.Follow(cmd.Context(), cfg, dir, progress.New(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	return printLines(cmd.OutOrStdout(), paths)
}
