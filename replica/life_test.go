package replica

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// life has sequences that grow, are rewound and forked, take and free checkpoints, end and
// begin at random. It checks that their logits are those of sequences that ran all their
// tokens themselves.
type life struct {
	t       *testing.T
	l       *Leader
	random  *rand.Rand
	guesses *rand.Rand  // of tokens that are run and not committed; nil: none
	plain   model.Model // runs sequences alone
	rewind  int         // Info.Rewind
	live    map[model.SeqID]*living
	last    model.SeqID
	checks  int    // one of so many logits is compared
	rarely  int    // a sequence takes or frees checkpoints in one of so many steps
	mortal  int    // it ends in one of so many
	calm    bool   // sequences only grow, are rewound, end and begin
	between func() // is called before some commits, unless it is nil
	// Counts of what happened.
	forked int // from a length to which the sequence could be rewound
	old    int // from a checkpoint
	freed  int // checkpoints
}

// living is the committed state of a sequence. Its lists are never changed in place.
type living struct {
	tokens []int32
	peak   int
	at     []int // of checkpoints
}

func newLife(t *testing.T, l *Leader, seed uint64) *life {
	plain := enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 4096})
	return &life{t: t, l: l, random: rand.New(rand.NewPCG(seed, 21)), guesses: rand.New(rand.NewPCG(seed, 22)), plain: plain, rewind: l.Info().Rewind, live: map[model.SeqID]*living{}, rarely: 20, mortal: 24, checks: 1}
}

// step runs a step in which each of up to n sequences grows by up to most tokens.
func (f *life) step(n, most int) {
	var s model.Step
	committed := f.ids()
	for _, id := range committed {
		if f.random.IntN(f.rarely) == 0 && !f.calm {
			s.Checkpoints = append(s.Checkpoints, f.checkpoints(id))
		}
	}
	for len(f.live) < n {
		f.last++
		f.live[f.last] = &living{}
		if len(committed) > 0 && !f.calm && f.random.IntN(4) > 0 {
			s.Forks = append(s.Forks, f.fork(f.last, committed[f.random.IntN(len(committed))]))
		}
	}
	for _, id := range f.ids() {
		q := f.live[id]
		named := slices.ContainsFunc(s.Checkpoints, func(c model.Checkpoints) bool { return c.Seq == id })
		from := slices.ContainsFunc(s.Forks, func(x model.Fork) bool { return x.From == id })
		if slices.Contains(committed, id) && !named && f.random.IntN(f.mortal) == 0 {
			s.Drop = append(s.Drop, id)
			delete(f.live, id)
			continue
		}
		back := f.random.IntN(min(f.rewind, 4) + 1)
		if pos := len(q.tokens) - back; f.random.IntN(3) > 0 || named || from || pos < 1 || q.peak-pos > f.rewind {
			back = 0
		}
		s.Entries = append(s.Entries, f.grow(id, back, 1+f.random.IntN(most)))
	}
	if f.random.IntN(8) == 0 { // it is abandoned first
		_, err := f.l.Forward(f.t.Context(), s)
		require.NoError(f.t, err)
	}
	f.run(s)
}

// run runs a step that has been planned.
func (f *life) run(s model.Step) {
	runs := f.guess(&s)
	rows, err := f.l.Forward(f.t.Context(), runs)
	require.NoError(f.t, err)
	if f.between != nil && f.random.IntN(6) == 0 {
		f.between()
	}
	f.l.Commit(s)
	row := -1
	for i, e := range s.Entries {
		first := row
		if row++; e.Want == model.WantAll {
			row = first + len(e.Tokens)
		}
		own := rows[row]
		if e.Want == model.WantAll {
			row = first + len(runs.Entries[i].Tokens)
		}
		if f.random.IntN(f.checks) > 0 {
			continue
		}
		want, err := f.plain.Forward(f.t.Context(), entry(1, 0, model.WantLast, f.live[e.Seq].tokens...))
		require.NoError(f.t, err)
		require.Equal(f.t, want[0], own, "sequence %d, forks %v", e.Seq, s.Forks)
	}
	require.Len(f.t, rows, row+1)
}

// guess returns the step with wrong guesses behind the tokens of some entries, which then
// want all rows.
func (f *life) guess(s *model.Step) model.Step {
	runs := *s
	s.Entries = slices.Clone(s.Entries)
	runs.Entries = slices.Clone(s.Entries)
	if f.guesses == nil {
		return runs
	}
	for i := range runs.Entries {
		if f.guesses.IntN(3) > 0 {
			continue
		}
		e := &runs.Entries[i]
		s.Entries[i].Want, e.Want = model.WantAll, model.WantAll
		e.Tokens = slices.Clone(e.Tokens)
		for range 1 + f.guesses.IntN(5) {
			e.Tokens = append(e.Tokens, int32(f.guesses.IntN(200)))
		}
	}
	return runs
}

// ids returns the sequences, ascending.
func (f *life) ids() (all []model.SeqID) {
	for id := model.SeqID(1); id <= f.last; id++ {
		if f.live[id] != nil {
			all = append(all, id)
		}
	}
	return all
}

// grow plans that a sequence is rewound by so many tokens and grows by n others.
func (f *life) grow(id model.SeqID, back, n int) model.Entry {
	q := f.live[id]
	e := model.Entry{Seq: id, Pos: len(q.tokens) - back, Want: model.WantLast}
	for range n {
		e.Tokens = append(e.Tokens, int32(f.random.IntN(200)))
	}
	tokens := slices.Concat(q.tokens[:e.Pos], e.Tokens)
	f.live[id] = &living{tokens, max(q.peak, len(tokens)), between(q.at, 0, e.Pos)}
	return e
}

// checkpoints plans that a sequence keeps some checkpoints and perhaps takes another.
func (f *life) checkpoints(id model.SeqID) model.Checkpoints {
	q := f.live[id]
	var all []int
	for _, at := range q.at {
		if f.random.IntN(4) > 0 {
			all = append(all, at)
		}
	}
	f.freed += len(q.at) - len(all)
	if n := len(q.tokens) - f.random.IntN(f.rewind+1); n > 0 && q.peak-n <= f.rewind && !slices.Contains(all, n) {
		all = append(all, n)
		slices.Sort(all)
	}
	return f.checkpointsAt(id, all...)
}

// checkpointsAt plans that a sequence has checkpoints at these lengths.
func (f *life) checkpointsAt(id model.SeqID, at ...int) model.Checkpoints {
	f.live[id] = &living{f.live[id].tokens, f.live[id].peak, at}
	return model.Checkpoints{Seq: id, At: at}
}

// fork plans a fork from somewhere.
func (f *life) fork(id, from model.SeqID) model.Fork {
	q := f.live[from]
	n := min(max(q.peak-f.rewind, 1)+f.random.IntN(f.rewind+1), len(q.tokens))
	if len(q.at) > 0 && f.random.IntN(3) > 0 {
		n = q.at[f.random.IntN(len(q.at))]
	}
	return f.forkAt(id, from, n)
}

// forkAt plans a fork of the first n tokens of a sequence.
func (f *life) forkAt(id, from model.SeqID, n int) model.Fork {
	q := f.live[from]
	peak := q.peak
	if q.peak-n > f.rewind {
		peak = n + f.rewind
		f.old++
	} else {
		f.forked++
	}
	f.live[id] = &living{q.tokens[:n:n], peak, between(q.at, 0, n)}
	return model.Fork{Seq: id, From: from, Length: n}
}
