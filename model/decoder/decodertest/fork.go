package decodertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/decoder"
)

// grove has sequences of a model and what each has run, to compare them with sequences that
// ran all their tokens themselves.
type grove struct {
	t     *testing.T
	m     decoder.Decoder
	fresh decoder.Decoder // runs the sequences to compare with
	r     *rand.Rand
	vocab int
	trees map[model.SeqID]*tree
	last  model.SeqID
	cuts  *rand.Rand // of the steps that are committed without some tokens; nil: none
}

// tree is one sequence.
type tree struct {
	ids  []int32
	rows [][]float32 // logits of each token
	peak int
	at   []int // checkpoints
	most int   // greatest length that a step named
}

func (a Architecture) grove(t *testing.T, o decoder.OpenOptions, seed uint64) *grove {
	c := a.Small(t)
	f := InMemory(t, c)
	return &grove{t: t, m: a.OpenOn(t, f, false, o), fresh: a.OpenOn(t, f, false, decoder.OpenOptions{}),
		r: rand.New(rand.NewPCG(seed, 91)), vocab: c.Vocab, trees: map[model.SeqID]*tree{}}
}

func (g *grove) id() model.SeqID {
	g.last++
	return g.last
}

// entry is n random tokens of a sequence from a position on.
func (g *grove) entry(id model.SeqID, pos, n int) model.Entry {
	return model.Entry{Seq: id, Pos: pos, Tokens: RandomIDs(g.r, g.vocab, n), Want: model.WantAll}
}

// forward runs a step without a commit and returns its logits.
func (g *grove) forward(s model.Step) [][]float32 {
	g.t.Helper()
	rows, err := g.m.Forward(context.Background(), s)
	require.NoError(g.t, err)
	return appendRows(nil, rows)
}

// run runs a step, commits it and notes what it does.
func (g *grove) run(s model.Step) {
	g.t.Helper()
	rows := g.forward(s)
	ran := s
	if g.cuts != nil {
		s = g.truncated(s)
	}
	g.m.Commit(s)
	for _, c := range s.Checkpoints {
		g.trees[c.Seq].at = c.At
	}
	for _, f := range s.Forks {
		from := g.trees[f.From]
		x := &tree{ids: from.ids[:f.Length:f.Length], rows: from.rows[:f.Length:f.Length], peak: from.peak, most: f.Length}
		if from.peak-f.Length > g.m.Info().Rewind {
			x.peak = f.Length + g.m.Info().Rewind
		}
		x.at = upTo(from.at, f.Length)
		g.trees[f.Seq] = x
	}
	for i, e := range s.Entries {
		x := g.trees[e.Seq]
		if x == nil {
			x = &tree{}
			g.trees[e.Seq] = x
		}
		if e.Pos == 0 {
			x.peak = 0
		}
		n := len(e.Tokens)
		x.ids = append(x.ids[:e.Pos:e.Pos], e.Tokens...)
		x.rows = append(x.rows[:e.Pos:e.Pos], rows[:n]...)
		named := len(ran.Entries[i].Tokens)
		rows = rows[named:]
		x.at = upTo(x.at, e.Pos)
		x.peak, x.most = max(x.peak, len(x.ids)), max(x.most, e.Pos+named)
	}
	for _, id := range s.Drop {
		delete(g.trees, id)
	}
}

// truncated returns the step without the last tokens of some entries.
func (g *grove) truncated(s model.Step) model.Step {
	kept := make([]int, len(s.Entries))
	for i, e := range s.Entries {
		if kept[i] = len(e.Tokens); g.cuts.IntN(2) == 0 {
			kept[i] = 1 + g.cuts.IntN(len(e.Tokens))
		}
	}
	s, err := s.Truncated(kept)
	require.NoError(g.t, err)
	return s
}

func upTo(at []int, length int) []int {
	return slices.DeleteFunc(slices.Clone(at), func(n int) bool { return n > length })
}

// grow extends a sequence by n tokens in chunks.
func (g *grove) grow(id model.SeqID, n, chunk int) {
	g.t.Helper()
	for n > 0 {
		k := min(n, chunk)
		g.run(model.Step{Entries: []model.Entry{g.entry(id, g.m.Len(id), k)}})
		n -= k
	}
}

// check compares a sequence with one that runs all its tokens.
func (g *grove) check(id model.SeqID, what string) {
	g.t.Helper()
	x := g.trees[id]
	require.Equal(g.t, len(x.ids), g.m.Len(id), what)
	want := Feed(g.t, g.fresh, 1, 0, x.ids, Always(400))
	g.fresh.Commit(model.Step{Drop: []model.SeqID{1}})
	RequireSame(g.t, want, x.rows, what)
}

// takes extends a sequence to each of the lengths and takes a checkpoint there.
func (g *grove) takes(id model.SeqID, lengths ...int) {
	g.t.Helper()
	for i, n := range lengths {
		g.grow(id, n-g.m.Len(id), 40)
		g.run(model.Step{Checkpoints: []model.Checkpoints{{Seq: id, At: lengths[:i+1]}}})
	}
}

