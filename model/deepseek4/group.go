package deepseek4

import (
	"fmt"
	"hash/crc32"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/moe"
)

// Join makes the model one rank of a group and forgets all sequences. Rank r
// owns the routed experts ranges[r] of every layer and computes no others; from
// now on all ranks must run the same steps, which combine over the group in
// every layer. Only the rank that samples needs to ask for logits: Want may
// differ. It is called again for each epoch, with other ranges if need be, and
// with nil to run alone; a group of one rank is the same as nil. No step may be
// under way. The group is used within Forward only and stays the caller's.
//
// In a group the context of a Forward is the epoch's: a step that ends early on
// one rank alone leaves the others waiting until the group fails.
func (m *Model) Join(g distributed.Group, ranges []moe.Range) error {
	m.forget()
	m.digest = m.digest[:0]
	if err := m.routed.Join(g, ranges, m.wire); err != nil {
		return fmt.Errorf("deepseek4: %w", err)
	}
	return nil
}

// Reserve checks a step and allocates all that it needs, so that a Forward of
// the same step, if it is the next, does not fail for memory (but for working
// buffers of the backend). Sequences that it makes stay until they are dropped.
// Its errors are those of Forward, whose rows are not valid any more. In a group the leader reserves before it
// hands the step out.
func (m *Model) Reserve(step model.Step) error {
	_, _, err := m.prepare(step)
	return err
}

// Digest sums up the last Forward: one CRC-32C for each layer, of the experts
// that were chosen, and one of the final hidden state of the last row of each
// entry. Ranks that did the same have the same. It is empty without a group,
// after an error and for a step without rows. It is valid until the next Forward.
func (m *Model) Digest() []uint32 { return m.digest }

// digestStep fills digest after a step that has been flushed.
func (m *Model) digestStep(segments []segment) {
	layers := m.routed.Digest()
	if layers == nil {
		return
	}
	m.digest = append(m.digest, layers...)
	width := m.c.Streams * m.c.Embd
	sum := uint32(0)
	for _, g := range segments {
		row := m.scratch.h[(g.first+g.n-1)*width:][:width]
		sum = crc32.Update(sum, castagnoli, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 4*width))
	}
	m.digest = append(m.digest, sum)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// LayerStats are the counts of each layer since Open. It may be called by any
// goroutine at any time.
func (m *Model) LayerStats() []moe.LayerStats { return m.routed.LayerStats() }
