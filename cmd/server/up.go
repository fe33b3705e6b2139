package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/gather"
	"ringmaster/internal/server"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// The names of the commands that make a group without addresses.
const (
	upName   = "up"
	joinName = "join"
)

// notOfUp are the flags of a model's command that up and join decide themselves.
const notOfUp = "distributed rank world-size cluster-key-file transport rdma-devices rdma-in-process connect-timeout"

// alike are the flags that all ranks must have alike: up gives those that are set to the hosts
// that join.
const alike = "activations backend " + gather.EncryptSetting + " override-kv peer-timeout simd verify-model"

// newUp builds the command that leads a group which others join.
func newUp(m *modelOptions, ofModel *pflag.FlagSet) *cobra.Command {
	o := &serveOptions{}
	var group, listen string
	cmd := &cobra.Command{
		Use:   upName,
		Short: "Serve a model on a group of hosts that join without addresses",
		Long: `Serves a model as serve does, as rank 0 of a group that other hosts join at any time with
'ringmaster join', up to seven. It prints the line to run there, with a short code, and who
is there. The model runs as soon as the hosts that are there have room for it.

Hosts find the group by multicast DNS, or are given the name of this one. A host that has
joined returns without the code, with the rank that it had. The code changes after ten wrong
ones, and at each start. The group's key and its hosts are kept in ringmaster/groups of the
user's cache directory.

The ranks use TCP; 'ringmaster serve --distributed' is for groups over RDMA or MPI.`,
		Example: `  ringmaster up
  ringmaster up --model /models/F.gguf --listen 0.0.0.0:8080 --api-keys keys`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var node0 atomic.Pointer[node.Node]
			dir, err := gather.StateDir()
			if err != nil {
				return err
			}
			name, err := groupName(group)
			if err != nil {
				return usage.Wrap(err)
			}
			c := &m.cluster
			if c.onLoss.given && c.onLoss.policy != cluster.Continue {
				return usage.Errorf("--on-loss %v: a group that hosts join at any time continues after a loss", c.onLoss)
			}
			c.Coordinator = cmp.Or(c.Coordinator, gather.DefaultCoordinator)
			if err := o.settle(m); err != nil {
				return usage.Wrap(err)
			}
			host, err := gather.Lead(cmd.Context(), gather.LeadOptions{
				Name: name, Dir: dir, Listen: listen, Coordinator: c.Coordinator, Encrypt: c.Encrypt,
				Settings: settingsAlike(cmd.Flags()), Model: m.node.File.Path, Out: cmd.OutOrStdout(),
				Ranks: func() []cluster.RankStatus {
					if n := node0.Load(); n != nil && n.Cluster() != nil {
						return n.Cluster().Status().Ranks
					}
					return nil
				},
			})
			if err != nil {
				return err
			}
			defer host.Close()
			if err := c.gathered(0, groupplan.MaxRanks, host.KeyFile); err != nil {
				return err
			}
			n := m.options()
			n.Plans = cmd.ErrOrStderr()
			if greets(cmd) {
				n.Plans, o.Greeting = io.Discard, cmd.ErrOrStderr()
			}
			o.Started = node0.Store
			return server.Run(cmd.Context(), o.Options, n)
		},
	}
	o.register(cmd.Flags())
	flags.Text(cmd.Flags(), &group, "group", "", "`name` of the group, by which hosts tell it from others; default is that of this host")
	flags.Address(cmd.Flags(), &listen, "join-listen", fmt.Sprintf(":%d", gather.DefaultPort), "`address` on which hosts join, beside the coordinator's")
	addFlags(cmd.Flags(), ofModel, notOfUp)
	return cmd
}

// addFlags adds the flags of a set except some.
func addFlags(to, from *pflag.FlagSet, except string) {
	without := map[string]bool{}
	for name := range strings.FieldsSeq(except) {
		without[name] = true
	}
	from.VisitAll(func(f *pflag.Flag) {
		if !without[f.Name] {
			to.AddFlag(f)
		}
	})
}

// groupName is the name of a group that this host leads.
func groupName(given string) (string, error) {
	if given != "" {
		if len(given) > 64 || strings.TrimSpace(given) != given {
			return "", fmt.Errorf("--group %q: expected a name of at most 64 bytes", given)
		}
		return given, nil
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "", fmt.Errorf("this host has no name (%v): name the group with --group", err)
	}
	return name, nil
}

// settingsAlike are the values of the flags that all ranks must have alike, of those that
// are set.
func settingsAlike(f *pflag.FlagSet) map[string][]string {
	out := map[string][]string{}
	for name := range strings.FieldsSeq(alike) {
		flag := f.Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			out[name] = list.GetSlice()
		} else {
			out[name] = []string{flag.Value.String()}
		}
	}
	return out
}

// gathered makes the options those of a rank of a group that hosts join at any time.
func (o *clusterOptions) gathered(rank, size int, keyFile string) error {
	o.on, o.serves, o.Open = true, true, true
	o.Rank, o.Size, o.keyFile, o.Transport = rank, size, keyFile, node.TCP
	return usage.Wrap(o.check())
}
