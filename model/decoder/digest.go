package decoder

import (
	"hash/crc32"
	"math"
	"slices"
	"unsafe"

	"ringmaster/kernels"
)

// Digest is the checksums of the last Run [Layers+1]: for each layer a CRC-32C of the
// chosen experts, then one of the final hidden states of the wanted rows and of the last row
// of each entry.
// Ranks that computed the same have equal digests. It is empty without a group, after an
// error and for a step without rows. It is valid until the next Run.
func (m *Model[C]) Digest() []uint32 { return m.digest }

// digestStep fills m.digest; the step must have been flushed.
func (m *Model[C]) digestStep(s *Step[C]) error {
	if m.pipeline != nil {
		m.digest = m.pipeline.digest(m.digest, m.o.Routed.Digest(), m.o.Layers)
		return nil
	}
	layers := m.o.Routed.Digest()
	if layers == nil {
		return nil
	}
	sum := uint32(0)
	for _, i := range s.compared() {
		row, err := m.readable(m.network.Hidden(int(i)))
		if err != nil {
			return err
		}
		row = quietNaNs(row)
		sum = crc32.Update(sum, castagnoli, rowBytes(row))
	}
	m.digest = append(append(m.digest, layers...), sum)
	return nil
}

// readable returns a row of the backend's memory, or a copy of it that the host reads fast. The
// step must have been flushed; the error is the backend's.
func (m *Model[C]) readable(row []float32) ([]float32, error) {
	if !kernels.HostOf(m.o.Backend).SlowReads {
		return row, nil
	}
	fast := make([]float32, len(row))
	return fast, m.reader.Read(rowBytes(fast), rowBytes(row))
}

// rowBytes returns the memory of a row.
func rowBytes(row []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 4*len(row))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// quietNaNs is row, or a copy in which every NaN has the same bits if row has any. IEEE
// 754 leaves open which NaN an operation returns. Ranks at avx512 and amx may otherwise
// differ in sign and payload though they computed the same.
func quietNaNs(row []float32) []float32 {
	if !slices.ContainsFunc(row, func(x float32) bool { return x != x }) {
		return row
	}
	row = slices.Clone(row)
	for i, x := range row {
		if x != x {
			row[i] = float32(math.NaN())
		}
	}
	return row
}
