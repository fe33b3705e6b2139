package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/profile"
)

// TestRates checks the text output of a decode.
func TestRates(t *testing.T) {
	m := Measurement{What: "decode", N: 8, Sequences: 2, Depth: DefaultDepth, Threads: 2, Seconds: []float64{4, 1, 2},
		BytesPerToken: 1_530_000_000, StreamGBs: 20, StreamMedianGBs: 18}
	require.Equal(t, "         reads 1.42 GiB per token, 12.2 GB/s: 0.61 of the memory bandwidth of 20.0 GB/s with 2 threads (median 18.0)\n", m.rates())
	m.StreamGBs, m.StreamError, m.BytesPerToken = 0, "too little", 2_000_000
	require.Equal(t, "         reads 1.9 MiB per token, 0.0 GB/s; memory bandwidth not measured: too little\n", m.rates())
	require.Empty(t, (&Measurement{What: "prefill", N: 1, Seconds: []float64{1}}).rates())

	var out bytes.Buffer
	b := bench{w: &out}
	require.NoError(t, b.printSummary(&Measurement{LoadS: 0.01, FirstTokenS: 0.25, PeakMiB: 1100, FileMiB: 1000, HugeMiB: 900, OwnMiB: 80}))
	require.Equal(t, "load 0.01 s, first token after 0.25 s; peak memory 1100 MiB; at the end 1000 MiB file-backed (900 in huge pages) and 80 MiB anonymous (ratio 0.08)\n", out.String())
}

func TestWeightBytes(t *testing.T) {
	require.EqualValues(t, 12, weightBytes([]profile.Op{{Bytes: 100, Weights: 5}, {Bytes: 7, Weights: 7}, {Bytes: 3}}))
}
