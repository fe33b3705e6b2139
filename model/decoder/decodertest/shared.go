package decodertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/decoder"
)

// exported returns a snapshot.
func exported(t *testing.T, x model.Export) []byte {
	t.Helper()
	defer x.Stop()
	var out bytes.Buffer
	for {
		piece, err := x.Next()
		if errors.Is(err, io.EOF) {
			return out.Bytes()
		}
		require.NoError(t, err)
		out.Write(piece)
	}
}

// imported makes a sequence of snapshots that follow each other.
func imported(t *testing.T, x model.Import, data []byte) []int32 {
	t.Helper()
	for piece := range slices.Chunk(data, 100_003) {
		_, err := x.Write(piece)
		require.NoError(t, err)
	}
	tokens, err := x.Close()
	require.NoError(t, err)
	return tokens
}

// SnapshotsAreShared checks that a snapshot that one sequence wrote up to a checkpoint, and
// one that another sequence wrote from there on, make a sequence that continues, rewinds
// and forks with the bits of one that ran all its tokens, however long both have been; also
// the first snapshot alone.
func (a Architecture) SnapshotsAreShared(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	from := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 48})
	to := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 7})
	fresh := a.OpenOn(t, f, false, decoder.OpenOptions{})
	r := rand.New(rand.NewPCG(71, 72))
	rewind := from.Info().Rewind
	run := func(m model.Model, s model.Step) {
		_, err := m.Forward(t.Context(), s)
		require.NoError(t, err)
		m.Commit(s)
	}
	same := func(id model.SeqID, before, more []int32, what string) {
		t.Helper()
		want := Feed(t, fresh, 1, 0, slices.Concat(before, more), Always(400))[len(before):]
		fresh.Commit(model.Step{Drop: []model.SeqID{1}})
		RequireSame(t, want, Feed(t, to, id, len(before), more, Always(7)), what)
	}
	all := testenv.Rest(t, testenv.Full, "each length with each longer one")
	for i, at := range []int{5, 128, 259} {
		for j, longer := range []int{1, 40, 150} {
			if i != j && !all {
				continue
			}
			first := RandomIDs(r, c.Vocab, at+longer)
			extend(t, from, 1, first, 0, at, 41)
			run(from, model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{at}}}})
			extend(t, from, 1, first, at, at+longer, 41)
			shared := exported(t, from.(model.Portable).Export(1, first[:at], 0))
			for _, tail := range []int{0, 1, 63, 90, 200} {
				what := fmt.Sprintf("%d tokens of a sequence of %d, and %d more", at, at+longer, tail)
				ids := slices.Concat(first[:at], RandomIDs(r, c.Vocab, tail))
				data := shared
				if tail > 0 {
					extend(t, from, 2, ids, 0, len(ids), 29)
					data = slices.Concat(shared, exported(t, from.(model.Portable).Export(2, ids, at)))
					from.Commit(model.Step{Drop: []model.SeqID{2}})
				}
				require.Equal(t, ids, imported(t, to.(model.Portable).Import(3), data), what)
				more := RandomIDs(r, c.Vocab, 30)
				same(3, ids, more, what)
				whole := slices.Concat(ids, more)
				run(to, model.Step{Forks: []model.Fork{{Seq: 4, From: 3, Length: at}}})
				same(4, ids[:at], RandomIDs(r, c.Vocab, 5), what+", forked")
				least := max(max(len(whole), at+min(longer, rewind))-rewind, 0)
				if least > 1 {
					require.ErrorContains(t, to.Prepare(model.Step{Entries: []model.Entry{{Seq: 3, Pos: least - 1, Tokens: more[:1]}}}), "rewind", what)
				}
				same(3, whole[:least], RandomIDs(r, c.Vocab, 5), what+", rewound")
				to.Commit(model.Step{Drop: []model.SeqID{3, 4}})
			}
			from.Commit(model.Step{Drop: []model.SeqID{1}})
		}
	}
}
