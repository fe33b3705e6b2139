package decodertest

import (
	"fmt"
	"math/rand/v2"
	"sync"
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

// longHistory is a random run with steps of so many rows that stages divide them into
// pieces, whose entries begin and end within pieces, with rewinds, forks and drops, and the
// numbers of tokens that each step keeps, as with drafts.
func longHistory(r *rand.Rand, vocab, rewind int) (steps []model.Step, kept [][]int) {
	entry := func(seq model.SeqID, pos, n int, want model.Want) model.Entry {
		return model.Entry{Seq: seq, Pos: pos, Tokens: RandomIDs(r, vocab, n), Want: want}
	}
	back := min(5, rewind)
	steps = []model.Step{
		{Entries: []model.Entry{entry(1, 0, 150, model.WantNone), entry(2, 0, 70, model.WantLast), entry(3, 0, 20, model.WantAll)}},
		{Entries: []model.Entry{entry(1, 150, 140, model.WantLast), entry(2, 70, 1, model.WantLast)}},
		{Entries: []model.Entry{entry(1, 290-back, 9, model.WantAll), entry(2, 71, 1, model.WantLast), entry(3, 20, 1, model.WantLast)}},
		{Checkpoints: []model.Checkpoints{{Seq: 2, At: []int{72}}}, Entries: []model.Entry{entry(2, 72, 90, model.WantNone)}},
		{Forks: []model.Fork{{Seq: 4, From: 2, Length: 72}}, Drop: []model.SeqID{3},
			Entries: []model.Entry{entry(4, 72, 66, model.WantAll), entry(1, 298-back, 1, model.WantLast)}},
		{Entries: []model.Entry{entry(2, 162, 1, model.WantLast), entry(4, 138, 1, model.WantLast)}},
	}
	kept = make([][]int, len(steps))
	for i, s := range steps {
		for _, e := range s.Entries {
			kept[i] = append(kept[i], len(e.Tokens))
		}
	}
	kept[2][0]-- // the last draft is wrong
	return steps, kept
}

// InStages checks that a model in stages has the bits of one rank: stages of one and of
// several ranks, that divide experts alone or everything, also rows, with steps in one piece
// and in several.
func (a Architecture) InStages(t *testing.T) {
	cases := 6
	if testenv.At(testenv.Full) {
		cases = 24
	}
	c := a.Small(t)
	f := InMemory(t, c)
	plan, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 256}, 1)
	require.NoError(t, err)
	for i := range cases {
		r := rand.New(rand.NewPCG(uint64(i), 97))
		o := decoder.OpenOptions{MaxTokens: 256, Reduce: parallel.Exact}
		one := a.OpenOn(t, f, false, o)
		steps, kept := longHistory(r, c.Vocab, one.Info().Rewind)
		want, _, err := playKept(one, steps, kept)
		require.NoError(t, err)
		p := randomStages(t, r, plan, i)
		all := a.OpenAll(t, f, len(p), i%3 == 0, o)
		all.stage(t, memory.Groups(len(all)), p)
		RequireSame(t, want, all.playStages(t, steps, kept, p), fmt.Sprint(p.Stages()))
		if i == 0 { // the caches of layers outside of the stage take nothing
			require.Less(t, all[0].SequenceBytes(200), one.SequenceBytes(200))
			sum := int64(0)
			for _, s := range p.Stages() {
				sum += all[s.Ranks.Start].SequenceBytes(200)
			}
			require.InEpsilon(t, one.SequenceBytes(200), sum, 0.02)
		}
	}
}

// randomStages draws a placement in stages of 2 to 5 ranks.
func randomStages(t *testing.T, r *rand.Rand, plan decoder.Plan, i int) parallel.Placement {
	var cuts []int
	for layer := 1; layer < plan.Layers; layer++ {
		if plan.Splits[layer] {
			cuts = append(cuts, layer)
		}
	}
	require.NotEmpty(t, cuts, "the model can be divided into stages")
	ranks := 2 + r.IntN(4)
	stages := 2 + r.IntN(min(ranks-1, len(cuts)))
	if i == 0 {
		ranks, stages = 2, 2
	}
	r.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
	chosen := append([]int{0, plan.Layers}, cuts[:stages-1]...)
	var layers []parallel.Range
	for at := 0; at < plan.Layers; {
		next := plan.Layers
		for _, x := range chosen {
			if x > at {
				next = min(next, x)
			}
		}
		layers = append(layers, parallel.Range{Start: at, End: next})
		at = next
	}
	parts := make([]parallel.Placement, stages)
	left := ranks - stages
	for s := range parts {
		n := 1
		if extra := r.IntN(left + 1); s == stages-1 || extra > 0 {
			if s == stages-1 {
				extra = left
			}
			n, left = n+extra, left-extra
		}
		shares := make([]float64, n)
		for k := range shares {
			shares[k] = 0.3 + r.Float64()
		}
		p, err := plan.Place(BothShares[r.IntN(2)], shares)
		require.NoError(t, err)
		if r.IntN(2) == 0 {
			p = p.DivideRows(1 + r.IntN(100))
		}
		parts[s] = p
	}
	return parallel.InStages(layers, parts)
}

// stage joins all members at the same time, because stages split the group.
func (all Members) stage(t *testing.T, groups []*distributed.Group, p parallel.Placement) {
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for r, m := range all {
		done.Go(func() {
			inside, err := p.SplitStages(t.Context(), groups[r])
			if errs[r] = err; err == nil {
				errs[r] = m.JoinStage(groups[r], inside, p)
			}
		})
	}
	done.Wait()
	for r := range all {
		require.NoError(t, errs[r], "rank %d", r)
	}
}

// playStages is Play of members in stages: ranks agree on what several of them have
// computed.
func (all Members) playStages(t *testing.T, steps []model.Step, kept [][]int, p parallel.Placement) [][]float32 {
	logits, digests, errs := make([][][]float32, len(all)), make([][][]uint32, len(all)), make([]error, len(all))
	var done sync.WaitGroup
	for r, m := range all {
		done.Go(func() {
			if logits[r], digests[r], errs[r] = playKept(m, steps, kept); errs[r] != nil {
				t.Logf("rank %d: %v", r, errs[r])
			}
		})
	}
	done.Wait()
	for r := range all {
		require.NoError(t, errs[r], "rank %d", r)
		if r > 0 {
			require.Empty(t, logits[r])
		}
	}
	stages := p.Stages()
	for i := range steps {
		for k := range digests[0][i] {
			seen := map[uint32]int{}
			for r := range all {
				if sum := digests[r][i][k]; sum != 0 {
					seen[sum]++
				}
			}
			require.LessOrEqual(t, len(seen), 1, "step %d, position %d of the digest", i, k)
			if k == len(digests[0][i])-1 {
				for sum := range seen {
					require.GreaterOrEqual(t, seen[sum], 2, "the final hidden states of stage %d arrived at the first: %x", len(stages)-1, sum)
				}
			}
		}
	}
	return logits[0]
}
