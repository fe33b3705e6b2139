package decodertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// ChunksAndThreads checks that for random shapes a prompt in one pass, in chunks and
// token by token, on one thread and on more, gives the same bits.
func (a Architecture) ChunksAndThreads(t *testing.T) {
	shapes := 4
	switch {
	case testenv.At(testenv.Exhaustive):
		shapes = 16
	case testenv.At(testenv.Full):
		shapes = 8
	}
	for i := range shapes {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			c := a.Random(t, r)
			path := Write(t, c)
			ids := RandomIDs(r, c.Vocab, 300)
			o := decoder.OpenOptions{MaxTokens: len(ids)}
			whole := Feed(t, a.openFile(t, path, 1, o), 1, 0, ids, Always(len(ids)))
			RequireFinite(t, whole)
			RequireSame(t, whole, Feed(t, a.openFile(t, path, 2, o), 1, 0, ids, Always(len(ids))), "two threads")
			RequireSame(t, whole, Feed(t, a.openFile(t, path, 3, o), 1, 0, ids, func() int { return 1 + r.IntN(130) }), "chunks, three threads")
			RequireSame(t, whole, Feed(t, a.openFile(t, path, 2, decoder.OpenOptions{MaxTokens: 1}), 1, 0, ids, Always(1)), "token by token")
		})
	}
}

// StepLeavesNoTrace checks that neither a step that was cancelled or not committed nor
// rewound tokens change later results.
func (a Architecture) StepLeavesNoTrace(t *testing.T) {
	c := a.Small(t)
	path := Write(t, c)
	r := rand.New(rand.NewPCG(3, 4))
	ids := RandomIDs(r, c.Vocab, 300)
	const most = 96
	o := decoder.OpenOptions{MaxTokens: most}
	want := Feed(t, a.openFile(t, path, 2, o), 1, 0, ids, Always(most))

	m := a.openFile(t, path, 2, o)
	var got [][]float32
	length, peak := 0, 0
	for at := 0; at < len(ids); {
		for range r.IntN(3) {
			other := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: RandomIDs(r, c.Vocab, 1+r.IntN(most)), Want: model.WantLast}}}
			_, err := m.Forward(context.Background(), other)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := m.Forward(ctx, model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids[at : at+1]}}})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, length, m.Len(1))

		n := min(1+r.IntN(most), len(ids)-at)
		got = append(got, Feed(t, m, 1, at, ids[at:at+n], Always(n))...)
		at += n

		// Some wrong tokens are committed, to be rewound by the steps that
		// follow: from the greatest length, as far as is allowed.
		back := r.IntN(min(m.Info().Rewind, 64) + 1)
		Feed(t, m, 1, at, RandomIDs(r, c.Vocab, back), func() int { return 1 + r.IntN(most) })
		length = at + back
		peak = max(peak, length)
		if peak > m.Info().Rewind+1 {
			_, err = m.Forward(context.Background(), model.Step{Entries: []model.Entry{{Seq: 1, Pos: peak - m.Info().Rewind - 1, Tokens: ids[:1]}}})
			require.ErrorContains(t, err, "rewind")
		}
	}
	RequireSame(t, want, got, "after steps that do not count")
}

// SequencesDoNotMix checks that other sequences in a step do not change an answer.
func (a Architecture) SequencesDoNotMix(t *testing.T) {
	c := a.Small(t)
	path := Write(t, c)
	r := rand.New(rand.NewPCG(5, 6))
	const most = 128
	o := decoder.OpenOptions{MaxTokens: most}
	ids := [][]int32{RandomIDs(r, c.Vocab, 200), RandomIDs(r, c.Vocab, 150), RandomIDs(r, c.Vocab, 260)}
	alone := make([][][]float32, len(ids))
	m := a.openFile(t, path, 2, o)
	for i := range ids {
		alone[i] = Feed(t, m, model.SeqID(100+i), 0, ids[i], Always(most))
	}
	m.Commit(model.Step{Drop: []model.SeqID{100, 101, 102}})
	require.Zero(t, m.Len(100))

	together := make([][][]float32, len(ids))
	at := make([]int, len(ids))
	for {
		var s model.Step
		room := most
		for _, i := range r.Perm(len(ids)) {
			if n := min(r.IntN(60), len(ids[i])-at[i], room); n > 0 {
				s.Entries = append(s.Entries, model.Entry{Seq: model.SeqID(i), Pos: at[i], Tokens: ids[i][at[i] : at[i]+n], Want: model.WantAll})
				room -= n
			}
		}
		rows, err := m.Forward(context.Background(), s)
		require.NoError(t, err)
		for _, e := range s.Entries {
			n := len(e.Tokens)
			together[e.Seq] = appendRows(together[e.Seq], rows[:n])
			rows = rows[n:]
			at[e.Seq] += n
		}
		m.Commit(s)
		if at[0] == len(ids[0]) && at[1] == len(ids[1]) && at[2] == len(ids[2]) {
			break
		}
	}
	for i := range ids {
		RequireSame(t, alone[i], together[i], fmt.Sprint("sequence ", i))
	}
}

