package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/cli"
	"ringmaster/internal/program"
	"ringmaster/internal/safetext"
	"ringmaster/internal/settings"
	"ringmaster/internal/usage"
)

const about = `Ringmaster serves DeepSeek-style mixture-of-experts models from GGUF files over
an OpenAI-compatible API. Without --model it serves the small built-in model.

Every flag can also be set by an environment variable: RINGMASTER_ and the name
of the flag in capitals with _ for -, so --api-key is RINGMASTER_API_KEY; and in a
file, ringmaster.toml, under the flag's name in a table with the command's. A flag on
the command line takes precedence, then the environment, then the file.
'ringmaster config' shows what is in force and why.`

// newRoot builds the command tree. serve is the default command.
func newRoot() *cobra.Command {
	root, _ := newTree()
	return root
}

// The headings under which help lists the flags of commands that run a model.
const (
	headingModel       = "Model and memory"
	headingPerformance = "Performance"
	headingCluster     = "Cluster"
)

// headings are in the order of help, after the command's own flags.
var headings = []string{headingModel, headingPerformance, headingCluster}

// tree is what binds the flags of the commands.
func tree() cli.Program { return cli.Program{Root: newRoot, Terse: terse} }

// newTree builds the command tree, and the options of the group of its commands.
func newTree() (*cobra.Command, *clusterOptions) {
	o := &modelOptions{}
	serve := newServe(o)
	root := &cobra.Command{
		Use:           "ringmaster",
		Short:         "Expert-parallel inference server for DeepSeek-style models",
		Long:          about,
		Version:       program.Version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Example: `  ringmaster
  ringmaster serve --model /models/F.gguf --listen 0.0.0.0:8080 --api-keys keys
  ringmaster bench --model /models/F.gguf`,
		RunE: serve.RunE,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			origins, err := tree().Prepare(cmd)
			if err != nil {
				return err
			}
			if err := o.cluster.settle(cmd, origins); err != nil {
				return usage.Wrap(err)
			}
			if err := o.cluster.fromMPI(cmd.Context(), cmd.Flags()); err != nil {
				return err
			}
			if err := o.cluster.check(); err != nil {
				return usage.Wrap(err)
			}
			return o.fetch(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	root.SetOut(safetext.NewWriter(os.Stdout))
	root.SetErr(safetext.NewWriter(os.Stderr))
	cli.Register(root.PersistentFlags())
	ofModel := pflag.NewFlagSet("model", pflag.ContinueOnError)
	o.register(ofModel)
	for _, c := range []*cobra.Command{newUp(o, ofModel), newJoin(o, ofModel)} {
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{serve, newLogits(o), newTokenize(o), newBench(o)} {
		c.Flags().AddFlagSet(ofModel)
		root.AddCommand(c)
	}
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(newPull(), newSharing(o), newRails(), newChat(os.Stdin, os.Stdout), newDoctor(), newPlan(), newSimulate(), newVerify(), newDrain(), newMan(), newKey(), newConfig(), newVersion(), newLaunch())
	cli.Strict(root)
	cli.AllUsage(root)
	cli.Complete(root)
	root.SetUsageFunc(func(c *cobra.Command) error { return cli.Help(c, headings) })
	return root, &o.cluster
}

// settle takes what a launcher says of the group of a command that runs a model.
func (o *clusterOptions) settle(cmd *cobra.Command, origins settings.Origins) error {
	switch cmd.Name() {
	case sharingName:
		o.on = true
	case upName, joinName:
		return nil // what a launcher says is of another group
	}
	for _, name := range []string{"rank", "world-size", "coordinator"} {
		// A rank that served alone would answer, and the others would wait for it.
		if f := cmd.Flags().Lookup(name); !o.on && f != nil && origins.Of(f).Source == settings.CommandLine {
			return fmt.Errorf("--%s needs --distributed, with which every rank of a group is started", name)
		}
	}
	return o.fromJACCL(cmd.Flags(), os.LookupEnv, origins)
}

// fromJACCL takes what the environment of JACCL and MLX says of a group.
func (o *clusterOptions) fromJACCL(set *pflag.FlagSet, lookup func(string) (string, bool), origins settings.Origins) error {
	if !o.on {
		return nil
	}
	return cli.FromJACCL(set, lookup, origins)
}
