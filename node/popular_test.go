package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type counted [][]uint64

func (c counted) Chosen() [][]uint64 {
	out := make([][]uint64, len(c))
	for l := range c {
		out[l] = append([]uint64(nil), c[l]...)
	}
	return out
}

// TestPopularity: choices of models that follow each other add up, and those of earlier
// runs of the same model too. A file that is broken, too large or of another model counts
// nothing.
func TestPopularity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "experts.json")
	var p popularity
	p.load(path, "a")
	require.Empty(t, p.counts())
	p.observe(counted{{1, 2}, {3, 4}})
	p.observe(counted{{10, 0}})
	require.Equal(t, [][]uint64{{11, 2}, {3, 4}}, p.counts())
	p.close()

	var again popularity
	again.load(path, "a")
	require.Equal(t, [][]uint64{{11, 2}, {3, 4}}, again.counts())
	again.observe(counted{{1 << 40, 1 << 30}})
	again.close()
	var large popularity
	large.load(path, "a")
	require.Equal(t, [][]uint64{{1 << 31, 1 << 21}, {0, 0}}, large.counts(), "counts stay bounded, and their order")

	for name, text := range map[string]string{"another model": `{"model":"b","chosen":[[1]]}`, "broken": "{", "too large": strings.Repeat(" ", mostPopularity+1)} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		var p popularity
		p.load(path, "a")
		require.Empty(t, p.counts(), name)
	}
	var none popularity
	none.load("", "a")
	none.observe(counted{{1}})
	none.close()
}

// TestDiskHangs: a start does not wait for a disk that does not answer.
func TestDiskHangs(t *testing.T) {
	answers := make(chan struct{})
	read := func() ([][]uint64, error) { <-answers; return [][]uint64{{1}}, nil }
	chosen, err := within(time.Millisecond, read)
	require.ErrorContains(t, err, "has not answered")
	require.Empty(t, chosen)
	close(answers)
	chosen, err = within(time.Hour, read)
	require.NoError(t, err)
	require.Equal(t, [][]uint64{{1}}, chosen)
}
