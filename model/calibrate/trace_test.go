package calibrate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/parallel"
)

// filled is a backend with new memory full of numbers that are not finite.
type filled struct{ kernels.Backend }

func (f filled) ValuesMatter() bool { return kernels.ValuesMatter(f.Backend) }

func (f filled) Alloc(n int) ([]byte, error) {
	mem, err := f.Backend.Alloc(n)
	for i := range mem {
		mem[i] = 0xff
	}
	return mem, err
}

// TestTracesLookAtNoNumbers: what buffers hold says nothing where no op has written to
// them, so that sums beyond float16 in them do not repeat an exchange.
func TestTracesLookAtNoNumbers(t *testing.T) {
	zeros, sizes := tracer(t, parallel.Sum)
	full, err := calibrate.NewTracer(func(b kernels.Backend) (decoder.Decoder, error) {
		return open(t, filled{b}, options(parallel.Sum)), nil
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, full.Close()) })
	place, err := parallel.Place(parallel.ShareAll, sizes, decodertest.Ones(2))
	require.NoError(t, err)
	w := calibrate.Work{Rows: 64, Pos: 300}
	want, err := zeros.Traces(t.Context(), place, w)
	require.NoError(t, err)
	got, err := full.Traces(t.Context(), place, w)
	require.NoError(t, err)
	require.Equal(t, want, got)
}
