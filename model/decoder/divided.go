package decoder

import (
	"fmt"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// Division is how a matrix is divided among ranks: by which sizes of the placement, and
// whether a rank has rows of it or columns.
type Division struct {
	Of      func(p parallel.Part) parallel.Range
	Columns bool
}

// Divisions are the matrices that a rank may read in part, by their names without the
// layer: rows of those of attention named in rows and columns of those in columns, by its
// heads, its segments of the shared expert, of a dense FFN too if that is divided, and
// its part of the vocabulary.
func Divisions(rows, columns []string, denseFFN bool) map[string]Division {
	heads := func(p parallel.Part) parallel.Range { return p.Heads }
	shared := func(p parallel.Part) parallel.Range { return p.Shared }
	by := map[string]Division{
		"ffn_gate_shexp.weight": {Of: shared},
		"ffn_up_shexp.weight":   {Of: shared},
		"ffn_down_shexp.weight": {Of: shared, Columns: true},
		"output.weight":         {Of: func(p parallel.Part) parallel.Range { return p.Vocabulary }},
	}
	for _, name := range rows {
		by[name] = Division{Of: heads}
	}
	for _, name := range columns {
		by[name] = Division{Of: heads, Columns: true}
	}
	if denseFFN {
		by["ffn_gate.weight"], by["ffn_up.weight"] = Division{Of: shared}, Division{Of: shared}
		by["ffn_down.weight"] = Division{Of: shared, Columns: true}
	}
	return by
}

// LayerTypes are the types of a tensor of each layer, without the layers that lack it.
func LayerTypes(f *gguf.File, layers int, name string) []gguf.Type {
	var types []gguf.Type
	for i := range layers {
		if t, ok := f.Tensor(fmt.Sprintf("blk.%d.%s", i, name)); ok {
			types = append(types, t.Type)
		}
	}
	return types
}

// Matrix is a matrix of the file that a rank may read in part.
type Matrix struct {
	Division
	Bytes    int64
	rowBytes int64
	at       int64 // of the first byte within its page
}

func matrixOf(t gguf.Tensor, by Division) Matrix {
	return Matrix{Division: by, Bytes: int64(len(t.Data)), rowBytes: int64(t.Type.RowBytes(int(t.Shape[0]))),
		at: int64(uintptr(unsafe.Pointer(unsafe.SliceData(t.Data))) % uintptr(pageSize))}
}

// Read is the bytes of the pages that a rank with part of all reads; all is where the
// ranges of the last rank end. Rows count as bytes, because they have few pages at their
// ends. Of columns every page that holds one counts.
func (m Matrix) Read(part, all parallel.Part) int64 {
	own, of := m.Of(part), int64(m.Of(all).End)
	if of == 0 || own.Len() == 0 {
		return 0
	}
	begin, end := int64(own.Start), int64(own.End)
	if begin == 0 && end == of {
		return m.Bytes
	}
	if !m.Columns {
		return m.Bytes * (end - begin) / of
	}
	from, to := m.rowBytes*begin/of, m.rowBytes*end/of
	page := int64(pageSize)
	pages, last := int64(0), int64(-1)
	for row := m.at; row < m.at+m.Bytes; row += m.rowBytes {
		first, until := max((row+from)/page, last+1), (row+to-1)/page
		pages += max(until-first+1, 0)
		last = max(last, until)
	}
	return min(pages*page, m.Bytes)
}

// MostParts is the most parts into which columns are divided among ranks: one for each
// rank of the largest group. More would divide them more evenly among unequal ranks, but
// with Exact the output of each part takes memory and time.
const MostParts = 8

// MostUsed is the most experts of a token: with --reduce exact their outputs and those of the
// parts of the shared expert are one sum. No released model has a tenth as many.
const MostUsed = kernels.MostExactTerms - MostParts

// ColumnParts is the greatest divisor of most such that so many equal parts of cols
// columns are whole blocks of all types.
func ColumnParts(cols, most int, types []gguf.Type) int {
	whole := func(n int) bool {
		for _, t := range types {
			if cols%n != 0 || cols/n%t.BlockElements() != 0 {
				return false
			}
		}
		return true
	}
	for n := most; n > 1; n-- {
		if most%n == 0 && whole(n) {
			return n
		}
	}
	return 1
}
