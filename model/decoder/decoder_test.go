package decoder_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/snapshot"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// cache is a KV cache that counts what is asked of it.
type cache struct {
	room  int
	rows  []byte
	freed bool
}

func (c *cache) Grow(length int) error {
	if length > 90 {
		return errors.New("the backend is full")
	}
	c.room = length
	return nil
}

func (c *cache) Free() { c.freed = true }

// State is a byte for each token.
func (c *cache) State(from, length, _ int) []snapshot.Section {
	for len(c.rows) < length {
		c.rows = append(c.rows, byte(len(c.rows)))
	}
	half := max(from, length/2)
	return []snapshot.Section{{Name: "rows", Parts: [][]byte{c.rows[from:half], c.rows[half:length]}}}
}

func (c *cache) StateOf(_ parallel.Range, from, length, peak int) []snapshot.Section {
	return c.State(from, length, peak)
}

// network is an architecture without layers: the logits of a row are its position.
type network struct {
	joined int
	caches []*cache
	steps  []decoder.Step[*cache]
	err    error
}

func (n *network) NewCache() (*cache, error) {
	n.caches = append(n.caches, &cache{})
	return n.caches[len(n.caches)-1], nil
}

func (n *network) CacheBytes(length int) int64 { return int64(10 * length) }
func (n *network) CheckpointBytes() int64      { return 0 }
func (n *network) Layout() string              { return "test, 1" }
func (n *network) SetSpan(parallel.Range)      {}
func (n *network) Splits(int) bool             { return true }
func (n *network) Carried() []decoder.Carried  { return nil }
func (n *network) ReserveHead(int) error       { return nil }
func (n *network) Join(*distributed.Group, parallel.Placement) error {
	n.joined++
	return nil
}
func (n *network) Hidden(row int) []float32 { return []float32{float32(row)} }
func (n *network) Experts(int) *moe.Layer   { return nil }
func (n *network) Free()                    {}

func (n *network) Layers(_ context.Context, s decoder.Step[*cache]) error {
	n.steps = append(n.steps, s)
	return n.err
}

func (n *network) Head(_ context.Context, wanted []int32) ([][]float32, error) {
	var logits [][]float32
	for _, row := range wanted {
		logits = append(logits, []float32{float32(n.steps[len(n.steps)-1].Pos[row])})
	}
	return logits, nil
}

