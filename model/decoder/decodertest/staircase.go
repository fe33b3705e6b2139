package decodertest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// climber is a sequence of climb.
type climber struct {
	at, peak int
	until    int   // of the prompt that it is in the midst of; 0: it is whole
	taken    []int // checkpoints
}

// climb draws up to so many steps of at most 48 tokens of five sequences that grow to about length
// tokens. Some run prompts with an Until, in chunks; others run tokens whose logits are
// wanted, rewind, take checkpoints, and begin as forks of a checkpoint. Half of the
// prompts want the logits of their last token.
func climb(r *rand.Rand, vocab, rewind, length, steps int) (list []model.Step) {
	const most = 48
	runs := make([]climber, 5)
	for len(list) < steps && slices.ContainsFunc(runs, func(x climber) bool { return x.at <= length }) {
		var s model.Step
		room := most
		for _, id := range r.Perm(len(runs)) {
			x, seq := &runs[id], model.SeqID(id)
			if room == 0 || x.at > length || r.IntN(3) == 0 {
				continue
			}
			if source := r.IntN(len(runs)); x.at == 0 && len(runs[source].taken) > 0 {
				from := runs[source].taken
				n := from[r.IntN(len(from))]
				if slices.ContainsFunc(s.Entries, func(e model.Entry) bool { return int(e.Seq) == source && e.Pos < n }) {
					continue // this step rewinds the source
				}
				if slices.ContainsFunc(s.Checkpoints, func(c model.Checkpoints) bool { return int(c.Seq) == source }) {
					continue
				}
				*x = climber{at: n, peak: n + rewind, taken: upTo(from, n)}
				s.Forks = append(s.Forks, model.Fork{Seq: seq, From: model.SeqID(source), Length: n})
			} else if x.at > 0 && x.until == 0 && !slices.Contains(x.taken, x.at) && len(x.taken) < 6 && r.IntN(3) == 0 {
				x.taken = append(slices.Clip(x.taken), x.at)
				s.Checkpoints = append(s.Checkpoints, model.Checkpoints{Seq: seq, At: x.taken})
			}
			e := model.Entry{Seq: seq, Pos: x.at}
			n := min(1+r.IntN(most), room)
			switch {
			case x.until == 0 && r.IntN(3) > 0:
				x.until = x.at + 1 + r.IntN(length)
				fallthrough
			case x.until > 0:
				if e.Until = x.until; x.at+n >= e.Until {
					e.Want = model.Want(r.IntN(2)) // none or the last
					n, x.until = e.Until-x.at, 0
				}
			default:
				n, e.Want = min(1+r.IntN(3), room), model.WantAll
				back := rewind - (x.peak - x.at) // as far as it can
				if r.IntN(2) == 0 {
					back = r.IntN(rewind + 1)
				}
				if r.IntN(2) == 0 && x.peak-x.at+back <= rewind && back < x.at &&
					!slices.ContainsFunc(s.Checkpoints, func(c model.Checkpoints) bool { return c.Seq == seq }) {
					e.Pos -= back
					x.taken = upTo(x.taken, e.Pos)
				}
			}
			room -= n
			e.Tokens = RandomIDs(r, vocab, n)
			x.at = e.Pos + n
			x.peak = max(x.peak, x.at)
			s.Entries = append(s.Entries, e)
		}
		if len(s.Entries) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// withoutUntil are steps that leave nothing out.
func withoutUntil(steps []model.Step) []model.Step {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Entries = slices.Clone(steps[i].Entries)
		for j := range steps[i].Entries {
			steps[i].Entries[j].Until = 0
		}
	}
	return steps
}

// Staircase checks that entries with an Until give the bits of entries without, wherever
// prompts end, pause and continue, in any company, after rewinds and for forks, also of random
// shapes.
func (a Architecture) Staircase(t *testing.T) {
	a.shapes(t, [3]int{3, 8, 40}, 41, func(t *testing.T, r *rand.Rand, f *gguf.File, lazy bool) {
		o := decoder.OpenOptions{MaxTokens: 48}
		info := a.OpenOn(t, f, false, o).Info()
		steps := climb(r, info.Vocab, info.Rewind, 350, 60)
		got, _, err := Play(a.OpenOn(t, f, lazy, o), steps)
		require.NoError(t, err)
		RequireSame(t, a.PlayAlone(t, f, o, withoutUntil(steps)), got, "with and without Until")
	})
}

// StaircaseOnRanks checks the same of groups that divide heads or rows or neither, with
// digests that agree.
func (a Architecture) StaircaseOnRanks(t *testing.T) {
	shares := [][]float64{Ones(2), {1, 5, 1}}
	if testenv.Rest(t, testenv.Full, "four and five ranks") {
		shares = append(shares, []float64{1, 2, 3, 4}, Ones(5))
	}
	c := a.Small(t)
	f := InMemory(t, c)
	for _, reduce := range []parallel.Reduce{parallel.Exact, parallel.Sum} {
		o := decoder.OpenOptions{MaxTokens: 48, Reduce: reduce, Wire: parallel.F32}
		steps := climb(rand.New(rand.NewPCG(43, uint64(len(shares)))), c.Vocab, a.OpenOn(t, f, false, o).Info().Rewind, 350, 20)
		want := a.PlayAlone(t, f, o, withoutUntil(steps))
		for i, s := range shares {
			all := a.OpenAll(t, f, len(s), i%2 > 0, o)
			for _, p := range []parallel.Placement{
				all.Place(t, parallel.ShareAll, s), all.Place(t, parallel.ShareAll, s).DivideRows(1),
				all.Place(t, parallel.ShareExperts, s).DivideRows(1),
			} {
				plain := want
				if reduce == parallel.Sum { // in the order of these ranks
					all.join(t, memory.Groups(len(all)), p)
					plain = all.Play(t, withoutUntil(steps))
				}
				all.join(t, memory.Groups(len(all)), p)
				RequireSame(t, plain, all.Play(t, steps), fmt.Sprint(reduce, s, p))
			}
		}
	}
}

// routed counts the rows that layers route.
type routed struct {
	kernels.Backend
	rows int
}

// Route implements kernels.Backend.
func (b *routed) Route(a kernels.RouteArgs) {
	b.rows += a.Rows
	b.Backend.Route(a)
}

// StaircaseLeavesOut checks how many rows the layers compute of a prompt that is run in
// chunks: all in the layers before the last that makes history, after that those from which
// the tokens from Info.Rewind before the end on can be reached. It checks the promises
// that a partial sequence demands, and that it is restored as such.
func (a Architecture) StaircaseLeavesOut(t *testing.T, c synthetic.Config, from, window int) {
	inner, err := cpu.New(1)
	require.NoError(t, err)
	b := &routed{Backend: inner}
	f := InMemory(t, c)
	m := a.openWith(t, f, b, decoder.OpenOptions{MaxTokens: 48})
	rewind := m.Info().Rewind
	require.Equal(t, 1+rewind+(window-1)*(c.Layers-from), m.Info().Tail)
	ids := RandomIDs(rand.New(rand.NewPCG(4, 1)), c.Vocab, 400)
	entry := func(at, n, until int) model.Entry {
		return model.Entry{Seq: 1, Pos: at, Tokens: ids[at : at+n], Until: until}
	}
	run := func(s model.Step) {
		_, err := m.Forward(t.Context(), s)
		require.NoError(t, err)
		m.Commit(s)
	}
	const length = 300
	for at := 0; at < length; at += 40 {
		run(model.Step{Entries: []model.Entry{entry(at, min(40, length-at), length)}})
	}
	want := 0
	for l := range c.Layers {
		want += length
		if l >= from {
			want -= max(0, length-1-rewind-(window-1)*(c.Layers-1-l))
		}
	}
	require.Equal(t, want, b.rows)

	// In the midst of a prompt.
	run(model.Step{Drop: []model.SeqID{1}})
	run(model.Step{Entries: []model.Entry{entry(0, 40, 40)}})
	run(model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{40}}}, Entries: []model.Entry{entry(40, 48, 390)}})
	least := min(390, 88+m.Info().Tail)
	for says, s := range map[string]model.Step{
		fmt.Sprintf("tokens at position 88 up to 0; it is partial up to %d", least):             {Entries: []model.Entry{entry(88, 1, 0)}},
		fmt.Sprintf("tokens at position 88 up to %d; it is partial up to %d", least-1, least):   {Entries: []model.Entry{entry(88, 1, least-1)}},
		fmt.Sprintf("tokens at position 80 up to 88; it is partial up to %d", least):            {Entries: []model.Entry{entry(80, 1, 88)}},
		fmt.Sprintf("a checkpoint at 88, but it is partial up to %d", least):                    {Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{40, 88}}}},
		fmt.Sprintf("which has been at 88, is partial up to %d, and has checkpoints at", least): {Forks: []model.Fork{{Seq: 2, From: 1, Length: 88}}},
		"logits wanted before position 300":                                                     {Entries: []model.Entry{{Seq: 3, Tokens: ids[:4], Want: model.WantLast, Until: 300}}},
		"to be extended to 100000000":                                                           {Entries: []model.Entry{{Seq: 3, Tokens: ids[:4], Until: 100000000}}},
	} {
		require.ErrorContains(t, m.Prepare(s), says)
	}
	var snapshot bytes.Buffer
	require.NoError(t, m.Snapshot(&snapshot, 1, ids[:88]))
	_, err = m.Restore(&snapshot, 4)
	require.NoError(t, err)
	e := entry(88, 1, 0)
	e.Seq = 4
	require.ErrorContains(t, m.Prepare(model.Step{Entries: []model.Entry{e}}), "it is partial")

	// Both continue to the least end, the other forks at the checkpoint.
	fresh := Feed(t, a.OpenOn(t, f, false, decoder.OpenOptions{}), 1, 0, ids, Always(400))
	run(model.Step{Forks: []model.Fork{{Seq: 2, From: 1, Length: 40}}})
	for at := 88; at < least; at += 24 {
		e := entry(at, min(24, least-at), least)
		other := e
		other.Seq = 4
		run(model.Step{Entries: []model.Entry{other, e}})
	}
	for seq, at := range map[model.SeqID]int{1: least, 2: 40, 4: least} {
		rows, err := m.Forward(context.Background(), model.Step{Entries: []model.Entry{{Seq: seq, Pos: at, Tokens: ids[at : at+30], Want: model.WantAll}}})
		require.NoError(t, err)
		RequireSame(t, fresh[at:at+30], rows, fmt.Sprint("sequence ", seq))
	}
}
