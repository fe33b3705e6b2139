package decodertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// pair is rank 0 and its helper.
type pair struct {
	t      *testing.T
	home   decoder.Decoder
	groups []*distributed.Group
	steps  chan func() error // of the helper
	ended  chan error        // its first error
	helper decoder.Decoder
	helped int // steps
	mixed  int // of which it computes some entries
	// digests and own are those of the helper and of rank 0, by step.
	digests []chan []uint32
	own     [][]uint32
}

// withHelper joins both with a placement.
func withHelper(t *testing.T, home, helper decoder.Decoder, p parallel.Placement) *pair {
	x := &pair{t: t, home: home, helper: helper, groups: memory.Groups(2), steps: make(chan func() error, 100), ended: make(chan error, 1)}
	require.NoError(t, home.Join(x.groups[0], p))
	require.NoError(t, helper.Join(x.groups[1], p))
	go func() {
		for do := range x.steps {
			if err := do(); err != nil {
				x.groups[1].Fail(&distributed.PeerError{Rank: 1, Addr: "host-b", Cause: err.Error()})
				x.ended <- err
				return
			}
		}
		x.ended <- nil
	}()
	return x
}

// end waits for the helper.
func (x *pair) end() {
	require.NoError(x.t, x.home.Settle())
	close(x.steps)
	require.NoError(x.t, <-x.ended)
	for i, d := range x.digests {
		digest := <-d
		require.Equal(x.t, len(x.own[i]), len(digest), "the digest of step %d", i)
		for k, sum := range digest { // 0 is for what a rank does not know
			require.True(x.t, sum == 0 || sum == x.own[i][k] && k == len(digest)-1, "step %d, position %d", i, k)
		}
	}
}

// run runs and commits a step on both; keeps are the tokens that its entries keep.
func (x *pair) run(step model.Step, keeps []int) [][]float32 {
	step.Help = x.home.Help(step)
	if step.Help != nil {
		x.helped++
		if slices.Contains(step.Help, model.Unhelped) {
			x.mixed++
		}
	}
	committed, err := step.Truncated(keeps)
	require.NoError(x.t, err)
	require.NoError(x.t, x.home.Prepare(step))
	digest := make(chan []uint32, 1)
	x.digests = append(x.digests, digest)
	x.steps <- func() error {
		if err := x.helper.Prepare(step); err != nil {
			return err
		}
		rows, err := x.helper.Run(x.t.Context())
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("the helper has %d rows of logits", len(rows))
		}
		digest <- slices.Clone(x.helper.Digest())
		x.helper.Commit(committed)
		return err
	}
	rows, err := x.home.Run(x.t.Context())
	require.NoError(x.t, err)
	logits := appendRows(nil, rows)
	x.own = append(x.own, slices.Clone(x.home.Digest()))
	x.home.Commit(committed)
	return logits
}

// WithHelper checks that a model whose last layers a helper computes in long steps has the bits
// of one rank, whichever steps go through the helper, and that the helper has the caches of its
// layers alone.
func (a Architecture) WithHelper(t *testing.T) {
	cases := 6
	if testenv.At(testenv.Full) {
		cases = 24
	}
	c := a.Small(t)
	f := InMemory(t, c)
	plan, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 256}, 1)
	require.NoError(t, err)
	for i := range cases {
		r := rand.New(rand.NewPCG(uint64(i), 197))
		o := decoder.OpenOptions{MaxTokens: 256, Reduce: []parallel.Reduce{parallel.Sum, parallel.Exact}[i%2]}
		one := a.OpenOn(t, f, false, o)
		steps, kept := longHistory(r, c.Vocab, one.Info().Rewind)
		// Short and long ones, a prompt in chunks behind an answer, and steps beside it.
		steps, kept = append(steps, steps[0], steps[1]), append(kept, kept[0], kept[1])
		for j := range 2 {
			s := &steps[len(steps)-2+j]
			s.Entries = append([]model.Entry(nil), s.Entries...)
			for k := range s.Entries {
				s.Entries[k].Seq += 10
			}
		}
		// A fork of which the helper has nothing, and a prompt.
		steps, kept = append(steps, model.Step{Forks: []model.Fork{{Seq: 30, From: 4, Length: 139}}, Entries: []model.Entry{
			{Seq: 30, Pos: 139, Tokens: RandomIDs(r, c.Vocab, 3), Want: model.WantAll}, {Seq: 31, Tokens: RandomIDs(r, c.Vocab, 150), Want: model.WantLast},
			{Seq: 4, Pos: 139, Tokens: RandomIDs(r, c.Vocab, 1), Want: model.WantLast}}}), append(kept, []int{2, 150, 1})
		if one.Info().Tail > 0 { // of which steps of one rank leave rows out
			for at := 0; at < 600; at += 200 {
				e := model.Entry{Seq: 20, Pos: at, Tokens: RandomIDs(r, c.Vocab, 200), Until: 600}
				if at == 400 {
					e.Want = model.WantLast
				}
				steps, kept = append(steps, model.Step{Entries: []model.Entry{e}}), append(kept, []int{200})
			}
			last := model.Entry{Seq: 20, Pos: 600, Tokens: RandomIDs(r, c.Vocab, 30), Want: model.WantAll}
			steps, kept = append(steps, model.Step{Entries: []model.Entry{last}}), append(kept, []int{30})
		}
		p := randomHelper(t, r, plan)
		p[1].Help.Missing = []int64{1 << 40, 0, 2000}[i%3]
		home, helper := a.OpenOn(t, f, i%3 == 0, o), a.OpenOn(t, f, false, o)
		x := withHelper(t, home, helper, p)
		for j, step := range steps {
			want := feedStep(t, one, step, kept[j])
			RequireSame(t, want, x.run(step, kept[j]), fmt.Sprintf("case %d, step %d: %v", i, j, p[1]))
			require.Equal(t, one.Len(1), home.Len(1))
		}
		x.run(model.Step{Drop: []model.SeqID{1}}, nil)
		x.end()
		if p[1].Help.Missing == 0 {
			require.Positive(t, x.mixed, "steps of which the helper computes some entries")
		}
		if p[1].Help.Rows <= 64 {
			require.GreaterOrEqual(t, x.helped, 2, "steps with the helper")
		}
		require.Equal(t, one.SequenceBytes(200), home.SequenceBytes(200))
		require.Less(t, helper.SequenceBytes(200), one.SequenceBytes(200))
	}
}