// open makes a model of a context of 100 tokens with a budget of 1000 bytes.
func open(t *testing.T) (*decoder.Model[*cache], *network) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	meter := parallel.NewMeter(nil)
	routed, err := moe.NewForward(b, moe.Shape{Embd: 1, FF: 1, Experts: 1, Used: 1, MaxTokens: 1}, parallel.Sum, meter)
	require.NoError(t, err)
	n := &network{}
	m, err := decoder.New(n, decoder.Options{
		Info:   model.Info{Architecture: "test", Vocab: 50, ContextLength: 100, MaxTokens: 40, Rewind: 5},
		Routed: routed, Meter: meter, Budget: 1000, Backend: b,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m, n
}

func entry(seq model.SeqID, pos, tokens int, want model.Want) model.Entry {
	return model.Entry{Seq: seq, Pos: pos, Tokens: make([]int32, tokens), Want: want}
}

// run runs a step and commits it.
func run(t *testing.T, m *decoder.Model[*cache], entries ...model.Entry) {
	s := model.Step{Entries: entries}
	_, err := m.Forward(t.Context(), s)
	require.NoError(t, err)
	m.Commit(s)
}

// TestSteps: rows, positions, wanted rows and caches of a step are those of its
// entries; a step has no effect before it is committed.
func TestSteps(t *testing.T) {
	m, n := open(t)
	s := model.Step{Entries: []model.Entry{entry(1, 0, 3, model.WantAll), entry(2, 0, 2, model.WantNone), entry(3, 0, 4, model.WantLast)}}
	logits, err := m.Forward(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, [][]float32{{0}, {1}, {2}, {3}}, logits)
	require.Equal(t, []int32{0, 1, 2, 0, 1, 0, 1, 2, 3}, n.steps[0].Pos)
	require.Equal(t, []int32{0, 1, 2, 8}, n.steps[0].Wanted)
	require.Len(t, n.steps[0].IDs, 9)
	require.Equal(t, decoder.Segment[*cache]{Seq: 2, Cache: n.caches[1], First: 3, N: 2}, n.steps[0].Segments[1])
	require.Zero(t, m.Len(1))
	m.Commit(s)
	require.Equal(t, 3, m.Len(1))
	require.Equal(t, 2, n.caches[1].room)

	// A step that only drops has no rows; the cache goes with its commit.
	drop := model.Step{Drop: []model.SeqID{2, 77}}
	logits, err = m.Forward(t.Context(), drop)
	require.NoError(t, err)
	require.Empty(t, logits)
	require.False(t, n.caches[1].freed)
	m.Commit(drop)
	require.True(t, n.caches[1].freed)
	require.Zero(t, m.Len(2))
	require.Len(t, n.steps, 1)
}

// TestPrepareAndRun: a step runs once for each time it is prepared, and not after a
// commit, which may have dropped its sequences.
func TestPrepareAndRun(t *testing.T) {
	m, n := open(t)
	_, err := m.Run(t.Context())
	require.ErrorContains(t, err, "test: Run without a prepared step")
	s := model.Step{Entries: []model.Entry{entry(1, 0, 3, model.WantLast)}}
	require.NoError(t, m.Prepare(s))
	_, err = m.Run(t.Context())
	require.NoError(t, err)
	_, err = m.Run(t.Context())
	require.ErrorContains(t, err, "without a prepared step")
	require.NoError(t, m.Prepare(s))
	m.Commit(model.Step{Drop: []model.SeqID{1}})
	_, err = m.Run(t.Context())
	require.ErrorContains(t, err, "without a prepared step")
	require.NoError(t, m.Prepare(s))
	require.Error(t, m.Prepare(model.Step{Entries: []model.Entry{entry(1, 0, 0, model.WantLast)}}))
	_, err = m.Run(t.Context())
	require.ErrorContains(t, err, "without a prepared step", "a refused step is none")
	n.err = errors.New("the device is gone")
	_, err = m.Forward(t.Context(), s)
	require.ErrorIs(t, err, n.err)
	require.ErrorContains(t, err, "test: the device is gone")
}

// TestStepsThatAreRefused: what is wrong with a step is named, with the sequence.
func TestStepsThatAreRefused(t *testing.T) {
	m, _ := open(t)
	run(t, m, entry(1, 0, 30, 0))
	run(t, m, entry(1, 26, 2, 0))
	require.Equal(t, 28, m.Len(1), "rewound by 4 and extended by 2")
	bad := entry(2, 0, 1, 0)
	bad.Tokens[0] = 50
	for want, entries := range map[string][]model.Entry{
		"sequence 2: entry without tokens":                       {entry(2, 0, 0, 0)},
		"sequence 2: twice in one step":                          {entry(2, 0, 1, 0), entry(2, 0, 1, 0)},
		"sequence 1: tokens at position 29, but it has 28":       {entry(1, 29, 1, 0)},
		"sequence 2: tokens at position -1, but it has 0":        {entry(2, -1, 1, 0)},
		"sequence 1: rewind from 30 to 24; at most 5 positions":  {entry(1, 24, 1, 0)},
		"a step of more than 40 tokens":                          {entry(2, 0, 30, 0), entry(3, 0, 11, 0)},
		"sequence 2: token 50 at position 0; the vocabulary has": {bad},
	} {
		require.ErrorContains(t, m.Prepare(model.Step{Entries: entries}), want)
	}
	run(t, m, entry(1, 0, 1, 0)) // to 0 is always possible
	require.Equal(t, 1, m.Len(1))
}

// TestBudget: KV caches are charged before they grow, and their bytes come back when
// they are dropped.
func TestBudget(t *testing.T) {
	m, n := open(t)
	run(t, m, entry(1, 0, 40, 0))
	run(t, m, entry(1, 40, 40, 0))
	var full *model.MemoryError
	require.ErrorAs(t, m.Prepare(model.Step{Entries: []model.Entry{entry(2, 0, 21, 0)}}), &full)
	require.Equal(t, model.MemoryError{Seq: 2, Need: 210, Have: 200}, *full)
	require.Len(t, n.caches, 1)
	require.ErrorAs(t, m.Prepare(model.Step{Entries: []model.Entry{entry(1, 80, 11, 0)}}), &full)
	require.EqualValues(t, 1, full.Seq, "the backend has no memory")
	m.Commit(model.Step{Drop: []model.SeqID{1}})
	require.NoError(t, m.Prepare(model.Step{Entries: []model.Entry{entry(2, 0, 21, 0)}}))
	require.EqualValues(t, 210, m.SequenceBytes(21))
	m.SetSequenceBudget(100)
	require.EqualValues(t, 100, m.SequenceBudget())
	require.ErrorIs(t, m.Prepare(model.Step{Entries: []model.Entry{entry(3, 0, 1, 0)}}), model.ErrNoMemory)
}

// TestBuffers: what cannot be allocated leaves nothing behind.
func TestBuffers(t *testing.T) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	var x, none []float32
	var ids []int32
	list := []decoder.Buffer{{F32: &x, Len: 3}, {F32: &none}, {I32: &ids, Len: 2}}
	require.EqualValues(t, 20, decoder.BufferBytes(list))
	require.NoError(t, decoder.Allocate(b, list))
	require.Len(t, x, 3)
	require.Len(t, ids, 2)
	require.Nil(t, none)
	decoder.Free(b, list)
	require.Nil(t, x)
	require.Nil(t, ids)
	require.Error(t, decoder.Allocate(full{b}, list))
	require.Nil(t, x)
	require.Nil(t, ids)
}

// full is a backend that has memory for 12 bytes at a time.
type full struct{ kernels.Backend }

func (f full) Alloc(n int) ([]byte, error) {
	if n < 12 {
		return nil, errors.New("full")
	}
	return f.Backend.Alloc(n)
}
