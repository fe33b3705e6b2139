package tokenizer

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"ringmaster/internal/usage"
)

// EncodeLines answers each JSON value {"text": ...} of r with {"ids": ...}.
func EncodeLines(r io.Reader, w io.Writer, encode func(string) []int32) error {
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
