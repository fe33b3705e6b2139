package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
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
			origins, err := prepare(cmd)
			if err != nil {
				return err
			}
			if err := o.cluster.settle(cmd, origins); err != nil {
				return usage.Wrap(err)
			}
			if err := o.cluster.fromMPI(cmd.Context(), cmd.Flags()); err != nil {
				return err
			}
			return usage.Wrap(o.cluster.check())
		},
	}
	root.SetOut(safetext.NewWriter(os.Stdout))
	root.SetErr(safetext.NewWriter(os.Stderr))
	f, level, format, file := root.PersistentFlags(), "", "", ""
	flags.Parsed(f, &level, logLevelFlag, "info", "debug, info, warn or error", func(s string) error { return new(slog.Level).UnmarshalText([]byte(s)) }, "minimum level of log messages: debug, info, warn or error")
	flags.OneOf(f, &format, logFormatFlag, "text", []string{"text", "json"}, "form of log messages: text, or json, one object a line")
	flags.File(f, &file, settings.Flag, "`file` of settings; default is the first of ~/.config/ringmaster/ringmaster.toml and "+settings.SystemPath+" that exists; "+settings.None+" reads none")
	ofModel := pflag.NewFlagSet("model", pflag.ContinueOnError)
	o.register(ofModel)
	for _, c := range []*cobra.Command{serve, newLogits(o), newTokenize(o), newBench(o)} {
		c.Flags().AddFlagSet(ofModel)
		root.AddCommand(c)
	}
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(newPull(), newSharing(o), newRails(), newChat(chatStreams{os.Stdin, os.Stdout}), newDoctor(), newPlan(), newSimulate(), newVerify(), newDrain(), newMan(), newKey(), newConfig())
	strict(root)
	allUsage(root)
	root.SetUsageFunc(usageOf)
	return root, &o.cluster
}

// Names of the flags of every command that say how it logs.
const (
	logLevelFlag  = "log-level"
	logFormatFlag = "log-format"
)

func setLogger(w io.Writer, level, format string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level is %q; expected debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		slog.SetDefault(slog.New(slog.NewTextHandler(w, options)))
	case "json":
		slog.SetDefault(slog.New(slog.NewJSONHandler(w, options)))
	default:
		return fmt.Errorf("--log-format is %q; expected text or json", format)
	}
	return nil
}
