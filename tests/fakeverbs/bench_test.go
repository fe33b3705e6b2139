//go:build cgo && (linux || darwin)

package fakeverbs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
)

// BenchmarkFabric measures what a test pays for its own fabric.
func BenchmarkFabric(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		f, err := Make(dir, tbPair)
		require.NoError(b, err)
		require.NoError(b, f.Close())
	}
}

// BenchmarkMessage measures a message on it, posted and polled from Go: the
// cost of the library itself, apart from the copy.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{64, 16384} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			_, x, y := link(b, tbPair, verbs.UC, 64)
			buf := make([]verbs.WC, 4)
			b.SetBytes(int64(size))
			for b.Loop() {
				y.recv(b, 1, 0, size)
				x.send(b, 2, 0, size)
				for n := 0; n < 2; {
					k, err := x.cq.Poll(buf)
					require.NoError(b, err)
					l, err := y.cq.Poll(buf)
					require.NoError(b, err)
					n += k + l
				}
			}
		})
	}
}

// BenchmarkRails moves 16 MiB in messages of 64 KiB over rails of 1 GB/s each,
// with as many in flight as there are rails: striping shows as bytes per
// second.
func BenchmarkRails(b *testing.B) {
	const size, total = 65536, 16 << 20
	for rails := 1; rails <= 3; rails++ {
		b.Run(fmt.Sprint(rails), func(b *testing.B) {
			script := ""
			for r := range rails {
				script += fmt.Sprintf("device a%[1]d\ndevice b%[1]d host=1\ncable a%[1]d b%[1]d latency_ns=6000 mbps=1000\n", r)
			}
			f := New(b, script)
			lib := openLibrary(b, f)
			var xs, ys []*end
			for r := range rails {
				x, y := openEnd(b, lib, fmt.Sprint("a", r), verbs.UC, 64), openEnd(b, lib, fmt.Sprint("b", r), verbs.UC, 64)
				join(b, x, y)
				xs, ys = append(xs, x), append(ys, y)
			}
			buf := make([]verbs.WC, 16)
			b.SetBytes(total)
			for b.Loop() {
				posted, left := 0, 2*total/size
				flying := make([]int, rails)
				for left > 0 {
					for r := range rails {
						if posted < total/size && flying[r] < 4 { // two messages, each with two completions
							ys[r].recv(b, 1, posted%4*size, size)
							xs[r].send(b, 2, posted%4*size, size)
							posted++
							flying[r] += 2
						}
						for _, e := range []*end{xs[r], ys[r]} {
							n, err := e.cq.Poll(buf)
							require.NoError(b, err)
							left -= n
							flying[r] -= n
						}
					}
				}
			}
		})
	}
}
