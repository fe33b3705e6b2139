package decodertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/snapshot"
	"ringmaster/parallel"
)

// extend runs tokens [from, to) of ids as chunks of sequence id and returns their logits.
func extend(t testing.TB, m decoder.Decoder, id model.SeqID, ids []int32, from, to, chunk int) [][]float32 {
	t.Helper()
	return Feed(t, m, id, from, ids[from:to], Always(chunk))
}

// RestoreIsNeverLeft checks that a restored sequence continues with the bits of one that
// never left, also in a model with other longest steps and another context, after rewinds
// before and after, for lengths around those at which rings wrap and entries complete.
func (a Architecture) RestoreIsNeverLeft(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	from := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48})
	ids := RandomIDs(rand.New(rand.NewPCG(61, 62)), c.Vocab, 600)
	other := RandomIDs(rand.New(rand.NewPCG(67, 68)), c.Vocab, 600)
	next := model.SeqID(1)
	for _, to := range []decoder.Decoder{
		a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48}),
		a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 7, Context: 700}),
		a.OpenOn(t, f, true, decoder.OpenOptions{MaxTokens: 200}),
	} {
		for _, length := range []int{1, 3, 4, 5, 63, 127, 128, 129, 131, 255, 256, 300, 511} {
			id := next
			next++
			extend(t, from, id, ids, 0, length, 41)
			back := min(length-1, 10)
			var file bytes.Buffer
			if back > 0 { // the sequence has been longer
				extend(t, from, id, ids, length-back, length-back+1, 1)
			}
			have := from.Len(id)
			require.NoError(t, from.Snapshot(&file, id, ids[:have]))
			tokens, err := to.Restore(bytes.NewReader(file.Bytes()), id)
			require.NoError(t, err)
			require.Equal(t, ids[:have], tokens)
			require.Equal(t, have, to.Len(id))
			again := &bytes.Buffer{}
			require.NoError(t, to.Snapshot(again, id, tokens))
			require.True(t, bytes.Equal(file.Bytes(), again.Bytes()), "length %d: the snapshot of what was restored", length)

			want := extend(t, from, id, ids, have, have+60, 13)
			got := extend(t, to, id, ids, have, have+60, 6)
			RequireSame(t, want, got, fmt.Sprint("length ", length))
			// A rewind behind the snapshot, as far as it is allowed.
			least := max(0, have+60-64)
			want = extend(t, from, id, other, least, least+5, 5)
			got = extend(t, to, id, other, least, least+5, 5)
			RequireSame(t, want, got, fmt.Sprint("rewind after length ", length))
			for _, m := range []decoder.Decoder{from, to} {
				m.Commit(model.Step{Drop: []model.SeqID{id}})
			}
		}
	}
}

// RestoreContinues copies a sequence a range of positions at a time, while the source
// grows and is rewound. It checks that the copy continues in the end with the bits of one
// that never left.
func (a Architecture) RestoreContinues(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	from := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48})
	small := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 7})
	alike := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48})
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(71, seed))
		to, id := []decoder.Decoder{small, alike}[seed%2], model.SeqID(100+seed)
		var ids, known []int32 // of the sequence, and of what has been copied
		have, peak := 0, 0     // positions that need not be copied again
		copied := func(n int) {
			var piece bytes.Buffer
			require.NoError(t, from.SnapshotFrom(&piece, id, ids[:n], have))
			tokens, err := to.RestoreFrom(&piece, id, known)
			require.NoError(t, err)
			require.Equal(t, ids[:n], tokens)
			known, have = tokens, n
		}
		for range 40 {
			pos, n := len(ids), 1+r.IntN(30)
			if r.IntN(4) == 0 && pos > 0 {
				pos = max(peak-r.IntN(65), 0)
				pos = min(pos, len(ids))
			}
			if pos+n > 600 {
				pos, n = 0, 5
			}
			if pos == 0 {
				peak = 0
			}
			ids = append(ids[:pos:pos], RandomIDs(r, c.Vocab, n)...)
			extend(t, from, id, ids, pos, len(ids), 9)
			have, peak = min(have, pos), max(peak, len(ids))
			if have < len(ids) && r.IntN(3) > 0 {
				copied(have + 1 + r.IntN(len(ids)-have))
			}
		}
		copied(len(ids))
		copied(len(ids)) // nothing but the length
		var here, there bytes.Buffer
		require.NoError(t, from.Snapshot(&here, id, ids))
		require.NoError(t, to.Snapshot(&there, id, ids))
		require.True(t, bytes.Equal(here.Bytes(), there.Bytes()), "seed %d", seed)
		more := append(ids[:len(ids):len(ids)], RandomIDs(r, c.Vocab, 60)...)
		want := extend(t, from, id, more, len(ids), len(more), 13)
		got := extend(t, to, id, more, len(ids), len(more), 6)
		RequireSame(t, want, got, fmt.Sprint("seed ", seed))

		// A snapshot that continues something else is refused and leaves nothing.
		var piece bytes.Buffer
		require.NoError(t, from.SnapshotFrom(&piece, id, more, 3))
		_, err := to.Restore(bytes.NewReader(piece.Bytes()), id+100)
		require.ErrorIs(t, err, snapshot.ErrForeign)
		other := append([]int32(nil), more...)
		other[2] = (other[2] + 1) % int32(c.Vocab)
		_, err = to.RestoreFrom(bytes.NewReader(piece.Bytes()), id, other)
		require.ErrorContains(t, err, "the 3 tokens that a snapshot continues differ from those here")
		require.Zero(t, to.Len(id))
		_, err = to.RestoreFrom(bytes.NewReader(piece.Bytes()), id, more)
		require.ErrorContains(t, err, "but the sequence has 0 here")
		for _, m := range []decoder.Decoder{from, to} {
			m.Commit(model.Step{Drop: []model.SeqID{id}})
		}
	}
}

