package decodertest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/snapshot"
)

// CheckpointMemory checks that the most memory of a checkpoint is CheckpointBytes, that
// checkpoints and forks are charged before anything is allocated, with an error that names
// the sequence, and that what they take comes back.
func (a Architecture) CheckpointMemory(t *testing.T) {
	c := a.Small(t)
	b, m := a.weighed(t, InMemory(t, c), decoder.OpenOptions{MaxTokens: 64})
	each := m.CheckpointBytes()
	run := func(s model.Step) error {
		_, err := m.Forward(context.Background(), s)
		if err == nil {
			m.Commit(s)
		}
		return err
	}
	take := func(id model.SeqID, at ...int) model.Step {
		return model.Step{Checkpoints: []model.Checkpoints{{Seq: id, At: at}}}
	}
	ids := RandomIDs(rand.New(rand.NewPCG(11, 12)), c.Vocab, 400)
	extend(t, m, 1, ids, 0, 1, 1)
	var most, before int64
	for n := 1; n < 300; n++ {
		before = b.now
		require.NoError(t, run(take(1, n)))
		most = max(most, b.now-before)
		require.NoError(t, run(take(1)))
		require.Equal(t, before, b.now, "freed")
		extend(t, m, 1, ids, n, n+1, 1)
	}
	require.Equal(t, each, most)

	one := m.SequenceBytes(300)
	if each > 0 {
		m.SetSequenceBudget(one + 2*each - 1)
		require.NoError(t, run(take(1, 280)))
		before = b.now
		var full *model.MemoryError
		for range 2 {
			require.ErrorAs(t, run(take(1, 280, 290)), &full)
			require.Equal(t, model.MemoryError{Seq: 1, Need: each, Have: each - 1}, *full)
			require.ErrorAs(t, run(take(1, 290)), &full, "that at 280 counts until the commit")
		}
		require.Equal(t, before, b.now)
		require.NoError(t, run(take(1)))
	}
	m.SetSequenceBudget(2*one + 3*each - 1)
	require.NoError(t, run(take(1, 280, 290)))
	fork := model.Step{Forks: []model.Fork{{Seq: 2, From: 1, Length: 285}}}
	before = b.now
	var full *model.MemoryError
	require.ErrorAs(t, run(fork), &full)
	if each > 0 {
		require.Equal(t, model.MemoryError{Seq: 2, Need: each, Have: each - 1}, *full, "for the checkpoint that it inherits")
	} else {
		require.Equal(t, model.MemoryError{Seq: 2, Need: one, Have: one - 1}, *full)
	}
	m.SetSequenceBudget(2*one + 3*each)
	two := model.Step{Forks: append(slices.Clone(fork.Forks), model.Fork{Seq: 3, From: 1, Length: 285})}
	require.ErrorAs(t, run(two), &full)
	require.Equal(t, model.MemoryError{Seq: 3, Need: one}, *full)
	require.NoError(t, run(fork))
	m.Commit(model.Step{Drop: []model.SeqID{2, 3}})
	require.Equal(t, before, b.now)
	m.SetSequenceBudget(0)
	b.full = true
	require.ErrorAs(t, run(fork), &full)
	require.EqualValues(t, 2, full.Seq)
	if each > 0 {
		require.ErrorAs(t, run(take(1, 280, 290, 295)), &full)
		require.EqualValues(t, 1, full.Seq)
	}
	b.full = false
	require.NoError(t, run(fork))
	require.NoError(t, run(model.Step{Drop: []model.SeqID{1}}))
	extend(t, m, 2, ids, 285, 300, 5)
	require.NoError(t, run(model.Step{Drop: []model.SeqID{2}}))
	extend(t, m, 3, ids, 0, 300, 64)
}

