package tcp

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// plainMesh makes plain TCP connections over loopback between every two of n
// ends: [n][n-1].
func plainMesh(b *testing.B, n int) [][]net.Conn {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	ends := make([][]net.Conn, n)
	for i := range n {
		for j := range i {
			x, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(b, err)
			y, err := ln.Accept()
			require.NoError(b, err)
			b.Cleanup(func() { x.Close(); y.Close() })
			ends[i], ends[j] = append(ends[i], x), append(ends[j], y)
		}
	}
	return ends
}

// bare times n rounds in which every end writes size bytes to all others and
// reads size bytes from each. Messages larger than the socket buffers are
// written by one goroutine per connection.
func bare(b *testing.B, ends [][]net.Conn, size, n int) time.Duration {
	var all sync.WaitGroup
	begun := time.Now()
	for _, conns := range ends {
		all.Go(func() {
			out, in := make([]byte, size), make([]byte, size)
			write, wrote := make(chan net.Conn), make(chan struct{})
			defer close(write)
			large := size > 64<<10
			if large {
				for range conns {
					all.Go(func() {
						for c := range write {
							if _, err := c.Write(out); err != nil {
								b.Error(err)
							}
							wrote <- struct{}{}
						}
					})
				}
			}
			for range n {
				for _, c := range conns {
					if large {
						write <- c
					} else if _, err := c.Write(out); err != nil {
						b.Error(err)
					}
				}
				for _, c := range conns {
					if _, err := io.ReadFull(c, in); err != nil {
						b.Error(err)
					}
				}
				if large {
					for range conns {
						<-wrote
					}
				}
			}
		})
	}
	all.Wait()
	return time.Since(begun)
}

// combine times n rounds of StartAllSum and Wait with float16 elements on all
// ranks.
func combine(b *testing.B, m *mesh, size, n int) time.Duration {
	begun := time.Now()
	for _, err := range m.each(func(g *distributed.Group) error {
		src, dst := make([]byte, size), make([]byte, size)
		for range n {
			if err := g.StartAllSum(b.Context(), dst, src, distributed.Float16).Wait(); err != nil {
				return err
			}
		}
		return nil
	}) {
		require.NoError(b, err)
	}
	return time.Since(begun)
}

// BenchmarkCombine alternates a combine with the bare exchange of the same
// bytes over plain connections in one run: pair is an exchange between two
// ends, mesh between as many ends as there are ranks. Large reductions send
// fewer bytes than the mesh. encrypted is the combine over TLS.
func BenchmarkCombine(b *testing.B) {
	for _, c := range []struct{ ranks, size int }{{2, 16 << 10}, {4, 16 << 10}, {2, 4 << 20}, {4, 4 << 20}} {
		b.Run(fmt.Sprintf("ranks=%d/KiB=%d", c.ranks, c.size>>10), func(b *testing.B) {
			m, sealed := newMesh(b, c.ranks, Options{}, nil), newMesh(b, c.ranks, Options{Encrypt: true}, nil)
			two, many := plainMesh(b, 2), plainMesh(b, c.ranks)
			step := max(1, min(b.N/10, 200))
			var pair, mesh, ours, encrypted time.Duration
			n := 0
			bare(b, two, c.size, step)
			bare(b, many, c.size, step)
			combine(b, m, c.size, step)
			combine(b, sealed, c.size, step)
			b.ResetTimer()
			for n < b.N {
				pair += bare(b, two, c.size, step)
				mesh += bare(b, many, c.size, step)
				ours += combine(b, m, c.size, step)
				encrypted += combine(b, sealed, c.size, step)
				n += step
			}
			b.StopTimer()
			us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(n) / 1e3 }
			b.ReportMetric(us(pair), "pair-us")
			b.ReportMetric(us(mesh), "mesh-us")
			b.ReportMetric(us(ours), "combine-us")
			b.ReportMetric(us(encrypted), "encrypted-us")
			b.ReportMetric(float64(encrypted)/float64(ours), "encrypted-ratio")
			b.ReportMetric(float64(ours)/float64(pair), "pair-ratio")
			b.ReportMetric(float64(ours)/float64(mesh), "mesh-ratio")
			b.Log(m.groups[0].Describe().Topology)
		})
	}
}
