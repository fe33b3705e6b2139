package decodertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// DigestSees checks that different tokens give a different digest, of the choices or at
// least of the hidden state. A step without rows has no digest.
func (a Architecture) DigestSees(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	digest := func(token int32) []uint32 {
		all := a.OpenAll(t, f, 2, false, decoder.OpenOptions{MaxTokens: 8})
		all.Join(t, parallel.ShareExperts, Ones(2))
		all.Play(t, []model.Step{{Entries: []model.Entry{{Seq: 1, Tokens: []int32{5, token}, Want: model.WantNone}}}})
		d := append([]uint32(nil), all[0].Digest()...)
		all.Play(t, []model.Step{{Drop: []model.SeqID{1}}})
		require.Empty(t, all[0].Digest())
		return d
	}
	one, same, other := digest(7), digest(7), digest(8)
	require.Len(t, one, c.Layers+1)
	require.Equal(t, one, same)
	if c.HashLayers > 0 {
		require.NotEqual(t, one[0], other[0], "the first layer chooses by token")
	}
	require.NotEqual(t, one[c.Layers], other[c.Layers])
}

// Prepare checks that a prepared step needs no more memory, and that a step that cannot
// be prepared is refused as Forward would refuse it.
func (a Architecture) Prepare(t *testing.T) {
	b, m := a.weighed(t, InMemory(t, a.Small(t)), decoder.OpenOptions{MaxTokens: 64})
	step := model.Step{Entries: []model.Entry{
		{Seq: 1, Tokens: make([]int32, 40), Want: model.WantAll}, {Seq: 2, Tokens: make([]int32, 3), Want: model.WantLast}}}
	before := b.now
	require.NoError(t, m.Prepare(step))
	require.Zero(t, m.Len(1))
	require.Greater(t, b.now, before)
	b.full = true
	_, err := m.Run(context.Background())
	require.NoError(t, err)
	m.Commit(step)

	gap := model.Step{Entries: []model.Entry{{Seq: 1, Pos: 50, Tokens: []int32{1}}}}
	require.ErrorContains(t, m.Prepare(gap), "at position 50, but it has 40")
	more := model.Step{Entries: []model.Entry{{Seq: 3, Tokens: make([]int32, 2)}}}
	err = m.Prepare(more)
	require.ErrorIs(t, err, model.ErrNoMemory)
	var which *model.MemoryError
	require.ErrorAs(t, err, &which)
	require.EqualValues(t, 3, which.Seq)
	b.full = false
	require.NoError(t, m.Prepare(more))
}

// StatsFromOutside checks that the statistics may be read while the model runs.
func (a Architecture) StatsFromOutside(t *testing.T) {
	c, f, steps := a.small(t, 31)
	all := a.OpenAll(t, f, 2, false, decoder.OpenOptions{MaxTokens: 48})
	all.Join(t, parallel.ShareExperts, Ones(2))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				all[0].LayerStats()
			}
		}
	}()
	all.Play(t, steps)
	close(stop)
	<-done
	stats := all[0].LayerStats()
	require.Len(t, stats, c.Layers)
	rows := 0
	for _, s := range steps {
		for _, e := range s.Entries {
			rows += len(e.Tokens)
		}
	}
	for i, s := range stats {
		require.Positive(t, s.Compute)
		n := a.exchanges(t, f, &c, i, parallel.ShareExperts)
		require.EqualValues(t, 2*n*rows*c.Embd, s.Sent, "half a row of the hidden size for each token, once")
		require.EqualValues(t, n*len(steps), s.Exchanges)
	}
}
