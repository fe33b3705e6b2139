package decodertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/kernels/cpu"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
)

// Keys is metadata with changes to it, nil for a key to be deleted. The keys of base and
// change are those of an architecture, without its name.
func Keys(arch string, base, change map[string]any) map[string]any {
	kv := map[string]any{"general.architecture": arch}
	for _, keys := range []map[string]any{base, change} {
		for k, v := range keys {
			if kv[arch+"."+k] = v; v == nil {
				delete(kv, arch+"."+k)
			}
		}
	}
	return kv
}

// Tensor is a tensor in a file of Header.
type Tensor struct {
	name  string
	kind  gguf.Type
	shape []int64
}

// Zeros is a tensor that reads as zeros.
func Zeros(name string, t gguf.Type, shape ...int64) Tensor { return Tensor{name, t, shape} }

// Header is a file named "test file" with metadata and tensors.
func Header(t testing.TB, kv map[string]any, tensors ...Tensor) *gguf.File {
	w := gguf.NewWriter()
	for k, v := range kv {
		require.NoError(t, w.Put(k, v))
	}
	for _, x := range tensors {
		require.NoError(t, w.Add(x.name, x.kind, x.shape, nil))
	}
	return gguftest.Open(t, "test file", w)
}

// OpenFails opens a file that the architecture must refuse, with all of the texts in the
// error, which it returns.
func (a Architecture) OpenFails(t *testing.T, f *gguf.File, texts ...string) error {
	err := a.tryOpen(t, f)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
	return err
}

// tryOpen opens and closes a file and returns the error.
func (a Architecture) tryOpen(t *testing.T, f *gguf.File) error {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	m, err := arch.Open(f, b, decoder.OpenOptions{MaxTokens: 8})
	if err == nil {
		require.NoError(t, m.Close())
	}
	return err
}

// Refuses checks that read refuses the metadata of keys with each change, with its text
// and the name of the file in the error.
func Refuses[C any](t *testing.T, read func(*gguf.File) (C, error), keys func(change map[string]any) map[string]any, changes map[string]map[string]any) {
	for text, change := range changes {
		_, err := read(Header(t, keys(change)))
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "test file")
	}
}
