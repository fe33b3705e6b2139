package units_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/units"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 1536 << 20: "1.50 GiB", 404e9: "376.25 GiB", 1 << 60: "1.00 EiB", -1: "-1 B"} {
		require.Equal(t, want, units.Bytes(n))
	}
	require.Equal(t, "16.00 EiB", units.Bytes(^uint64(0)))
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 threads", 1: "1 thread", 2: "2 threads"} {
		require.Equal(t, want, units.Count(n, "thread"))
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "1B": 1, "100 B": 100, "0.5KiB": 512, "24GiB": 24 << 30, "1.5 MiB": 3 << 19, "2TiB": 2 << 40,
		"1GB": 1e9, "1.5 KB": 1500, "2kB": 2000, "20 MB": 20e6, "3TB": 3e12} {
		n, err := units.ParseBytes(text)
		require.NoError(t, err)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"0", "-1", "GiB", "iB", "1iB", "1kiB", "1PB", "24gib", "24G", "NaN", "1e30", "2000000TiB"} {
		_, err := units.ParseBytes(text)
		require.ErrorContains(t, err, "is not a size like 24GiB or 24GB", text)
	}
	for _, text := range []string{"20", "1000000", "0.5"} {
		_, err := units.ParseBytes(text)
		require.EqualError(t, err, fmt.Sprintf("%q has no unit; write %[1]sGiB, %[1]sGB, %[1]sMiB or another one", text))
	}
}
