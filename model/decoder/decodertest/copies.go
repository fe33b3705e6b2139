package decodertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// withCopies gives every rank of a placement random copies, the same in all layers or
// different ones, and a random speed.
func withCopies(r *rand.Rand, p parallel.Placement, layers int) parallel.Placement {
	out := append(parallel.Placement(nil), p...)
	experts := p.Sizes().Experts
	for i := range out {
		n := 1
		if r.IntN(2) > 0 {
			n = layers
		}
		out[i].Copies, out[i].Speed = make([]assign.Set, n), r.IntN(4)
		copied := []float64{0.1, 0.5, 1}[r.IntN(3)]
		for l := range out[i].Copies {
			for e := range experts {
				if r.Float64() < copied {
					out[i].Copies[l].Add(e)
				}
			}
		}
	}
	return out
}

// ExactWithCopies checks that with exact the logits of ranks with any copies of experts, at
// any speeds, are the bits of one rank, with rows divided and undivided, and where copies
// serve only divided steps. Sequences stay while ranks join and leave.
func (a Architecture) ExactWithCopies(t *testing.T) {
	c := a.Small(t)
	c.Experts = 21
	f, steps := InMemory(t, c), History(rand.New(rand.NewPCG(91, 92)), c.Vocab)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
	want := a.PlayAlone(t, f, o, steps)
	r := rand.New(rand.NewPCG(93, 94))
	shares := [][]float64{Ones(2), {1, 5, 1}, {8, 7, 6, 5, 4, 3, 2, 1}}
	if testenv.At(testenv.Exhaustive) {
		shares = groupShares[1:]
	}
	for i, s := range shares {
		all := a.OpenAll(t, f, len(s), i%2 > 0, o)
		for _, how := range BothShares {
			for _, from := range []int{0, 1, 16} {
				p := withCopies(r, all.Place(t, how, s), c.Layers).DivideRows(from)
				p[0].Waits = from == 16
				all.join(t, memory.Groups(len(all)), p)
				RequireSame(t, want, all.Play(t, steps), fmt.Sprint(how, s, from))
			}
		}
	}

	one, all := a.OpenOn(t, f, false, o), a.OpenAll(t, f, 4, false, o)
	chosen := uint64(0)
	for i, step := range steps {
		want, _, err := Play(one, []model.Step{step})
		require.NoError(t, err)
		some := all[:4-i%3]
		some.rejoin(t, memory.Groups(len(some)), withCopies(r, some.Place(t, BothShares[i%2], Ones(len(some))), c.Layers))
		got := some.Play(t, []model.Step{step})
		RequireSame(t, want, got, fmt.Sprintf("step %d on %d ranks", i, len(some)))
		for _, e := range step.Entries {
			chosen += uint64(len(e.Tokens) * c.Used * (c.Layers - c.Latent.Dense))
		}
		for _, m := range all[len(some):] { // they miss nothing
			require.NoError(t, m.Join(nil, nil))
			_, _, err := Play(m, []model.Step{step})
			require.NoError(t, err)
		}
	}
	for r, m := range all { // rank 0 counts what rows chose
		sum := uint64(0)
		for _, counts := range m.Chosen() {
			for _, n := range counts {
				sum += n
			}
		}
		require.Equal(t, map[bool]uint64{true: chosen}[r == 0], sum, "rank %d", r)
	}
}

// SumWithCopies checks that with sum ranks with copies agree, are close to one rank, and
// give a row the same bits whichever rows are beside it and however rows are divided.
func (a Architecture) SumWithCopies(t *testing.T) {
	c := a.Small(t)
	f, steps := InMemory(t, c), History(rand.New(rand.NewPCG(95, 96)), c.Vocab)
	o := decoder.OpenOptions{MaxTokens: 48}
	one := a.PlayAlone(t, f, o, steps)
	ids := RandomIDs(rand.New(rand.NewPCG(97, 98)), c.Vocab, 60)
	r := rand.New(rand.NewPCG(99, 100))
	for i, s := range [][]float64{Ones(2), {1, 2, 4}} {
		all := a.OpenAll(t, f, len(s), i > 0, o)
		p := withCopies(r, all.Place(t, BothShares[i], s), c.Layers)
		all.join(t, memory.Groups(len(s)), p)
		want := all.Play(t, steps)
		require.Less(t, distance(one, want), 0.005)
		all.join(t, memory.Groups(len(s)), p.DivideRows(1))
		RequireSame(t, want, all.Play(t, steps), "divided rows")

		var all0 [][]float32
		for _, chunk := range []int{48, 1, 7} {
			all.join(t, memory.Groups(len(s)), p)
			got := all.Play(t, inChunks(ids, chunk))
			if all0 == nil {
				all0 = got
			}
			RequireSame(t, all0, got, fmt.Sprintf("chunks of %d", chunk))
		}
	}
}

// inChunks is a sequence in steps of so many tokens, with all logits.
func inChunks(ids []int32, chunk int) (steps []model.Step) {
	for at := 0; at < len(ids); at += chunk {
		steps = append(steps, model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids[at:min(at+chunk, len(ids))], Want: model.WantAll}}})
	}
	return steps
}