// HelperIsLost checks that the loss of a helper costs nothing but time, within a step and before
// the state of the last step has arrived, and that another helper may follow.
func (a Architecture) HelperIsLost(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	o := decoder.OpenOptions{MaxTokens: 256}
	plan, err := arch.Plan(f, o, 1)
	require.NoError(t, err)
	one, home, helper := a.OpenOn(t, f, false, o), a.OpenOn(t, f, false, o), a.OpenOn(t, f, false, o)
	r := rand.New(rand.NewPCG(5, 6))
	p := randomHelper(t, r, plan)
	p[1].Help.Rows, p[1].Help.Missing = 1, 1<<40
	pos := map[model.SeqID]int{}
	step := func(id model.SeqID, n int, want model.Want) model.Step {
		s := model.Step{Entries: []model.Entry{{Seq: id, Pos: pos[id], Tokens: RandomIDs(r, c.Vocab, n), Want: want}}}
		pos[id] += n
		return s
	}
	all := func(s model.Step) (n []int) {
		for _, e := range s.Entries {
			n = append(n, len(e.Tokens))
		}
		return n
	}
	lost := &distributed.PeerError{Rank: 1, Addr: "host-b", Cause: "connection closed"}
	for i, alone := range []bool{true, false, true} {
		x := withHelper(t, home, helper, p)
		s := step(1, 90, model.WantLast)
		RequireSame(t, feedStep(t, one, s, all(s)), x.run(s, all(s)), "with the helper")
		x.end()
		// The helper takes the rows of a step and is lost before it sends their state.
		home.Forget()
		one.Forget()
		clear(pos)
		groups := memory.Groups(2)
		require.NoError(t, home.Join(groups[0], p))
		both := step(1, 40, model.WantNone)
		both.Entries = append(both.Entries, step(2, 50, model.WantNone).Entries...)
		feedStep(t, one, both, all(both))
		both.Help = home.Help(both)
		require.NotNil(t, both.Help)
		require.NoError(t, home.Prepare(both))
		heard := make(chan error, 1)
		go func() {
			heard <- groups[1].Recv(t.Context(), make([]byte, 90*plan.CarriedRow), 0)
			groups[1].Fail(lost)
		}()
		_, err = home.Run(t.Context())
		require.NoError(t, err)
		require.NoError(t, <-heard)
		home.Commit(both)
		// Within the next step, which runs again.
		next := step(1, 30, model.WantLast)
		next.Help = home.Help(next)
		require.NoError(t, home.Prepare(next))
		_, err = home.Run(t.Context())
		require.ErrorIs(t, err, distributed.ErrPeerGone)
		next.Help = nil
		if alone {
			require.NoError(t, home.Join(nil, nil))
			require.NoError(t, home.Prepare(next))
			got, err := home.Run(t.Context())
			require.NoError(t, err)
			RequireSame(t, feedStep(t, one, next, all(next)), appendRows(nil, got), fmt.Sprint("alone, ", i))
			home.Commit(next)
			home.Commit(model.Step{Drop: []model.SeqID{1}})
			one.Commit(model.Step{Drop: []model.SeqID{1}})
			s := step(2, 3, model.WantAll)
			RequireSame(t, feedStep(t, one, s, all(s)), feedStep(t, home, s, all(s)), fmt.Sprint("the other sequence, ", i))
		} else {
			x := withHelper(t, home, helper, p)
			RequireSame(t, feedStep(t, one, next, all(next)), x.run(next, all(next)), "another helper")
			s := step(2, 60, model.WantAll)
			RequireSame(t, feedStep(t, one, s, all(s)), x.run(s, all(s)), "the other sequence with another helper")
			require.Equal(t, 2, x.helped)
			x.end()
		}
		home.Forget()
		one.Forget()
		clear(pos)
	}
}

// feedStep runs and commits a step on one rank.
func feedStep(t *testing.T, m decoder.Decoder, step model.Step, keeps []int) [][]float32 {
	rows, err := m.Forward(t.Context(), step)
	require.NoError(t, err)
	logits := appendRows(nil, rows)
	step, err = step.Truncated(keeps)
	require.NoError(t, err)
	m.Commit(step)
	return logits
}

// randomHelper draws a placement with a helper.
func randomHelper(t *testing.T, r *rand.Rand, plan decoder.Plan) parallel.Placement {
	var cuts []int
	for layer := 1; layer < plan.Layers; layer++ {
		if plan.Splits[layer] {
			cuts = append(cuts, layer)
		}
	}
	require.NotEmpty(t, cuts, "the model can be divided")
	sizes := plan.Sizes
	sizes.Layers = plan.Layers
	p, err := parallel.WithHelper(sizes, cuts[r.IntN(len(cuts))], parallel.Help{Rows: 1 + r.IntN(100)})
	require.NoError(t, err)
	return p
}