// Forks checks that a fork, at a checkpoint or at any length within reach of a rewind,
// continues with the bits of a sequence that ran all its tokens itself. That holds for forks
// of forks, for forks that their own step extends or rewinds, with a checkpoint of the same
// step, and after the source is dropped. The source stays as it is.
func (a Architecture) Forks(t *testing.T) {
	g := a.grove(t, decoder.OpenOptions{MaxTokens: 48}, 1)
	source := g.id()
	at := []int{1, 3, 64, 127, 128, 131, 200, 255, 256}
	g.takes(source, at...)
	g.grow(source, 300-256, 17)
	g.run(model.Step{Entries: []model.Entry{g.entry(source, 290, 3)}}) // it has been longer
	lengths := append(slices.Clone(at), 236, 237, 240, 257, 292, 293)
	for i, n := range lengths {
		fork := g.id()
		s := model.Step{Forks: []model.Fork{{Seq: fork, From: source, Length: n}}}
		if i%2 == 0 { // the step extends the fork and its source
			s.Entries = []model.Entry{g.entry(source, g.m.Len(source), 1), g.entry(fork, n, 5)}
			g.forward(model.Step{Forks: s.Forks, Entries: []model.Entry{g.entry(fork, n, 48)}})
			require.Zero(t, g.m.Len(fork))
		}
		g.run(s)
		g.grow(fork, 40, 1+g.r.IntN(20))
		g.check(fork, fmt.Sprint("fork at ", n))

		// A fork of the fork, at its first length, in the step that drops it.
		again := g.id()
		s = model.Step{Drop: []model.SeqID{fork}, Forks: []model.Fork{{Seq: again, From: fork, Length: n}},
			Entries: []model.Entry{g.entry(again, n, 7)}}
		g.run(s)
		require.Zero(t, g.m.Len(fork))
		g.grow(again, 140, 48)
		g.check(again, fmt.Sprint("fork of a fork at ", n))
		if !slices.Contains(at, n) {
			continue
		}
		deep := g.id() // from the checkpoint that both inherited
		g.run(model.Step{Forks: []model.Fork{{Seq: deep, From: again, Length: at[i/2]}}, Drop: []model.SeqID{again}})
		g.grow(deep, 30, 9)
		g.check(deep, fmt.Sprint("fork of a fork of a fork at ", at[i/2]))
		g.run(model.Step{Drop: []model.SeqID{deep}})
	}
	g.grow(source, 30, 11)
	g.check(source, "source")
	g.interrupt(source)

	// One step takes a checkpoint and makes a fork; the next rewinds the source.
	fork, length := g.id(), g.m.Len(source)-20
	g.run(model.Step{Checkpoints: []model.Checkpoints{{Seq: source, At: []int{64, length}}}, Forks: []model.Fork{{Seq: fork, From: source, Length: length}}})
	g.run(model.Step{Entries: []model.Entry{g.entry(source, length-1, 4), g.entry(fork, length, 20)}})
	require.Equal(t, []int{64}, g.trees[source].at)
	g.run(model.Step{Drop: []model.SeqID{source}})
	g.grow(fork, 90, 48)
	late := g.id()
	g.run(model.Step{Forks: []model.Fork{{Seq: late, From: fork, Length: length}}, Entries: []model.Entry{g.entry(late, length, 30)}})
	g.check(fork, "fork of a source that was dropped")
	g.check(late, "fork at an inherited checkpoint")
}

// interrupt runs a step that forks a sequence and rewinds it to less than the fork, does not
// commit the step, and runs it again. The fork has the state that the first run overwrote;
// no other step may use that state.
func (g *grove) interrupt(id model.SeqID) {
	g.t.Helper()
	fork, length := g.id(), g.m.Len(id)
	pos := length - 6
	s := model.Step{Checkpoints: []model.Checkpoints{{Seq: id, At: []int{64, length - 1}}}, Forks: []model.Fork{{Seq: fork, From: id, Length: length - 1}},
		Entries: []model.Entry{g.entry(id, pos, 9), g.entry(fork, length-1, 4)}}
	g.forward(s)
	says := fmt.Sprintf("it has %d, but a step that was not committed has overwritten them from %d on", length, pos)
	for want, s := range map[string]model.Step{
		"tokens at position":     {Entries: []model.Entry{g.entry(id, length, 1)}},
		"a fork of the first":    {Forks: []model.Fork{{Seq: 1000, From: id, Length: length - 2}}},
		"a checkpoint at":        {Checkpoints: []model.Checkpoints{{Seq: id, At: []int{length}}}},
		"sequence 1000: a fork ": {Forks: []model.Fork{{Seq: 1000, From: id, Length: length}}},
	} {
		err := g.m.Prepare(s)
		require.ErrorContains(g.t, err, want)
		require.ErrorContains(g.t, err, says)
	}
	g.run(s)
	require.Equal(g.t, upTo(g.trees[id].at, pos), g.trees[id].at)
	g.grow(fork, 40, 13)
	g.check(fork, "fork of a step that was interrupted")
	g.check(id, "source that the step rewound")
}

