//go:build cgo

package cpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/kerneltest"
)

// TestMatMulColumnGroups: groups of columns, all or some of them, have the bits of products
// with the columns of each group alone, at every level, for any number of tokens and threads:
// narrow ones, which kernels compute together, and others.
func TestMatMulColumnGroups(t *testing.T) {
	for _, typ := range kerneltest.Types {
		if dense(typ) {
			continue
		}
		t.Run(typ.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(19, 20))
			shapes := []struct{ each, groups int }{{256, 3}, {512, 2}}
			if typ.BlockElements() == 32 {
				shapes = append(shapes, []struct{ each, groups int }{{32, 8}, {32, 7}, {64, 4}, {64, 6}, {64, 5}, {128, 4}, {96, 4}}...)
			}
			for _, s := range shapes {
				testColumnGroups(t, r, typ, s.each, s.groups)
			}
		})
	}
}

func testColumnGroups(t *testing.T, r *rand.Rand, typ gguf.Type, each, groups int) {
	const rows, most = 37, 53
	cols := each * groups
	data, x := kerneltest.Blocks(r, typ, rows*cols, 0.1), kerneltest.Normal(r, most*cols, 1)
	b, err := cpu.NewLevel(1, cpu.Portable)
	require.NoError(t, err)
	want := make([][]uint32, groups) // [groups][most][rows]
	for g := range want {
		var gx []float32
		for n := range most {
			gx = append(gx, x[n*cols+g*each:n*cols+(g+1)*each]...)
		}
		part := weight(t, b, typ, data, 1, rows, cols).ColumnRange(g*each, (g+1)*each)
		want[g] = kerneltest.Bits(multiply(t, b, part, kerneltest.OnDevice(t, b, gx), most))
	}
	require.NoError(t, b.Close())
	for _, level := range cpu.Levels() {
		for _, threads := range []int{1, 3} {
			b, err := cpu.NewLevel(threads, level)
			require.NoError(t, err)
			for _, own := range [][2]int{{0, groups}, {1, groups}, {1, 2}} {
				n := own[1] - own[0]
				var ox []float32
				for i := range most {
					ox = append(ox, x[i*cols+own[0]*each:i*cols+own[1]*each]...)
				}
				bx, w := kerneltest.OnDevice(t, b, ox), weight(t, b, typ, data, 1, rows, cols).ColumnGroups(groups).SliceRange(own[0], own[1])
				for _, tokens := range []int{1, 2, 5, 17, most} {
					out := zeros(t, b, tokens*n*rows)
					b.MatMulGrouped(out, bx[:tokens*n*each], tokens, w)
					require.NoError(t, b.Flush())
					bits := kerneltest.Bits(out)
					for i := range tokens {
						for g := range n {
							require.Equal(t, want[own[0]+g][i*rows:(i+1)*rows], bits[(i*n+g)*rows:(i*n+g+1)*rows],
								"%s, %d threads, %d tokens: token %d, group %d of groups %v of %d columns", level, threads, tokens, i, own[0]+g, own, each)
						}
					}
				}
			}
			require.NoError(t, b.Close())
		}
	}
}
