package decodertest

import (
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
	_, f, steps := a.small(t, 81)
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
					all.interrupted(t, parallel.ShareAll, []model.Step{step})
				}
				if i%2 == 1 && len(all) > 1 {
					all = all[:len(all)-1]
				}
				shares := make([]float64, len(all))
				for i := range shares {
					shares[i] = 0.2 + r.Float64()
				}
				all.rejoin(t, memory.Groups(len(all)), all.Place(t, BothShares[r.IntN(2)], shares))
			}
			RequireSame(t, want, all.Play(t, []model.Step{step}), fmt.Sprintf("step %d on %d ranks", i, len(all)))
			require.Equal(t, one.Len(1), all[0].Len(1))
		}
		require.Len(t, all, 1, "all but one are lost in the end")
	}
}

// interrupted runs steps in which the last rank, at host-c, fails. It returns the errors of
// the others.
func (all Members) interrupted(t *testing.T, how parallel.Share, steps []model.Step) []error {
	groups, last := memory.Groups(len(all)), len(all)-1
	all[:last].rejoin(t, groups, all.Place(t, how, Ones(len(all))))
	errs := make([]error, last)
	var done sync.WaitGroup
	for r := range errs {
		done.Go(func() { _, _, errs[r] = Play(all[r], steps) })
	}
	groups[last].Fail(&distributed.PeerError{Rank: last, Addr: "host-c", Cause: "connection closed"})
	done.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, distributed.ErrPeerGone)
	}
	return errs
}

// Epochs checks that the same models join one group after another, with other sizes and
// shares, and run alone in between. No state of one epoch remains in the next.
func (a Architecture) Epochs(t *testing.T) {
	c, f, steps := a.small(t, 29)
	for _, lazy := range []bool{false, true} {
		o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
		want := a.PlayAlone(t, f, o, steps)
		all := a.OpenAll(t, f, 3, lazy, o)
		all.Join(t, parallel.ShareAll, []float64{1, 5, 1})
		RequireSame(t, want, all.Play(t, steps), "first")
		require.Positive(t, all[1].Len(1))

		// The third rank dies within a step, and the other two get an error.
		for _, m := range all[:2] {
			m.Forget()
			require.Zero(t, m.Len(1))
		}
		for _, err := range all.interrupted(t, parallel.ShareExperts, steps) {
			require.ErrorContains(t, err, fmt.Sprintf("%s: layer %d: all_gather", a.Name, c.Latent.Dense))
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
