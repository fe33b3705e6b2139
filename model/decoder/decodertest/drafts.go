package decodertest

import (
	"math/rand/v2"
	"testing"

	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// TruncatedCommits checks that steps with guesses behind the right tokens, where only
// the right ones are committed, give these the bits of steps of one token, and that the
// others leave no trace, on one rank and on three, also after a rewind.
func (a Architecture) TruncatedCommits(t *testing.T) {
	const length = 300
	r := rand.New(rand.NewPCG(3, 11))
	c := a.Small(t)
	f := InMemory(t, c)
	o := decoder.OpenOptions{MaxTokens: 32, Reduce: parallel.Exact}
	ids := RandomIDs(r, c.Vocab, length)
	want := Feed(t, a.OpenOn(t, f, false, o), 1, 0, ids, Always(1))

	var steps []model.Step
	var kept [][]int
	for at := 0; at < length; {
		right := min(1+r.IntN(9), length-at)
		tokens := append(append([]int32(nil), ids[at:at+right]...), RandomIDs(r, c.Vocab, r.IntN(9))...)
		steps = append(steps, model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: tokens, Want: model.WantAll}}})
		kept = append(kept, []int{right})
		at += right
	}
	for _, ranks := range []int{1, 3} {
		all := a.OpenAll(t, f, ranks, false, o)
		if ranks > 1 {
			all.Join(t, parallel.ShareAll, Ones(ranks))
		}
		rows := all.playKept(t, steps, kept)
		var got [][]float32
		for i, s := range steps {
			got = append(got, rows[:kept[i][0]]...)
			rows = rows[len(s.Entries[0].Tokens):]
		}
		RequireSame(t, want, got, "steps with guesses")
		back := min(60, all[0].Info().Rewind)
		from := length - back
		again := []model.Step{{Entries: []model.Entry{{Seq: 1, Pos: from, Tokens: ids[from:][:20], Want: model.WantAll}}}}
		RequireSame(t, want[from:][:20], all.Play(t, again), "after a rewind")
	}
}