// RestoreOnRanks checks that ranks that restore a snapshot of one of them continue
// together with the bits of one that never left, under another placement.
func (a Architecture) RestoreOnRanks(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
	ids := RandomIDs(rand.New(rand.NewPCG(63, 64)), c.Vocab, 300)
	one := a.OpenOn(t, f, false, o)
	extend(t, one, 1, ids, 0, 200, 40)
	var file bytes.Buffer
	require.NoError(t, one.Snapshot(&file, 1, ids[:200]))
	step := model.Step{Entries: []model.Entry{{Seq: 1, Pos: 200, Tokens: ids[200:220], Want: model.WantAll}}}
	want, _, err := Play(one, []model.Step{step})
	require.NoError(t, err)
	for _, how := range BothShares {
		all := a.OpenAll(t, f, 3, false, o)
		all.Join(t, how, []float64{1, 3, 1})
		for _, m := range all {
			_, err := m.Restore(bytes.NewReader(file.Bytes()), 1)
			require.NoError(t, err)
		}
		RequireSame(t, want, all.Play(t, []model.Step{step}), how.String())
	}
	// With sum too the ranks of a group have equal state.
	all := a.OpenAll(t, f, 2, false, decoder.OpenOptions{MaxTokens: 48})
	all.Join(t, parallel.ShareAll, Ones(2))
	all.Play(t, []model.Step{{Entries: []model.Entry{{Seq: 1, Tokens: ids[:40], Want: model.WantLast}}}})
	var files [2]bytes.Buffer
	for r, m := range all {
		require.NoError(t, m.Snapshot(&files[r], 1, ids[:40]))
	}
	require.True(t, bytes.Equal(files[0].Bytes(), files[1].Bytes()))
}

// RestoreRefuses checks that what does not fit is refused by name, and leaves nothing.
func (a Architecture) RestoreRefuses(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	m := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48})
	ids := RandomIDs(rand.New(rand.NewPCG(65, 66)), c.Vocab, 100)
	extend(t, m, 1, ids, 0, 100, 48)
	var file bytes.Buffer
	require.ErrorContains(t, m.Snapshot(&file, 1, ids[:99]), "a snapshot with 99 tokens, but it has 100")
	require.ErrorContains(t, m.Snapshot(&file, 2, nil), "sequence 2: a snapshot with 0 tokens, but it has 0")
	require.NoError(t, m.Snapshot(&file, 1, ids))
	data := file.Bytes()

	_, err := m.Restore(bytes.NewReader(data), 1)
	require.ErrorContains(t, err, "sequence 1: it cannot be restored because it exists")
	for i := 0; i < len(data); i += 1 + len(data)/500 {
		bad := bytes.Clone(data)
		bad[i] ^= 4
		_, err := m.Restore(bytes.NewReader(bad), 2)
		require.Error(t, err, "byte %d", i)
		_, err = m.Restore(bytes.NewReader(data[:i]), 2)
		require.ErrorIs(t, err, snapshot.ErrDamaged, "cut at %d", i)
		require.Zero(t, m.Len(2))
	}
	m.SetSequenceBudget(m.SequenceBytes(100) + 1)
	_, err = m.Restore(bytes.NewReader(data), 2)
	require.ErrorIs(t, err, model.ErrNoMemory)
	m.SetSequenceBudget(0)

	other := a.Small(t)
	other.Seed++
	other.Name = "another"
	foreign := a.OpenOn(t, InMemory(t, other), false, decoder.OpenOptions{MaxTokens: 48})
	_, err = foreign.Restore(bytes.NewReader(data), 1)
	require.ErrorIs(t, err, snapshot.ErrForeign)
	narrow := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48, Context: 99})
	_, err = narrow.Restore(bytes.NewReader(data), 1)
	require.ErrorContains(t, err, "a snapshot has 100 tokens; at most 99 fit here")

	_, err = m.Restore(bytes.NewReader(data), 2)
	require.NoError(t, err)
}
