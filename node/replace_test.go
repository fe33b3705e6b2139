package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// TestReplaceable: the CPU runs the model where auto chose a GPU that computes a type of its
// weights wrongly, or, unless they share a memory, cannot load it. A GPU that was asked for by
// name is never replaced.
func TestReplaceable(t *testing.T) {
	wrong := fmt.Errorf("model.gguf: %w", &kernels.WrongTypeError{Device: "metal (Apple M1)", Type: gguf.MXFP4, What: "0 in place of 1"})
	full := errors.New("no memory")
	for _, c := range []struct {
		auto, metal bool
		err         error
		want        bool
	}{{true, true, wrong, true}, {true, false, wrong, true}, {true, true, full, false}, {true, false, full, true}, {false, true, wrong, false}, {false, false, full, false}} {
		n := Node{autoGPU: c.auto, isMetal: c.metal}
		require.Equal(t, c.want, n.replaceable(c.err), "%+v", c)
	}
}