// ForksAreRefused checks that the model refuses a step with impossible checkpoints, forks or
// drops, says why, and does not change.
func (a Architecture) ForksAreRefused(t *testing.T) {
	c := a.Small(t)
	m := a.OpenOn(t, InMemory(t, c), false, decoder.OpenOptions{MaxTokens: 96, Context: 400})
	anywhere := m.Info().Rewind >= 400
	ids := RandomIDs(rand.New(rand.NewPCG(13, 14)), c.Vocab, 400)
	extend(t, m, 1, ids, 0, 100, 50)
	at100 := model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{100}}}}
	require.NoError(t, m.Prepare(at100))
	m.Commit(at100)
	extend(t, m, 1, ids, 100, 200, 50)
	extend(t, m, 1, ids, 180, 190, 50)
	fork := func(id, from model.SeqID, n int) model.Step {
		return model.Step{Forks: []model.Fork{{Seq: id, From: from, Length: n}}}
	}
	take := func(id model.SeqID, at ...int) model.Step {
		return model.Step{Checkpoints: []model.Checkpoints{{Seq: id, At: at}}}
	}
	with := func(s model.Step, other model.Step) model.Step {
		return model.Step{Drop: append(s.Drop, other.Drop...), Forks: append(s.Forks, other.Forks...),
			Checkpoints: append(s.Checkpoints, other.Checkpoints...), Entries: append(s.Entries, other.Entries...)}
	}
	entry := func(id model.SeqID, pos int) model.Step {
		return model.Step{Entries: []model.Entry{{Seq: id, Pos: pos, Tokens: ids[:1]}}}
	}
	drop := func(id model.SeqID) model.Step { return model.Step{Drop: []model.SeqID{id}} }
	for want, s := range map[string]model.Step{
		"sequence 2: a fork of the first 0 tokens of sequence 1, which has 190":                                                                fork(2, 1, 0),
		"sequence 2: a fork of the first 191 tokens of sequence 1, which has 190":                                                              fork(2, 1, 191),
		"sequence 2: a fork of the first 5 tokens of sequence 7, which has 0":                                                                  fork(2, 7, 5),
		"sequence 3: a fork of the first 5 tokens of sequence 2, which has 0":                                                                  with(fork(2, 1, 190), fork(3, 2, 5)),
		"sequence 1: it cannot be a fork because it exists":                                                                                    fork(1, 1, 190),
		"sequence 2: a fork twice in one step":                                                                                                 with(fork(2, 1, 190), fork(2, 1, 189)),
		"sequence 2: checkpoints of a fork of the same step":                                                                                   with(fork(2, 1, 190), take(2)),
		"sequence 1: checkpoints twice in one step":                                                                                            with(take(1, 190), take(1)),
		"sequence 1: checkpoints at [190 190]; expected ascending lengths from 1 on":                                                           take(1, 190, 190),
		"sequence 1: checkpoints at [0]; expected ascending lengths from 1 on":                                                                 take(1, 0),
		"sequence 1: 129 checkpoints; at most 128 are possible":                                                                                take(1, make([]int, snapshot.MaxCheckpoints+1)...),
		"sequence 1: a checkpoint at 191, but it has 190":                                                                                      take(1, 191),
		"sequence 2: a checkpoint at 1, but it has 0":                                                                                          take(2, 1),
		"sequence 2: tokens at position 150, but it has 140":                                                                                   with(fork(2, 1, 140), entry(2, 150)),
		"sequence 2: dropped by a step that uses it otherwise than as the source":                                                              with(fork(2, 1, 190), drop(2)),
		"sequence 1: dropped by a step that uses it otherwise than as the source":                                                              with(take(1), drop(1)),
		"dropped by a step that uses it otherwise than as the source of forks":                                                                 with(entry(1, 190), drop(1)),
		"sequence 1: a checkpoint at 101, but it has been at 200; at most 64 positions":                                                        take(1, 100, 101),
		"sequence 2: a fork of the first 101 tokens of sequence 1, which has been at 200 and has checkpoints at [100]; without one at most 64": fork(2, 1, 101),
		"which has been at 200 and has checkpoints at []":                                                                                      with(take(1), fork(2, 1, 100)),
		"sequence 2: rewind from 200 to 135; at most 64 positions":                                                                             with(fork(2, 1, 140), entry(2, 135)),
	} {
		if anywhere && strings.Contains(want, "200") {
			require.NoError(t, m.Prepare(s), want)
			continue
		}
		require.ErrorContains(t, m.Prepare(s), want)
	}
	require.Zero(t, m.Len(2))
	if below := with(fork(2, 1, 100), entry(2, 99)); anywhere {
		require.NoError(t, m.Prepare(below))
	} else {
		require.ErrorContains(t, m.Prepare(below), "sequence 2: rewind from 164 to 99; at most 64 positions")
	}
	require.NoError(t, m.Prepare(with(fork(2, 1, 136), entry(2, 136))))
	require.NoError(t, m.Prepare(with(fork(2, 1, 100), entry(2, 100))))
	require.NoError(t, m.Prepare(with(fork(2, 1, 100), entry(2, 0))))
	require.NoError(t, m.Prepare(take(7)), "nothing to free")
}

