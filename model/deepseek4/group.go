package deepseek4

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/parallel"
)

// Join makes the model one rank of a group and drops all sequences. It computes its
// part of the placement, in which only the routed experts may be divided. From then
// on all ranks must run the same steps, whose layers combine their outputs over the group; only
// Want may differ, since only the rank that samples needs logits. Join is called
// for each epoch, possibly with another placement, or with nil to run without a group;
// a group of one rank is like nil. It must not run during a step. The group is
// used in Forward only and stays the caller's.
//
// In a group the context of Forward must be the epoch's: a step that is cancelled
// on one rank alone leaves the others waiting until the group fails.
func (m *Model) Join(g *distributed.Group, p parallel.Placement) error {
	m.dropAll()
	m.digest = m.digest[:0]
	if g == nil {
		return m.routed.Join(nil, nil, m.wire)
	}
	if err := checkPlacement(&m.c, g, p); err != nil {
		return fmt.Errorf("deepseek4: %w", err)
	}
	if err := m.routed.Join(g, p.Experts(), m.wire); err != nil {
		return fmt.Errorf("deepseek4: %w", err)
	}
	return nil
}

// checkPlacement refuses a placement that is not one of the model and the group, or
// that divides what the model does not. Errors wrap distributed.ErrArgument.
func checkPlacement(c *Config, g *distributed.Group, p parallel.Placement) error {
	if err := p.Check(c.Sizes(), g.Size()); err != nil {
		return err
	}
	for r, x := range p {
		if x.Heads.Len() != c.OGroups || (x.Vocabulary.Len() == c.Vocab) != (r == 0) {
			return fmt.Errorf("the placement gives rank %d heads %v and rows %v of the output head; only the experts can be divided: %w",
				r, x.Heads, x.Vocabulary, distributed.ErrArgument)
		}
	}
	return nil
}

// Sizes is what a placement divides; OGroups are the groups of heads.
func (c *Config) Sizes() parallel.Sizes {
	return parallel.Sizes{Experts: c.Experts, Heads: c.OGroups, Vocabulary: c.Vocab}
}

// Reserve checks a step and allocates what it needs, so that a Forward of the
// same step, if it is the next call, does not fail for lack of memory (except for
// working buffers of the backend). Sequences that it makes exist until they are
// dropped. Its errors are those of Forward. The rows of the last Forward become
// invalid. In a group the leader reserves before it sends the step.
func (m *Model) Reserve(step model.Step) error {
	_, _, err := m.prepare(step)
	return err
}

// Digest is the checksums of the last Forward [Layers+1]: for each layer a CRC-32C
// of the chosen experts, then one of the final hidden states of the last row of
// each entry. Ranks that computed the same have equal digests. It is empty without
// a group, after an error and for a step without rows. It is valid until the next
// Forward.
func (m *Model) Digest() []uint32 { return m.digest }

// digestStep fills m.digest; the step must have been flushed.
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
		sum = crc32.Update(sum, castagnoli, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(quietNaNs(row)))), 4*width))
	}
	m.digest = append(m.digest, sum)
}

// quietNaNs is row, or a copy in which every NaN has the same bits, if there is
// one. IEEE 754 leaves it open which NaN an operation returns, so the sign and the
// payload depend on the instructions, and ranks at avx512 and amx may differ in
// them though they computed the same.
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// LayerStats are the counts of each layer [Layers] since Open. It may be called by any
// goroutine at any time.
func (m *Model) LayerStats() []parallel.LayerStats { return m.meter.Stats() }
