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
	return errors.Join(CheckBlock(f, nil), err)
}

// CheckBlock is nil if the model of a file can be opened with the block for multi-token
// prediction of drafts, nil for without one. It reads no more than CheckTensors.
func CheckBlock(f, drafts *gguf.File) error {
	t, err := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) {
		return Open(f, b, decoder.OpenOptions{Context: 2, MaxTokens: 1, DraftFile: drafts})
	})
	if err != nil {
		return err
	}
	return t.Close()
}

// HasBlock reports whether a model's file has a block for multi-token prediction of a kind
// that this program runs.
func HasBlock(f *gguf.File) bool {
	_, ok := decoder.FindBlock(f, 1)
	return ok
}
