package deepseek4

import (
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model"
)

// rewind is how many positions behind its greatest length a sequence can be
// rewound to; the rings are deeper by as much. The greatest length counts, not
// the current one, because two rewinds in a row reach twice as far back.
const rewind = 64

// sequence is the KV cache of one sequence. Reading it changes nothing: rings keep
// the last positions and caches keep entries by number, so what a step that is not
// committed has written is overwritten by the next.
type sequence struct {
	length   int          // committed tokens
	peak     int          // greatest length since the sequence was last at 0
	capacity int          // of the compressed caches, in positions
	charged  int64        // bytes that count against Options.SequenceBudget
	layers   []layerState // [Layers]
}

// layerState is the KV cache of one layer.
type layerState struct {
	raw   []uint16         // [rawRows][hd] float16 key/value rows, position p in slot p mod rawRows
	comp  *compressorState // ratio > 0
	index *compressorState // ratio 4: of the indexer
}

// compressorState is the inputs and the output of a compressor.
type compressorState struct {
	kv    []float32 // [rows][width] projections, position p in slot p mod rows
	score []float32 // [rows][width] gates, position bias added
	cache []uint16  // [capacity/ratio][dim] float16 entries
	rows  int       // depth of the rings, in positions
	ratio int       // positions of an entry
	dim   int       // width of an entry
}

// rawRows is the depth of the ring of key/value rows, in positions: the window of
// the first token of a step, the rewind before it, and the step.
func (c *Config) rawRows(maxTokens int) int { return c.Window - 1 + rewind + maxTokens }

// ringRows is the depth of a compressor's rings, in positions: the incomplete
// block, the block before it, the rewind, and the step.
func ringRows(ratio, maxTokens int) int { return 2*ratio + rewind + maxTokens }

// makeSequence makes a sequence, if it is new, and room in it for length positions.
// Errors are a model.MemoryError.
func (m *Model) makeSequence(id model.SeqID, length int) error {
	q := m.sequences[id]
	held := int64(0)
	if q != nil {
		held = q.charged
	}
	more := max(m.SequenceBytes(length)-held, 0)
	if m.budget > 0 && m.charged+more > m.budget {
		return &model.MemoryError{Seq: id, Need: more, Have: max(m.budget-m.charged, 0)}
	}
	if q == nil {
		var err error
		if q, err = m.newSequence(); err != nil {
			return fmt.Errorf("%w: %w", &model.MemoryError{Seq: id}, err)
		}
		m.sequences[id] = q
	}
	m.charged += more
	q.charged += more
	if err := m.reserve(q, length); err != nil {
		return fmt.Errorf("%w: %w", &model.MemoryError{Seq: id}, err)
	}
	return nil
}

// newSequence allocates the rings of a sequence; reserve grows its caches.
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
			return nil, fmt.Errorf("deepseek4: KV cache of a new sequence, layer %d: %w", i, err)
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

// reserve makes room for the compressed entries of length positions. It must run
// between steps, when no op is encoded.
func (m *Model) reserve(s *sequence, length int) error {
	if length <= s.capacity {
		return nil
	}
	room := capacityFor(length, m.contextLength)
	for i := range s.layers {
		for _, c := range []*compressorState{s.layers[i].comp, s.layers[i].index} {
			if c == nil {
				continue
			}
			bigger, err := kernels.Make[uint16](m.b, (room+c.ratio-1)/c.ratio*c.dim)
			if err != nil {
				return fmt.Errorf("deepseek4: compressed KV cache of %d tokens, layer %d: %w", room, i, err)
			}
			copy(bigger, c.cache)
			kernels.Release(m.b, c.cache)
			c.cache = bigger
		}
	}
	s.capacity = room
	return nil
}

// freeSequence frees the memory of a sequence and gives its bytes back to the
// budget.
func (m *Model) freeSequence(s *sequence) {
	m.charged -= s.charged
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
