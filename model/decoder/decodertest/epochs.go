package decodertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// SequencesOutliveTheirGroup checks that after each step the survivors form a new group,
// with other ranks, shares and divisions, and run an interrupted step again. The logits
// are the bits of one rank that was never disturbed.
func (a Architecture) SequencesOutliveTheirGroup(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	steps := History(rand.New(rand.NewPCG(81, 82)), c.Vocab)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
	for _, lazy := range []bool{false, true} {
		one := a.OpenOn(t, f, false, o)
		all := a.OpenAll(t, f, 4, lazy, o)
		all.Join(t, parallel.ShareAll, Ones(4))
		r := rand.New(rand.NewPCG(83, 84))
		for i, step := range steps {
			want, _, err := Play(one, []model.Step{step})
			require.NoError(t, err)
			if i > 0 {
				// The last rank dies, on every other occasion within the step.
				if i%2 == 0 && len(all) > 2 {
					all.interrupted(t, step)
				}
				if i%2 == 1 && len(all) > 1 {
					all = all[:len(all)-1]
				}
				shares := make([]float64, len(all))
				for i := range shares {
					shares[i] = 0.2 + r.Float64()
				}
				all.Rejoin(t, BothShares[r.IntN(2)], shares)
			}
			RequireSame(t, want, all.Play(t, []model.Step{step}), fmt.Sprintf("step %d on %d ranks", i, len(all)))
			require.Equal(t, one.Len(1), all[0].Len(1))
		}
		require.Len(t, all, 1, "all but one are lost in the end")
	}
}

// interrupted runs a step in which the last rank has failed: the others get an error.
func (all Members) interrupted(t *testing.T, step model.Step) {
	groups := memory.Groups(len(all))
	p := all.Place(t, parallel.ShareAll, Ones(len(all)))
	groups[len(all)-1].Fail(&distributed.PeerError{Rank: len(all) - 1, Cause: "connection closed"})
	var done sync.WaitGroup
	errs := make([]error, len(all)-1)
	for r := range errs {
		require.NoError(t, all[r].Join(groups[r], p))
		done.Go(func() { _, errs[r] = all[r].Forward(context.Background(), step) })
	}
	done.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, distributed.ErrPeerGone)
	}
}

// Epochs checks that the same models join one group after another, with other sizes and
// shares, and run alone in between. No state of one epoch remains in the next.
func (a Architecture) Epochs(t *testing.T) {
	c := a.Small(t)
	f := InMemory(t, c)
	steps := History(rand.New(rand.NewPCG(29, 30)), c.Vocab)
	for _, lazy := range []bool{false, true} {
		o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
		want, _, err := Play(a.OpenOn(t, f, false, o), steps)
		require.NoError(t, err)
		all := a.OpenAll(t, f, 3, lazy, o)
		all.Join(t, parallel.ShareAll, []float64{1, 5, 1})
		RequireSame(t, want, all.Play(t, steps), "first")
		require.Positive(t, all[1].Len(1))

		// The third rank dies within a step, and the other two get an error.
		group := memory.Groups(3)
		placement := all.Place(t, parallel.ShareExperts, Ones(3))
		verdict := &distributed.PeerError{Rank: 2, Addr: "host-c", Cause: "connection closed"}
		var done sync.WaitGroup
		errs := make([]error, 2)
		for r := range errs {
			all[r].Forget()
			require.Zero(t, all[r].Len(1))
			require.NoError(t, all[r].Join(group[r], placement))
			done.Go(func() { _, _, errs[r] = Play(all[r], steps) })
		}
		group[2].Fail(verdict)
		done.Wait()
		for _, err := range errs {
			require.ErrorContains(t, err, fmt.Sprintf("%s: layer %d: all_gather", a.Name, c.Latent.Dense))
			require.ErrorIs(t, err, distributed.ErrPeerGone)
			require.ErrorContains(t, err, "rank 2 at host-c")
		}

		two := all[:2]
		two.Join(t, parallel.ShareAll, []float64{1, 3})
		RequireSame(t, want, two.Play(t, steps), "two are left")
		all[0].Forget()
		require.NoError(t, all[0].Join(nil, nil))
		got, _, err := Play(all[0], steps)
		require.NoError(t, err)
		RequireSame(t, want, got, "alone")
		all.Join(t, parallel.ShareAll, Ones(3))
		RequireSame(t, want, all.Play(t, steps), "all again")
	}
}
