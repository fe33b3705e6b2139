package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ringmaster/internal/flags"
	"ringmaster/internal/progress"
	"ringmaster/internal/pull"
)

// newPull builds the command that fetches model files.
func newPull() *cobra.Command {
	o := hubOptions()
	cmd := &cobra.Command{
		Use:   "pull hf:OWNER/REPO[@REVISION][:QUANT] | https://HOST/FILE.gguf",
		Short: "Fetch a model from Hugging Face, a mirror or an address",
		Long: `Fetches the GGUF files of a model, all parts of a split one, and prints their
paths. Several ranges are fetched at once; size and SHA-256 are checked, and free
space before that. A pull that was stopped resumes where it was when the same
command is run again.

QUANT is the part of the names that tells the models of a repository apart, such
as Q4_K_M; without it, a repository with several is an error that lists them.
HF_TOKEN is the token for repositories that need one, HF_ENDPOINT the address of
a mirror.

Exit code 2: the command cannot work as it was given; 1: it failed, and the same
command may work later.`,
		Example: `  ringmaster pull hf:OWNER/REPO:Q4_K_M --dir /models
  ringmaster pull https://HOST/F-00001-of-00004.gguf`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: %d arguments: want one, such as hf:OWNER/REPO:Q4_K_M", pull.ErrInput, len(args))
			}
			return nil
		},
		PersistentPreRunE: flagsOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.CheckDir("dir", o.Dir); err != nil {
				return err
			}
			o.Report = progress.New(cmd.ErrOrStderr())
			paths, err := pull.Pull(cmd.Context(), args[0], o)
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("stopped; what was fetched is kept: run the same command again to resume")
			}
			if err != nil {
				return err
			}
			return printLines(cmd.OutOrStdout(), paths)
		},
	}
	flags.Out(cmd.Flags(), &o.Dir, "dir", ".", "`directory` for the files")
	flags.Int(cmd.Flags(), &o.Connections, "connections", pull.DefaultConnections, flags.Within(1, pull.MostConnections), "ranges of a file that are fetched at once")
	return cmd
}

// printLines writes each text on a line.
func printLines(w io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
