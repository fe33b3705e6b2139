package decodertest

import (
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
)

// Fuzz is a fuzz target. It changes bytes in the metadata and tensor table of the valid
// file of c, because these hold every number, type and shape. The file must be refused
// with an error, or load and run two steps, without a panic and without touching other
// memory. edits are 5 bytes each: an offset into that part of the file (u32, modulo its
// length), and the byte to put there.
func (a Architecture) Fuzz(f *testing.F, c synthetic.Config) {
	w, err := c.Writer()
	require.NoError(f, err)
	whole := gguftest.Bytes(f, w)
	file, err := gguf.Read("fuzz", whole)
	require.NoError(f, err)
	head := len(whole)
	for _, t := range file.Tensors() {
		head = min(head, int(uintptr(unsafe.Pointer(&t.Data[0]))-uintptr(unsafe.Pointer(&whole[0]))))
	}
	b, err := cpu.New(1)
	require.NoError(f, err)
	f.Cleanup(func() { _ = b.Close() })

	edit := func(offset int, value byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(offset)), value)
	}
	f.Add([]byte{})
	table := head - 64*len(file.Tensors()) // about where the tensor table begins; it comes last
	for at := 0; at < table; at += table / 16 {
		f.Add(edit(at, whole[at]+1))
	}
	for at := table; at < head; at += (head - table) / 32 {
		f.Add(append(edit(at, whole[at]^0x80), edit(at+1, 0)...))
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		if len(edits) > 5*64 {
			t.Skip("NOT APPLICABLE: a file of so many errors fails at the first")
		}
		data := append([]byte(nil), whole...)
		for ; len(edits) >= 5; edits = edits[5:] {
			data[int(binary.LittleEndian.Uint32(edits))%head] = edits[4]
		}
		file, err := gguf.Read("fuzz", data)
		if err != nil {
			return
		}
		m, err := arch.Open(file, b, decoder.OpenOptions{MaxTokens: 8, Context: 64})
		if err != nil {
			return
		}
		defer m.Close()
		vocab := m.Info().Vocab
		for pos := 0; pos < 16; pos += 8 {
			tokens := make([]int32, 8)
			for i := range tokens {
				tokens[i] = int32((pos + i) % vocab)
			}
			step := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: tokens, Want: model.WantLast}}}
			_, err := m.Forward(t.Context(), step)
			if misuse, ok := errors.AsType[*kernels.Misuse](err); ok {
				t.Fatalf("loaded, but a step is not what its ops take: %v", misuse)
			}
			if err != nil {
				return
			}
			m.Commit(step)
		}
	})
}
