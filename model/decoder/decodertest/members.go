package decodertest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// History is one random run: steps with their committed entries.
func History(r *rand.Rand, vocab int) []model.Step {
	var steps []model.Step
	at := map[model.SeqID]int{}
	add := func(entries ...model.Entry) {
		for i := range entries {
			e := &entries[i]
			e.Pos = at[e.Seq]
			at[e.Seq] += len(e.Tokens)
		}
		steps = append(steps, model.Step{Entries: entries})
	}
	tokens := func(seq model.SeqID, n int, want model.Want) model.Entry {
		return model.Entry{Seq: seq, Tokens: RandomIDs(r, vocab, n), Want: want}
	}
	add(tokens(1, 37, model.WantAll))
	add(tokens(1, 1, model.WantLast), tokens(2, 29, model.WantNone))
	add(tokens(2, 13, model.WantLast), tokens(3, 3, model.WantAll), tokens(1, 1, model.WantLast))
	for range 3 {
		add(tokens(3, 1, model.WantLast), tokens(1, 1, model.WantLast), tokens(2, 1, model.WantLast))
	}
	at[5] = 30
	add(tokens(5, 9, model.WantAll), tokens(1, 1, model.WantLast))
	fork := &steps[len(steps)-1]
	fork.Checkpoints, fork.Forks = []model.Checkpoints{{Seq: 1, At: []int{30}}}, []model.Fork{{Seq: 5, From: 1, Length: 30}}
	add(tokens(4, 1, model.WantLast))
	steps[len(steps)-1].Drop = []model.SeqID{5}
	return steps
}

// Play runs the steps and returns all logits and all digests.
func Play(m decoder.Decoder, steps []model.Step) (logits [][]float32, digests [][]uint32, err error) {
	return playKept(m, steps, nil)
}

// playKept is Play with the numbers of tokens that each step keeps at its commit; nil: all.
func playKept(m decoder.Decoder, steps []model.Step, kept [][]int) (logits [][]float32, digests [][]uint32, err error) {
	for i, s := range steps {
		if err := m.Prepare(s); err != nil {
			return nil, nil, err
		}
		rows, err := m.Run(context.Background())
		if err != nil {
			return nil, nil, err
		}
		logits = appendRows(logits, rows)
		digests = append(digests, append([]uint32(nil), m.Digest()...))
		if kept != nil {
			if s, err = s.Truncated(kept[i]); err != nil {
				return nil, nil, err
			}
		}
		m.Commit(s)
	}
	return logits, digests, nil
}

// PlayAlone loads a model, runs the steps on one rank and returns all logits.
func (a Architecture) PlayAlone(t testing.TB, f *gguf.File, o decoder.OpenOptions, steps []model.Step) [][]float32 {
	logits, _, err := Play(a.OpenOn(t, f, false, o), steps)
	require.NoError(t, err)
	return logits
}

// small is the model Small, and a History of it that is drawn from seed.
func (a Architecture) small(t testing.TB, seed uint64) (synthetic.Config, *gguf.File, []model.Step) {
	c := a.Small(t)
	return c, InMemory(t, c), History(rand.New(rand.NewPCG(seed, seed+1)), c.Vocab)
}

// Members are the models of a group in one process.
type Members []decoder.Decoder

// OpenAll loads a model n times, as OpenOn does.
func (a Architecture) OpenAll(t testing.TB, f *gguf.File, n int, lazy bool, o decoder.OpenOptions) Members {
	all := make(Members, n)
	for i := range all {
		all[i] = a.OpenOn(t, f, lazy, o)
	}
	return all
}

// BothShares are the choices of what is divided.
var BothShares = []parallel.Share{parallel.ShareExperts, parallel.ShareAll}

// Place divides the members' model.
func (all Members) Place(t testing.TB, how parallel.Share, shares []float64) parallel.Placement {
	p, err := parallel.Place(how, all[0].Sizes(), shares)
	require.NoError(t, err)
	return p
}

// Join forms a new group of all members, without sequences.
func (all Members) Join(t testing.TB, how parallel.Share, shares []float64) {
	all.join(t, memory.Groups(len(all)), all.Place(t, how, shares))
}

// join is Join with groups and a placement.
func (all Members) join(t testing.TB, groups []*distributed.Group, p parallel.Placement) {
	for _, m := range all {
		m.Forget()
	}
	all.rejoin(t, groups, p)
}

// rejoin is join, but the sequences stay.
func (all Members) rejoin(t testing.TB, groups []*distributed.Group, p parallel.Placement) {
	for r, m := range all {
		require.NoError(t, m.Join(groups[r], p))
	}
}

// Play runs the steps on all ranks, checks that all ranks did the same, and returns the
// logits of rank 0.
func (all Members) Play(t testing.TB, steps []model.Step) [][]float32 {
	return all.playKept(t, steps, nil)
}

// playKept is Play with the numbers of tokens that each step keeps; nil: all.
func (all Members) playKept(t testing.TB, steps []model.Step, kept [][]int) [][]float32 {
	logits, digests, errs := make([][][]float32, len(all)), make([][][]uint32, len(all)), make([]error, len(all))
	var done sync.WaitGroup
	for r, m := range all {
		done.Go(func() {
			if logits[r], digests[r], errs[r] = playKept(m, steps, kept); errs[r] != nil {
				t.Logf("rank %d: %v", r, errs[r]) // first, because the others wait for it
			}
		})
	}
	done.Wait()
	for r := range all {
		require.NoError(t, errs[r], "rank %d", r)
		require.Equal(t, digests[0], digests[r], "rank %d", r)
		if r > 0 {
			require.Empty(t, logits[r])
		}
	}
	return logits[0]
}

// Ones are n equal shares.
func Ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

var groupShares = [][]float64{
	Ones(1), Ones(2), Ones(3), Ones(4), Ones(5), Ones(8),
	{3, 1}, {1, 2, 4}, {5, 1, 1, 2}, {1, 2, 3, 4, 5}, {8, 7, 6, 5, 4, 3, 2, 1},
}
