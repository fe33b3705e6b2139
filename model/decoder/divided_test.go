package decoder

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/parallel"
)

// TestMatrixRead: of columns the pages are counted that hold one, each once.
func TestMatrixRead(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	page := os.Getpagesize()
	of := func(p parallel.Part) parallel.Range { return p.Heads }
	for range 200 {
		parts := 1 + r.IntN(8)
		cols, rows := 8*parts*(1+r.IntN(3*page/8)), 1+r.IntN(9)
		mem := make([]byte, 4*cols*rows+page)
		at := 4 * r.IntN(page/4)
		data := mem[at : at+4*cols*rows]
		tensor := gguf.Tensor{Type: gguf.F32, Shape: []int64{int64(cols), int64(rows)}, Data: data}
		m := matrixOf(tensor, Division{Of: of, Columns: true})
		own := parallel.Range{Start: r.IntN(parts + 1)}
		own.End = own.Start + r.IntN(parts-own.Start+1)
		all := parallel.Part{Heads: parallel.Range{End: parts}}
		pages := map[uintptr]bool{}
		for row := range rows {
			for i := 4 * cols * own.Start / parts; i < 4*cols*own.End/parts; i++ {
				pages[uintptr(unsafe.Pointer(&data[row*4*cols+i]))/uintptr(page)] = true
			}
		}
		got := m.Read(parallel.Part{Heads: own}, all)
		if own.Len() == parts {
			require.Equal(t, m.Bytes, got)
		} else {
			require.Equal(t, min(int64(len(pages)*page), m.Bytes), got, "%d columns in %d parts, %v", cols, parts, own)
		}
		m.Columns = false
		require.Equal(t, m.Bytes*int64(own.Len())/int64(parts), m.Read(parallel.Part{Heads: own}, all))
	}
}
