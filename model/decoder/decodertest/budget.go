package decodertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// weighing counts the bytes in use, every allocation in whole pages, and their
// greatest number. It can be told to refuse more.
type weighing struct {
	kernels.Backend
	now, most int64
	full      bool
}

// weighed loads a model on a backend that weighs; both are closed with the test.
func (a Architecture) weighed(t testing.TB, f *gguf.File, o decoder.OpenOptions) (*weighing, decoder.Decoder) {
	inner, err := cpu.New(1)
	require.NoError(t, err)
	b := &weighing{Backend: inner}
	return b, a.openWith(t, f, b, o)
}

func (b *weighing) add(n int) {
	page := os.Getpagesize()
	pages := int64((max(n, -n) + page - 1) / page * page)
	if n < 0 {
		pages = -pages
	}
	b.now += pages
	b.most = max(b.most, b.now)
}

func (b *weighing) Alloc(n int) ([]byte, error) {
	if b.full {
		return nil, fmt.Errorf("no %d bytes", n)
	}
	b.add(n)
	return b.Backend.Alloc(n)
}

func (b *weighing) Free(mem []byte) {
	b.add(-len(mem))
	b.Backend.Free(mem)
}

// SequenceBytes checks that the memory of a sequence is known before it runs, to the
// byte, through every growth of its caches (a.Growths), and that a growth holds no more
// than Plan.Growth in addition.
func (a Architecture) SequenceBytes(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	const maxTokens, length = 512, 10_000
	o := decoder.OpenOptions{Context: length, MaxTokens: maxTokens}
	b, m := a.weighed(t, f, o)
	plan, err := arch.Plan(f, o, 1)
	require.NoError(t, err)
	require.Equal(t, plan.PerSequence(), m.SequenceBytes(length))
	require.Positive(t, plan.Growth)
	require.Zero(t, m.SequenceBytes(0))

	ids := RandomIDs(rand.New(rand.NewPCG(1, 2)), c.Vocab, length)
	before, grew := b.now, 0
	for at := 0; at < length; at += maxTokens {
		step := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids[at:min(at+maxTokens, length)]}}}
		held := b.now
		b.most = b.now
		_, err := m.Forward(context.Background(), step)
		require.NoError(t, err)
		m.Commit(step)
		require.Equal(t, m.SequenceBytes(m.Len(1)), b.now-before, "at %d", m.Len(1))
		require.LessOrEqual(t, b.most, b.now+plan.Growth, "at %d", m.Len(1))
		if b.now > held && at > 0 {
			grew++
		}
	}
	require.Equal(t, a.Growths, grew)
	m.Commit(model.Step{Drop: []model.SeqID{1}})
	require.Equal(t, before, b.now)
}

// SequenceBudget checks that a step is refused before anything is allocated if its KV
// caches exceed the budget, that the error names the sequence, and that dropped bytes are
// free again.
func (a Architecture) SequenceBudget(t *testing.T) {
	b, m := a.weighed(t, InMemory(t, a.Small(t)), decoder.OpenOptions{MaxTokens: 64})
	require.Zero(t, m.SequenceBudget(), "none unless it is asked for")
	one := m.SequenceBytes(10)
	m.SetSequenceBudget(2*one + one/2)
	require.Equal(t, 2*one+one/2, m.SequenceBudget())

	run := func(id model.SeqID, drop ...model.SeqID) error {
		step := model.Step{Drop: drop, Entries: []model.Entry{{Seq: id, Tokens: make([]int32, 10)}}}
		_, err := m.Forward(context.Background(), step)
		if err == nil {
			m.Commit(step)
		}
		return err
	}
	require.NoError(t, run(1))
	require.NoError(t, run(2))
	before := b.now
	for range 3 {
		err := run(3, 1)
		var which *model.MemoryError
		require.ErrorAs(t, err, &which)
		require.Equal(t, model.MemoryError{Seq: 3, Need: one, Have: one / 2}, *which)
		require.Equal(t, before, b.now)
	}
	m.Commit(model.Step{Drop: []model.SeqID{1}})
	require.NoError(t, run(3))
	require.Equal(t, before, b.now)
}

// BuffersOfRanks checks that joining a group allocates what the plan of the rank says,
// whatever is divided and however sums are formed.
func (a Architecture) BuffersOfRanks(t *testing.T) {
	f := InMemory(t, a.Small(t))
	for _, how := range BothShares {
		for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
			for _, wire := range []parallel.Wire{parallel.F16, parallel.F32} {
				o := decoder.OpenOptions{Context: 1024, MaxTokens: 512, Reduce: reduce, Wire: wire}
				plan, err := arch.Plan(f, o, 1)
				require.NoError(t, err)
				b, m := a.weighed(t, f, o)
				placement, err := plan.Place(how, []float64{2, 1, 1})
				require.NoError(t, err)
				require.Equal(t, plan.Sizes, m.Sizes())
				placement[2].Copies = []assign.Set{{1}}
				alone := b.now
				require.NoError(t, m.Join(memory.Groups(3)[1], placement))
				planned := plan.ForRank(1, placement).Buffers - plan.Fixed()
				require.InDelta(t, planned, b.now-alone, float64(12*os.Getpagesize()), "%v, %v, %v", how, reduce, wire)
				require.NoError(t, m.Join(nil, nil))
				require.Equal(t, alone, b.now, "what joining allocated is freed")
			}
		}
	}
}
