package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
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
			f, err := o.openVocabulary()
			if err != nil {
				return err
			}
			defer f.Close()
			t, err := tokenizer.FromGGUF(f)
			if err != nil {
				return err
			}
			return tokenizeLines(cmd.InOrStdin(), cmd.OutOrStdout(), func(text string) []int32 { return t.Encode(text, special) })
		},
	}
	flags.Bool(cmd.Flags(), &special, "special", true, "convert names of control tokens in the text, such as <｜User｜>, to their ids")
	return cmd
}

// tokenizeLines answers each JSON value {"text": ...} of r with {"ids": ...}.
func tokenizeLines(r io.Reader, w io.Writer, encode func(string) []int32) error {
	in := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	out := bufio.NewWriterSize(w, 1<<16)
	enc := json.NewEncoder(out)
	for n := 1; ; n++ {
		var line struct {
			Text *string `json:"text"`
		}
		err := in.Decode(&line)
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err == nil && line.Text == nil {
			err = errors.New(`field "text" is missing`)
		}
		if err != nil {
			return errors.Join(usage.Errorf("standard input, value %d: %w; expected {\"text\": \"...\"}", n, err), out.Flush())
		}
		ids := encode(*line.Text)
		if ids == nil {
			ids = []int32{}
		}
		if err := enc.Encode(struct {
			IDs []int32 `json:"ids"`
		}{ids}); err != nil {
			return err
		}
	}
}