// RandomForks checks the same with random steps that extend, rewind, fork and drop many
// sequences and take checkpoints; some steps run and are not committed, some are committed
// without some of their tokens. The memory in use is
// that which the model charges, and all of it is freed.
func (a Architecture) RandomForks(t *testing.T) {
	seeds := uint64(1)
	switch {
	case testenv.At(testenv.Exhaustive):
		seeds = 6
	case testenv.At(testenv.Full):
		seeds = 3
	}
	for seed := range seeds {
		g := a.grove(t, decoder.OpenOptions{MaxTokens: 96}, seed)
		b, m := a.weighed(t, InMemory(t, a.Small(t)), decoder.OpenOptions{MaxTokens: 96})
		g.m, g.cuts = m, rand.New(rand.NewPCG(seed, 92))
		warm := model.Step{Drop: []model.SeqID{1}} // the buffers of the logits grow with the first
		g.forward(model.Step{Entries: []model.Entry{g.entry(1, 0, 96)}})
		g.m.Commit(warm)
		before := b.now
		g.last = 1
		for range 60 {
			for g.r.IntN(4) == 0 {
				g.forward(g.step(false))
			}
			g.run(g.step(true))
			if ids := g.ids(); len(ids) > 6 {
				id := ids[g.r.IntN(len(ids))]
				if g.r.IntN(3) == 0 {
					g.check(id, fmt.Sprint("seed ", seed, ", dropped sequence ", id))
				}
				g.run(model.Step{Drop: []model.SeqID{id}})
			}
		}
		charged := int64(0)
		for _, id := range g.ids() {
			x := g.trees[id]
			g.check(id, fmt.Sprint("seed ", seed, ", sequence ", id))
			require.Equal(t, x.at, append(x.at[:0:0], g.m.Checkpoints(id)...))
			x.at = x.at[len(x.at)/2:]
			g.m.KeepCheckpoints(id, x.at)
			charged += g.m.SequenceBytes(x.most) + int64(len(x.at))*g.m.CheckpointBytes()
		}
		g.m.Commit(model.Step{}) // what was not committed is gone
		one := g.m.SequenceBytes(1)
		g.m.SetSequenceBudget(charged + one - 1)
		var full *model.MemoryError
		require.ErrorAs(t, g.m.Prepare(model.Step{Entries: []model.Entry{g.entry(1000, 0, 1)}}), &full)
		require.Equal(t, model.MemoryError{Seq: 1000, Need: one, Have: one - 1}, *full, "seed %d", seed)
		g.run(model.Step{Drop: g.ids()})
		require.Equal(t, before, b.now, "seed %d", seed)
	}
}

func (g *grove) ids() (ids []model.SeqID) {
	for id := range g.trees {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// step returns a random valid step. One that will not be committed rewinds nothing, because
// no other step can use what it overwrites, and makes no sequence that would stay.
func (g *grove) step(commits bool) (s model.Step) {
	rewind := g.m.Info().Rewind
	room := 96
	for _, id := range g.ids() {
		x := g.trees[id]
		length := len(x.ids)
		least := max(1, x.peak-rewind) // that a checkpoint, a fork or a rewind reaches
		pos := length
		if commits && least < length && g.r.IntN(5) == 0 {
			pos = max(least+g.r.IntN(length-least), length-70)
		}
		at := x.at
		if g.r.IntN(4) == 0 {
			at = slices.DeleteFunc(slices.Clone(at), func(int) bool { return g.r.IntN(4) == 0 })
			if n := least + g.r.IntN(length-least+1); n <= pos && !slices.Contains(x.at, n) && len(at) < 5 {
				at = append(at, n)
				slices.Sort(at)
			}
			s.Checkpoints = append(s.Checkpoints, model.Checkpoints{Seq: id, At: at})
		}
		if g.r.IntN(5) == 0 && len(g.trees) < 9 && commits {
			n := least + g.r.IntN(length-least+1)
			if len(at) > 0 && g.r.IntN(2) == 0 {
				n = at[g.r.IntN(len(at))]
			}
			if n <= pos {
				fork := g.id()
				s.Forks = append(s.Forks, model.Fork{Seq: fork, From: id, Length: n})
				if k := 1 + g.r.IntN(20); k <= room && g.r.IntN(2) == 0 {
					s.Entries = append(s.Entries, g.entry(fork, n, k))
					room -= k
				}
			}
		}
		if k := 1 + g.r.IntN(40); k <= room && length < 350 && (pos < length || g.r.IntN(2) == 0) {
			s.Entries = append(s.Entries, g.entry(id, pos, k))
			x.most = max(x.most, pos+k)
			room -= k
		}
	}
	if len(g.trees) < 2 && commits {
		s.Entries = append(s.Entries, g.entry(g.id(), 0, 1+g.r.IntN(min(room, 40)+1)))
	}
	return s
}
