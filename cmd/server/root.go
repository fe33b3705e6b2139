package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/usage"
)

const about = `Ringmaster serves DeepSeek-style mixture-of-experts models from GGUF files over
an OpenAI-compatible API. Without --model it serves the small built-in model.

Every flag can also be set by an environment variable: RINGMASTER_ and the name
of the flag in capitals with _ for -, so --api-key is RINGMASTER_API_KEY. A flag
on the command line takes precedence.`

// newRoot builds the command tree. serve is the default command.
func newRoot() *cobra.Command {
	o := &modelOptions{}
	var level string
	serve := newServe(o)
	root := &cobra.Command{
		Use:           "ringmaster",
		Short:         "Expert-parallel inference server for DeepSeek-style models",
		Long:          about,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          serve.RunE,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := flagsOnly(cmd, nil); err != nil {
				return err
			}
			if err := refuseEmpty(cmd.Flags()); err != nil {
				return usage.Wrap(err)
			}
			if err := o.cluster.fromJACCL(cmd.Flags(), os.LookupEnv); err != nil {
				return usage.Wrap(err)
			}
			if err := o.cluster.fromMPI(cmd.Context(), cmd.Flags()); err != nil {
				return err
			}
			if err := o.cluster.check(); err != nil {
				return usage.Wrap(err)
			}
			return usage.Wrap(setLogger(cmd.ErrOrStderr(), level))
		},
	}
	root.PersistentFlags().StringVar(&level, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	ofModel := pflag.NewFlagSet("model", pflag.ContinueOnError)
	o.register(ofModel)
	for _, c := range []*cobra.Command{serve, newLogits(o), newTokenize(o), newBench(o)} {
		c.Flags().AddFlagSet(ofModel)
		root.AddCommand(c)
	}
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(newPull(), newRails(), newChat(chatStreams{os.Stdin, os.Stdout}), newDoctor(), newPlan(), newVerify(), newMan(), newKey())
	allUsage(root)
	root.SetUsageFunc(usageOf)
	return root
}

func setLogger(w io.Writer, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level is %q; expected debug, info, warn or error", level)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})))
	return nil
}

// version is the revision of the source, as recorded in the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+"
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return revision + dirty
}
