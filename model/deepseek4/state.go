package deepseek4

import (
	"fmt"

	"ringmaster/kernels"
)

// rewind is how far behind its greatest length a sequence can go back. The
// rings are so much deeper than a step needs. What counts is the greatest
// length, not the last one: going back twice reaches rows twice as old.
const rewind = 64

// sequence is the attention state of one sequence. Nothing in it is consumed:
// rings keep the projections of the last positions and caches keep entries by
// number, so a step that is not committed is simply written over by the next.
type sequence struct {
	length  int // committed tokens
	peak    int // greatest length since the sequence was last at 0
	entries int // room of the compressed caches, in positions
	layers  []layerState
}

// layerState is the state of one layer of a sequence.
type layerState struct {
	raw   []uint16 // [rawRows][hd] half, position p in slot p mod rawRows
	comp  *compressorState
	index *compressorState
}

// compressorState is what a compressor carries from step to step.
type compressorState struct {
	kv    []float32 // [rows][width], position p in slot p mod rows
	score []float32 // [rows][width], position bias added
	cache []uint16  // [entries][dim] half
	rows  int
	ratio int
	dim   int
}

// rawRows is the depth of the ring of raw rows: the window of the first token
// of a step that was taken back, and the step.
func (c *Config) rawRows(maxTokens int) int { return c.Window - 1 + rewind + maxTokens }

// ringRows is the depth of a compressor's ring: the pending block, the block
// before it, what may be taken back, and the step.
func ringRows(ratio, maxTokens int) int { return 2*ratio + rewind + maxTokens }

// newSequence allocates the rings of a sequence; the caches grow later.
func (m *Model) newSequence() (*sequence, error) {
	s := &sequence{layers: make([]layerState, len(m.w.layers))}
	for i := range s.layers {
		l, w := &s.layers[i], &m.w.layers[i]
		var err error
		if l.raw, err = kernels.Make[uint16](m.b, m.c.rawRows(m.maxTokens)*m.c.HeadDim); err == nil && w.comp != nil {
			l.comp, err = m.newCompressorState(w.comp, w.ratio)
		}
		if err == nil && w.index != nil {
			l.index, err = m.newCompressorState(w.index, w.ratio)
		}
		if err != nil {
			m.freeSequence(s)
			return nil, fmt.Errorf("deepseek4: state of a new sequence, layer %d: %w", i, err)
		}
	}
	return s, nil
}

func (m *Model) newCompressorState(c *compressor, ratio int) (*compressorState, error) {
	s := &compressorState{rows: ringRows(ratio, m.maxTokens), ratio: ratio, dim: c.dim}
	var err error
	if s.kv, err = kernels.Make[float32](m.b, s.rows*c.width); err != nil {
		return s, err
	}
	s.score, err = kernels.Make[float32](m.b, s.rows*c.width)
	return s, err
}

// reserve makes room for the compressed entries of length positions. Room at
// least doubles, so that the copies cost little. It runs between steps, when
// no op is encoded.
func (m *Model) reserve(s *sequence, length int) error {
	if length <= s.entries {
		return nil
	}
	// A start of 4096 positions costs 1024 entries of ratio 4 in a layer.
	room := min(max(length, 2*s.entries, 4096), max(m.contextLength, length))
	for i := range s.layers {
		for _, c := range []*compressorState{s.layers[i].comp, s.layers[i].index} {
			if c == nil {
				continue
			}
			bigger, err := kernels.Make[uint16](m.b, (room+c.ratio-1)/c.ratio*c.dim)
			if err != nil {
				return fmt.Errorf("deepseek4: compressed history of %d tokens, layer %d: %w", room, i, err)
			}
			copy(bigger, c.cache)
			kernels.Release(m.b, c.cache)
			c.cache = bigger
		}
	}
	s.entries = room
	return nil
}

func (m *Model) freeSequence(s *sequence) {
	for i := range s.layers {
		l := &s.layers[i]
		kernels.Release(m.b, l.raw)
		for _, c := range []*compressorState{l.comp, l.index} {
			if c == nil {
				continue
			}
			kernels.Release(m.b, c.kv)
			kernels.Release(m.b, c.score)
			kernels.Release(m.b, c.cache)
		}
	}
}
