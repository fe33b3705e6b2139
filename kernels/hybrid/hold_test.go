package hybrid_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/hybrid"
	"ringmaster/kernels/reference"
)

// holder is a GPU that keeps what it is told to hold.
type holder struct {
	kernels.Backend
	spans []kernels.Span
}

func (h *holder) Hold(used func() ([]kernels.Span, error)) (err error) {
	h.spans, err = used()
	return err
}

// TestHold: the GPU gets no weights of routed experts, which the CPU reads from the file.
func TestHold(t *testing.T) {
	g := &holder{Backend: reference.New()}
	b := hybrid.New(g, reference.New())
	defer func() { require.NoError(t, b.Close()) }()
	dense, experts := kernels.Span{Data: []byte{1}}, kernels.Span{Data: []byte{2}, Experts: true}
	require.NoError(t, kernels.Hold(b, func() ([]kernels.Span, error) { return []kernels.Span{experts, dense, experts}, nil }))
	require.Equal(t, []kernels.Span{dense}, g.spans)
}
