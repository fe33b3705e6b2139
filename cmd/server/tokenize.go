package main

import (
	"github.com/spf13/cobra"

	"ringmaster/internal/flags"
	"ringmaster/model/tokenizer"
)

func newTokenize(o *modelOptions) *cobra.Command {
	var special bool
	cmd := &cobra.Command{
		Use:   "tokenize",
		Short: "Convert JSON lines of text into JSON lines of token ids",
		Long: `tokenize reads JSON lines {"text": "..."} from standard input and writes
{"ids": [...]} for each. Only the vocabulary of the file is used; a file without
tensors works too.`,
		Example: `  ringmaster tokenize --model F.gguf < texts.jsonl`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := o.node.File.OpenVocabulary()
			if err != nil {
				return err
			}
			defer f.Close()
			t, err := tokenizer.FromGGUF(f)
			if err != nil {
				return err
			}
			return tokenizer.EncodeLines(cmd.InOrStdin(), cmd.OutOrStdout(), func(text string) []int32 { return t.Encode(text, special) })
		},
	}
	flags.Bool(cmd.Flags(), &special, "special", true, "convert names of control tokens in the text, such as <｜User｜>, to their ids")
	return cmd
}
