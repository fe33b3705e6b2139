package gguf

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// drive is a file with reads that take a fixed time each and a time by their bytes. It notes them.
type drive struct {
	size    int64
	now     *time.Duration
	each    time.Duration
	rate    float64
	failure error
	reads   [][2]int64 // begin, end
}

func (d *drive) ReadAt(b []byte, at int64) (int, error) {
	if d.failure != nil {
		return 0, d.failure
	}
	d.reads = append(d.reads, [2]int64{at, at + int64(len(b))})
	*d.now += d.each + time.Duration(float64(len(b))/d.rate*float64(time.Second))
	return len(b), nil
}

func TestReadRate(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name   string
		drives []drive
		places []int64
		want   int64
		reads  int
	}{
		{"fast: all pieces", []drive{{size: 64 * mib, rate: 2048 * mib}}, []int64{0, 5 * mib}, 2048 * mib, 16},
		{"slow: as many as 100 ms allow", []drive{{size: 64 * mib, rate: 50 * mib}}, []int64{0, 5 * mib}, 50 * mib, 5},
		{"very slow: two", []drive{{size: 64 * mib, rate: mib}}, []int64{0}, mib, 2},
		{"seeks count", []drive{{size: 64 * mib, rate: 100 * mib, each: 10 * time.Millisecond}}, []int64{7}, 50 * mib, 5},
		{"the end of a file, and the next one", []drive{{size: mib / 2, rate: 512 * mib}, {size: 4 * mib, rate: 512 * mib}},
			[]int64{mib / 4, mib / 2, 4*mib + mib/2 - 1}, 512 * mib, 16},
		{"an empty part", []drive{{size: 0, rate: 1}, {size: 10, rate: 1000}}, []int64{0, 9}, 1000, 2 + 14},
		{"no bytes", []drive{{}}, nil, 0, 0},
		{"no file", nil, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now time.Duration
			var files []io.ReaderAt
			var sizes []int64
			var all int64
			for i := range c.drives {
				d := &c.drives[i]
				d.now = &now
				files, sizes, all = append(files, d), append(sizes, d.size), all+d.size
			}
			asked := 0
			got, err := readRate(files, sizes, func() time.Duration { return now }, func(n int64) int64 {
				require.Equal(t, all, n)
				asked++
				return c.places[(asked-1)%len(c.places)]
			})
			require.NoError(t, err)
			require.InEpsilon(t, float64(c.want)+1, float64(got)+1, 0.02)
			reads := 0
			for _, d := range c.drives {
				reads += len(d.reads)
				for _, r := range d.reads {
					require.True(t, 0 <= r[0] && r[0] < r[1] && r[1] <= d.size, "%v of %d", r, d.size)
				}
			}
			require.Equal(t, c.reads, reads)
		})
	}
	failure := errors.New("a bad sector")
	_, err := readRate([]io.ReaderAt{&drive{failure: failure}}, []int64{5}, func() time.Duration { return 0 }, func(int64) int64 { return 0 })
	require.ErrorIs(t, err, failure)

	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "m.gguf"), bytes.Repeat([]byte{1}, 3*mib))
	got, err := ReadRate([]string{path})
	require.NoError(t, err)
	require.Positive(t, got)
	_, err = ReadRate([]string{path + "x"})
	require.ErrorContains(t, err, "m.ggufx")
}
