package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/groupplan"
	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
	"ringmaster/internal/launch"
	"ringmaster/node"
)

// newLaunch builds the command that starts all ranks of a group.
func newLaunch() *cobra.Command {
	o := &launch.Options{Lookup: os.LookupEnv, MostRanks: groupplan.MaxRanks}
	var check, noRestart bool
	var stable int
	cmd := &cobra.Command{
		Use:   "launch HOST... | --local N [-- FLAGS...]",
		Short: "Start the ranks of a group over ssh, or on this host, and restart those that die",
		Long: `Starts rank 0 on the first host, rank 1 on the second and so on over ssh, or with
--local all ranks on this host, and shows what they log. First it checks each host: the
program and its version, the model's file, the addresses. Flags after -- are for every
rank. Ctrl-C stops all ranks.

A rank that dies is restarted, rank 0 too: after 1 s, 2 s, 4 s and so on up to 60 s, from
the beginning again once it has run for a minute. That is a rank that is killed, whose
connection breaks, or that fails after it has run for more than 10 s or has been
restarted. A rank that fails at once when it is first started stops all others, and so
does rank 0 when it gives up with an error or ends in order. Another rank that ends in
order (ringmaster drain, SIGTERM) has left, and the others continue.

The environment variable SSH replaces the ssh command ("ssh -F other.conf").

Exit code: the highest of all ranks; 2: the command cannot work as it was given; 1: a
host is not ready.`,
		Example: `  ringmaster launch --local 3
  ringmaster launch --model /models/F.gguf host1 host2 -- --ctx 65536`,
		Annotations:       map[string]string{cli.PassedFlags: "flags of every rank go after --"},
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Hosts = args
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				o.Hosts, o.Flags = args[:at], args[at:]
			}
			o.Logs, o.Says, o.SSH = cmd.OutOrStdout(), cmd.ErrOrStderr(), launch.DefaultSSH(os.LookupEnv)
			o.Restart, o.Stable = !noRestart, time.Duration(stable)*time.Second
			return runLaunch(cmd, o, check)
		},
	}
	f := cmd.Flags()
	flags.Int(f, &o.Local, "local", 0, flags.Within(0, groupplan.MaxRanks), "start so many ranks on this host; 0: on the hosts")
	flags.Text(f, &o.Model, "model,m", "", "the model's `file`, under the same path on every host; default is the built-in model")
	flags.Text(f, &o.Program, "binary", "", "`file` of the program on every host; default is ringmaster, and with --local this program")
	flags.Text(f, &o.Key, "key-file", "", "`file` of the cluster's key, under the same path on every host")
	flags.Address(f, &o.Listen, "listen,l", "", "`address` where rank 0 serves HTTP; default is 127.0.0.1:8080 on its host")
	flags.Int(f, &o.Port, "coordinator-port", launch.DefaultPort, flags.Within(1, 65535), "the coordinator's port")
	flags.Text(f, &o.Coordinator, "coordinator", "", "the coordinator's `address`, without a port; default is a LAN address of the first host")
	flags.Text(f, &o.User, "user", "", "log in as this `user`")
	flags.OneOf(f, &o.Transport, "transport", "", node.TransportNames, "transport between the ranks: auto, tcp, rdma or mpi, as of serve; rdma first finds the RDMA devices of the hosts and the cables between them, shows them, and gives every host the device matrix")
	flags.Bool(f, &o.Switched, "switched", false, "with --transport rdma: all ports are on one switched network")
	flags.Bool(f, &noRestart, "no-restart", false, "a rank that is killed stops all others")
	flags.Int(f, &stable, "stable-after", 60, flags.From(1), "`seconds` after which a rank counts as stable, so that it is restarted after 1 s")
	flags.Bool(f, &check, "check", false, "only check the hosts, and print the commands that would be run")
	return cmd
}

// runLaunch starts a group, or only checks its hosts.
func runLaunch(cmd *cobra.Command, o *launch.Options, check bool) error {
	var err error
	switch {
	case o.Program != "":
	case o.Local > 0:
		if o.Program, err = launch.Here(); err != nil {
			return err
		}
	default:
		o.Program = "ringmaster"
	}
	if check {
		return stopped(cmd.Context(), o.Check(cmd.Context()))
	}
	err = o.Run(cmd.Context())
	if failed, ok := errors.AsType[*launch.RanksError](err); ok {
		return &verdict{failed.Code, failed.Error()}
	}
	return err
}
