package cluster

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReads(t *testing.T) {
	for _, c := range []struct {
		reads Reads
		takes time.Duration
		text  string
	}{
		{Reads{}, 0, ""},
		{Reads{Rank: 3, Rate: 1 << 30}, 0, ""},
		{Reads{Rank: 3, Bytes: 3 << 20}, 0, "rank 3 has to read up to 3.0 MiB of weights that are new to it"},
		{Reads{1, 3 << 20, 1 << 30, "studio-b"}, 3 * time.Second / 1024, "rank 1 (studio-b) has to read up to 3.0 MiB of weights that are new to it, within 100ms at the 1.00 GiB/s that it measured"},
		{Reads{0, 40 << 30, 1 << 30, ""}, 40 * time.Second, "rank 0 has to read up to 40.00 GiB of weights that are new to it, within 40s at the 1.00 GiB/s that it measured"},
		{Reads{0, 81 << 29, 1 << 30, ""}, 40500 * time.Millisecond, "rank 0 has to read up to 40.50 GiB of weights that are new to it, within 41s at the 1.00 GiB/s that it measured"},
	} {
		require.InDelta(t, c.takes, c.reads.Takes(), 1000)
		require.Equal(t, c.text, c.reads.String())
	}
	endless := Reads{0, math.MaxInt64, 1, ""}
	require.Positive(t, endless.Takes())
	require.Contains(t, endless.String(), "within 1281023h")
}