// Wants checks that only the wanted rows are returned, and that their contents do not
// change.
func (a Architecture) Wants(t *testing.T) {
	c := a.Small(t)
	m := a.openFile(t, Write(t, c), 1, decoder.OpenOptions{MaxTokens: 32})
	ids := RandomIDs(rand.New(rand.NewPCG(1, 1)), c.Vocab, 20)
	all := Feed(t, m, 1, 0, ids, Always(20))
	rows, err := m.Forward(context.Background(), model.Step{Entries: []model.Entry{
		{Seq: 2, Tokens: ids[:7], Want: model.WantNone},
		{Seq: 3, Tokens: ids[:9], Want: model.WantLast},
		{Seq: 4, Tokens: ids[:3], Want: model.WantAll},
	}})
	require.NoError(t, err)
	RequireSame(t, [][]float32{all[8], all[0], all[1], all[2]}, rows, "wanted rows")
}

// ReduceExact checks that rounding each expert's output to float16 changes the logits,
// but only a little, and they remain independent of chunks.
func (a Architecture) ReduceExact(t *testing.T) {
	c := a.Small(t)
	path := Write(t, c)
	ids := RandomIDs(rand.New(rand.NewPCG(8, 9)), c.Vocab, 150)
	sum := Feed(t, a.openFile(t, path, 2, decoder.OpenOptions{}), 1, 0, ids, Always(150))
	exact := Feed(t, a.openFile(t, path, 2, decoder.OpenOptions{Reduce: parallel.Exact}), 1, 0, ids, Always(150))
	RequireSame(t, exact, Feed(t, a.openFile(t, path, 1, decoder.OpenOptions{Reduce: parallel.Exact}), 1, 0, ids, Always(7)), "exact in chunks")
	off := relative(slices.Concat(sum...), slices.Concat(exact...))
	require.NotZero(t, off)
	require.Less(t, off, 0.05)
}

// StepErrors checks that an invalid step is refused with the reason.
func (a Architecture) StepErrors(t *testing.T) {
	c := a.Small(t)
	m := a.openFile(t, Write(t, c), 1, decoder.OpenOptions{MaxTokens: 16, Context: 100})
	Feed(t, m, 1, 0, make([]int32, 99), Always(16))
	for want, entries := range map[string][]model.Entry{
		"entry without tokens":               {{Seq: 9}},
		"twice in one step":                  {{Seq: 9, Tokens: []int32{1}}, {Seq: 9, Tokens: []int32{1}}},
		"at position 3, but it has 0":        {{Seq: 9, Pos: 3, Tokens: []int32{1}}},
		"beyond the context of 100":          {{Seq: 1, Pos: 99, Tokens: []int32{1, 2}}},
		"a step of more than 16 tokens":      {{Seq: 9, Tokens: make([]int32, 17)}},
		"token 512 at position 1":            {{Seq: 9, Tokens: []int32{1, 512}}},
		"token -1 at position 0; the vocabu": {{Seq: 9, Tokens: []int32{-1}}},
		"rewind from 99 to 20":               {{Seq: 1, Pos: 20, Tokens: []int32{1}}},
	} {
		if strings.HasPrefix(want, "rewind") && m.Info().Rewind >= 79 {
			continue
		}
		_, err := m.Forward(context.Background(), model.Step{Entries: entries})
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 99, m.Len(1))
	require.Zero(t, m.Len(9))
}
