package arch

import (
	"errors"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/tokenizer"
)

// CheckTensors is nil if serve takes the model of a file: its vocabulary, its metadata, and
// the names, shapes and types of its tensors. It computes nothing and reads vectors only.
func CheckTensors(f *gguf.File) error {
	_, err := tokenizer.FromGGUF(f)
	t, opened := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) {
		return Open(f, b, decoder.OpenOptions{Context: 2, MaxTokens: 1})
	})
	if opened != nil {
		return errors.Join(opened, err)
	}
	return errors.Join(err, t.Close())
}