// SnapshotsHaveCheckpoints checks that a copy made by one snapshot, or a range of positions
// at a time, has the checkpoints of the sequence and forks as that does, in a model with
// other longest steps; and that a damaged checkpoint is refused.
func (a Architecture) SnapshotsHaveCheckpoints(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	g := a.grove(t, decoder.OpenOptions{MaxTokens: 48}, 5)
	to := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 7})
	var known []int32 // of the sequence that is copied in pieces
	have := 0         // positions that need not be copied again
	piece := func(n int) {
		var out bytes.Buffer
		require.NoError(t, g.m.SnapshotFrom(&out, 1, g.trees[1].ids[:n], have))
		require.InDelta(t, g.m.StateBytes(1, have, n), out.Len(), float64(20<<10+out.Len()/1000))
		var err error
		known, err = to.RestoreFrom(&out, 1, known)
		require.NoError(t, err)
		have = n
	}
	g.id()
	for _, n := range []int{5, 90, 128, 200, 260} {
		g.grow(1, n-g.m.Len(1), 30)
		if g.r.IntN(2) == 0 {
			piece(n)
		}
		at := append(slices.Clone(g.trees[1].at), n-1, n)
		if n == 200 {
			at = at[1:]
		}
		g.run(model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: at}}})
		have = min(have, n-2)
		g.grow(1, 7, 7)
		piece(n - 1) // with one of the two
	}
	g.run(model.Step{Entries: []model.Entry{g.entry(1, 259, 90-48)}}) // the checkpoint at 260 is gone
	have = min(have, 259)
	g.grow(1, 40, 20)
	piece(g.m.Len(1))
	at := []int{5, 89, 90, 127, 128, 199, 200, 259}
	require.Equal(t, at, g.trees[1].at)

	var whole, again bytes.Buffer
	require.NoError(t, g.m.Snapshot(&whole, 1, known))
	data := whole.Bytes()
	h, total, err := snapshot.Measure(data)
	require.NoError(t, err)
	require.Equal(t, at, h.Checkpoints)
	require.EqualValues(t, len(data), total)
	// The copy may still have what the source has freed, until a step says which it has.
	s := model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: at}}}
	require.NoError(t, to.Prepare(s))
	to.Commit(s)
	require.NoError(t, to.Snapshot(&again, 1, known))
	require.True(t, bytes.Equal(data, again.Bytes()), "the copy in pieces")
	_, err = to.Restore(bytes.NewReader(data), 2)
	require.NoError(t, err)
	again.Reset()
	require.NoError(t, to.Snapshot(&again, 2, known))
	require.True(t, bytes.Equal(data, again.Bytes()), "the copy at once")

	more := RandomIDs(g.r, c.Vocab, 50)
	for _, n := range append(at, g.m.Len(1)) {
		var want [][]float32
		for i, from := range []struct {
			m   model.Model
			seq model.SeqID
		}{{g.m, 1}, {to, 1}, {to, 2}} {
			s := model.Step{Forks: []model.Fork{{Seq: 50, From: from.seq, Length: n}}}
			_, err := from.m.Forward(context.Background(), s)
			require.NoError(t, err)
			from.m.Commit(s)
			got := Feed(t, from.m, 50, n, more, Always(7))
			from.m.Commit(model.Step{Drop: []model.SeqID{50}})
			if i == 0 {
				want = got
			}
			RequireSame(t, want, got, fmt.Sprint("fork at ", n, " of copy ", i))
		}
	}
	if g.m.CheckpointBytes() > 0 {
		data[len(data)-9] ^= 1
		_, err = to.Restore(bytes.NewReader(data), 3)
		require.ErrorIs(t, err, snapshot.ErrDamaged)
		require.ErrorContains(t, err, `sequence 3: the checkpoint at 259: section "checkpoint 259": the checksum of block`)
		require.Zero(t, to.Len(3))
	}
}
