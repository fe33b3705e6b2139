package bringup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"ringmaster/distributed/rdma/matrix"
)

// deadRail is a rail that a rank found dead.
type deadRail struct {
	Attempt matrix.Attempt `json:"attempt"`
	Why     string         `json:"why"`
	Lost    bool           `json:"lost,omitempty"` // its device is gone for this bring-up
}

// failure says why a rail did not carry all tokens, and has the length of the
// longest that it carried, 0 for none.
type failure struct {
	why     string
	carried int
}

// settle proves the rails and chooses the longest messages that all of them carry.
// It returns the dead ones, which carry none. If no rail is dead, the ends stay.
// Each further round has shorter messages, or is the last.
func (b *bringup) settle(ctx context.Context, pairs []railPair) (map[matrix.Attempt]string, error) {
	for again := true; ; {
		failed, err := b.prove(ctx, pairs, true)
		if err != nil || len(failed) == 0 {
			return nil, err
		}
		dead, short, text, more := map[matrix.Attempt]string{}, 0, "", 0
		for _, a := range slices.SortedFunc(maps.Keys(failed), byName) {
			switch f := failed[a]; {
			case f.carried == 0:
				dead[a] = f.why
			case short == 0 || f.carried < short:
				short, text, more = f.carried, fmt.Sprintf("%v: messages of more than %d KiB do not arrive (%s)", a, f.carried>>10, f.why), 0
			case f.carried == short:
				more++
			}
		}
		switch {
		case b.between(short):
			b.ladderComplete = true
		case short > 0:
			if more > 0 {
				text += fmt.Sprintf(", nor over %d other rails", more)
			}
			b.note(fmt.Sprintf("%s: all rails use messages of up to %d KiB", text, short>>10))
			b.shorten(short)
		case !again:
			return dead, nil
		default:
			// The proof is repeated because a fresh queue pair sometimes works in
			// only one direction, and remaking it has cured that.
			again = false
		}
	}
}

func byName(a, b matrix.Attempt) int { return cmp.Compare(a.String(), b.String()) }

// prove makes a queue pair on every rail, connects it and sends tokens each way,
// one after the other. It returns the rails that did not carry all of them, the
// same on all ranks. The ends stay if keep is set and all rails work. An error is
// the error of a whole stage.
func (b *bringup) prove(ctx context.Context, pairs []railPair, keep bool) (map[matrix.Attempt]failure, error) {
	b.dropEnds()
	b.proofs++
	mine, err := b.makeEnds(pairs)
	all, err := vote(ctx, b, "make queue pairs", mine, err)
	if err != nil {
		return nil, err
	}
	former := b.format
	b.format = b.agree(all)
	b.rungs = b.ladder(b.format, keep)
	b.connectEnds(pairs, all)
	if err := b.reachAgain(ctx, pairs, all); err != nil {
		return nil, err
	}
	// The vote ensures that no rank sends before all have posted their receives.
	votes, err := vote(ctx, b, "post receives", b.failed(), nil)
	if err != nil {
		return nil, err
	}
	failed := map[matrix.Attempt]failure{}
	b.heed(votes, failed, 0)
	for _, s := range b.steps() {
		b.tokens(ctx, s)
		if votes, err = vote(ctx, b, fmt.Sprintf("prove the rails by %d bytes", b.rungs[s.rung]), b.failed(), nil); err != nil {
			return nil, err
		}
		carried := 0
		if s.rung > 0 && !s.drain {
			carried = b.rungs[s.rung-1]
		}
		if b.heed(votes, failed, carried) && carried > 0 || len(failed) == len(pairs) {
			break // a rail has shown its longest message, or none is left
		}
	}
	if !keep || len(failed) > 0 {
		b.dropEnds()
		b.format = former
	}
	return failed, nil
}

// failed lists this rank's ends that do not work, except those where only the peer
// knows the reason.
func (b *bringup) failed() []deadRail {
	var failed []deadRail
	for _, e := range b.ends {
		if e.bad != nil && !errors.Is(e.bad, errFar) {
			failed = append(failed, deadRail{e.pair.Attempt, e.bad.Error(), e.dev.ctx.Err() != nil})
		}
	}
	sort.SliceStable(failed, func(i, j int) bool { return failed[i].Attempt.String() < failed[j].Attempt.String() })
	return failed
}

// errFar is the error of an end if its peer found the rail dead.
var errFar = errors.New("the peer's end does not work")

// heed records the failures that all ranks report and gives up the other ends of
// those rails, because no token will arrive there. It reports whether a failure is
// new. carried is the length of the tokens that those rails have carried.
func (b *bringup) heed(votes [][]deadRail, failed map[matrix.Attempt]failure, carried int) bool {
	before := len(failed)
	for r, list := range votes {
		for _, f := range list {
			if _, known := failed[f.Attempt]; !known {
				failed[f.Attempt] = failure{fmt.Sprintf("rank %d: %s", r, f.Why), carried}
			}
			if f.Lost { // noted also while cables are only tried, when a dead rail is expected
				b.note(fmt.Sprintf("%v: rank %d: %s", f.Attempt, r, f.Why))
			}
		}
	}
	for _, e := range b.ends {
		if _, bad := failed[e.pair.Attempt]; bad && e.bad == nil {
			e.bad = errFar
		}
	}
	return len(failed) > before
}
