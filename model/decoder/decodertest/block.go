package decodertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/kernels/reference"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// Guess returns copies of the logits [entries][depth][vocabulary] with which a model
// drafts so many tokens for each entry, always the one with the largest logit.
func Guess(t testing.TB, m model.Drafter, depth int, entries ...model.DraftEntry) [][][]float32 {
	out := make([][][]float32, len(entries))
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Most = depth
	}
	drafts, err := m.Draft(context.Background(), entries, func(i, at int, logits []float32) (int32, bool) {
		require.Len(t, out[i], at)
		out[i] = append(out[i], slices.Clone(logits))
		best := 0
		for j, v := range logits {
			if v > logits[best] {
				best = j
			}
		}
		return int32(best), true
	})
	require.NoError(t, err)
	for i := range entries {
		require.Len(t, drafts[i], len(out[i]))
	}
	return out
}

// blockShape is a model with a block: Small, and then random ones.
func (a Architecture) blockShape(t testing.TB, i int, r *rand.Rand) synthetic.Config {
	c := a.Small(t)
	if i > 0 {
		c = a.Random(t, r)
	}
	c.Block, c.Latent.Split = synthetic.BlockJoined, 1
	return c
}

// reach is how many of the last rows a row of the block attends to, at most the rows of
// the steps of the tests.
func reach(c *synthetic.Config, rows int) int {
	if c.Arch == "deepseek4" {
		return min(rows, c.Window)
	}
	return rows
}

// oneByOne runs tokens one at a time and returns what the block guesses behind each but
// the last, [tokens-1][depth][vocabulary].
func oneByOne(t testing.TB, m decoder.Decoder, ids []int32, depth int) (guesses [][][]float32) {
	for p := range len(ids) - 1 {
		Feed(t, m, 1, p, ids[p:p+1], Always(1))
		guesses = append(guesses, Guess(t, m, depth, model.DraftEntry{Seq: 1, Token: ids[p+1]})[0])
		require.Len(t, guesses[p], depth)
	}
	return guesses
}

// DraftsFollow checks that what a block guesses depends on the committed tokens alone: not
// on the chunks in which they came, tokens that were not committed, guesses in between, or
// forks.
func (a Architecture) DraftsFollow(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			const rows, depth = 32, 3
			r := rand.New(rand.NewPCG(uint64(i), 81))
			c := a.blockShape(t, i, r)
			f := InMemory(t, c)
			o := decoder.OpenOptions{MaxTokens: rows, DraftFile: f}
			ids := RandomIDs(r, c.Vocab, 200)
			want := oneByOne(t, a.OpenOn(t, f, false, o), ids, depth)

			m, id, compared := a.OpenOn(t, f, i%2 > 0, o), model.SeqID(1), 0
			for at := 0; at < len(ids)-1; {
				n := 1 + r.IntN(min(reach(&c, rows), len(ids)-1-at))
				tokens := append(slices.Clone(ids[at:at+n]), RandomIDs(r, c.Vocab, r.IntN(rows-n+1))...)
				step := model.Step{Entries: []model.Entry{{Seq: id, Pos: at, Tokens: tokens, Want: model.WantAll}}}
				_, err := m.Forward(context.Background(), step)
				require.NoError(t, err)
				step.Entries[0].Tokens = tokens[:n]
				m.Commit(step)
				at += n
				if r.IntN(4) == 0 {
					fork := model.Step{Forks: []model.Fork{{Seq: id + 1, From: id, Length: at}}}
					_, err := m.Forward(context.Background(), fork)
					require.NoError(t, err)
					m.Commit(fork)
					m.Drop(id)
					id++
				}
				if r.IntN(3) > 0 {
					RequireSame(t, want[at-1], Guess(t, m, depth, model.DraftEntry{Seq: id, Token: ids[at]})[0], fmt.Sprint("after token ", at))
					compared++
				}
			}
			require.Greater(t, compared, 3)
		})
	}
}

// DraftsOfPrompts checks what a block guesses behind a prompt of one step: of a window it
// needs the last rows only, and it follows a sequence from any position on, with rotations
// that differ by rounding.
func (a Architecture) DraftsOfPrompts(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 82))
	c := a.blockShape(t, 0, r)
	f := InMemory(t, c)
	ids := RandomIDs(r, c.Vocab, 201)
	o := decoder.OpenOptions{MaxTokens: 200, DraftFile: f}
	want := oneByOne(t, a.OpenOn(t, f, false, o), ids, 2)
	for _, prompt := range []int{1, 30, 129, 200} {
		m := a.OpenOn(t, f, false, o)
		Feed(t, m, 1, 0, ids[:prompt], Always(prompt))
		for i, got := range Guess(t, m, 2, model.DraftEntry{Seq: 1, Token: ids[prompt]})[0] {
			require.Less(t, relative(want[prompt-1][i], got), 0.03, "prompt of %d, draft %d", prompt, i)
		}
	}
}

// DraftsAgreeWithReference is AgreesWithReference for the block.
func (a Architecture) DraftsAgreeWithReference(t *testing.T) {
	near, all := 0, 0
	for i := range 4 {
		r := rand.New(rand.NewPCG(uint64(i), 83))
		c := a.blockShape(t, i, r)
		f, ids := InMemory(t, c), RandomIDs(r, c.Vocab, 40)
		o := decoder.OpenOptions{MaxTokens: 8, DraftFile: f}
		got := oneByOne(t, a.OpenOn(t, f, false, o), ids, 1)
		want := oneByOne(t, a.openWith(t, f, reference.New(), o), ids, 1)
		for p := range want {
			relrms := relative(want[p][0], got[p][0])
			require.Less(t, relrms, 1.0, "token %d", p)
			if all++; relrms < 0.01 {
				near++
			}
		}
	}
	t.Logf("%d of %d tokens within 0.01", near, all)
	require.Greater(t, near, all*9/10)
}

// drafting is a model that drafts for each sequence of a step when it is committed.
type drafting struct {
	decoder.Decoder
	t       testing.TB
	guesses *int
}

func (d drafting) Commit(s model.Step) {
	d.Decoder.Commit(s)
	var entries []model.DraftEntry
	for _, e := range s.Entries {
		entries = append(entries, model.DraftEntry{Seq: e.Seq, Token: e.Tokens[0]})
	}
	for _, rows := range Guess(d.t, d.Decoder, 3, entries...) {
		RequireFinite(d.t, rows)
		*d.guesses += len(rows)
	}
}

// DraftsChangeNothing checks that drafting changes no bit of the model's logits, alone and
// on rank 0 of a group, whatever is divided, and that the other ranks need no block.
func (a Architecture) DraftsChangeNothing(t *testing.T) {
	c := a.blockShape(t, 0, nil)
	f, steps := InMemory(t, c), History(rand.New(rand.NewPCG(85, 86)), c.Vocab)
	o := decoder.OpenOptions{MaxTokens: 48, Reduce: parallel.Exact}
	want, guesses := a.PlayAlone(t, f, o, steps), 0
	drafts := o
	drafts.DraftFile = f
	first := drafting{a.OpenOn(t, f, false, drafts), t, &guesses}
	got, _, err := Play(first, steps)
	require.NoError(t, err)
	RequireSame(t, want, got, "alone")
	all := append(Members{first}, a.OpenAll(t, f, 2, false, o)...)
	for _, how := range BothShares {
		for _, from := range []int{1000, 1} {
			before := guesses
			all.JoinRows(t, how, []float64{1, 3, 2}, from)
			RequireSame(t, want, all.Play(t, steps), fmt.Sprint(how, from))
			require.Greater(t, guesses-before, len(steps))
		}
	}
}

// DraftsAfterAnError checks that a block that stops in the midst of the rows of a step, here
// because the next step is cancelled, drafts again for every sequence.
func (a Architecture) DraftsAfterAnError(t *testing.T) {
	c := a.blockShape(t, 0, nil)
	f := InMemory(t, c)
	m := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 400, DraftFile: f})
	r := rand.New(rand.NewPCG(4, 84))
	var step, next model.Step
	var entries []model.DraftEntry
	// The second has the last row of a full step of the block, the third rows in the next.
	for i, n := range []int{100, 100, 20} {
		id := model.SeqID(i)
		step.Entries = append(step.Entries, model.Entry{Seq: id, Tokens: RandomIDs(r, c.Vocab, n)})
		next.Entries = append(next.Entries, model.Entry{Seq: id, Pos: n, Tokens: RandomIDs(r, c.Vocab, 1)})
		entries = append(entries, model.DraftEntry{Seq: id, Token: 1})
	}
	_, err := m.Forward(context.Background(), step)
	require.NoError(t, err)
	m.Commit(step)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.Forward(cancelled, next)
	require.ErrorIs(t, err, context.Canceled)
	_, err = m.Forward(context.Background(), next)
	require.NoError(t, err)
	m.Commit(next)
	for _, guess := range Guess(t, m, 2, entries...) {
		require.Len(t, guess, 2)
	}
}

// DraftsUnasked checks that a block that is not asked for drafts any more frees what it has
// of sequences, and that it drafts when it is asked again.
func (a Architecture) DraftsUnasked(t *testing.T) {
	c := a.blockShape(t, 0, nil)
	f := InMemory(t, c)
	b, m := a.weighed(t, f, decoder.OpenOptions{MaxTokens: 64, DraftFile: f})
	ids := RandomIDs(rand.New(rand.NewPCG(4, 85)), c.Vocab, 62)
	Feed(t, m, 2, 0, ids[:1], Always(1))
	Feed(t, m, 1, 0, ids[:60], Always(60))
	Guess(t, m, 2, model.DraftEntry{Seq: 1, Token: ids[60]}, model.DraftEntry{Seq: 2, Token: ids[1]})
	before := b.now
	for range 1000 {
		Feed(t, m, 2, 0, ids[:1], Always(1))
	}
	require.Equal(t, before, b.now)
	for range 100 {
		Feed(t, m, 2, 0, ids[:1], Always(1))
	}
	require.Less(t, b.now, before)
	require.Empty(t, Guess(t, m, 2, model.DraftEntry{Seq: 1, Token: ids[60]})[0])
	Feed(t, m, 1, 60, ids[60:61], Always(1))
	require.Len(t, Guess(t, m, 2, model.DraftEntry{Seq: 1, Token: ids[61]})[0], 2)
}

// BlockInStages checks that a model with a block that enters stages, as a group does that has
// chosen them after measuring, has the bits of one rank and no drafts.
func (a Architecture) BlockInStages(t *testing.T) {
	c := a.blockShape(t, 0, nil)
	f := InMemory(t, c)
	plan, err := arch.Plan(f, decoder.OpenOptions{MaxTokens: 256}, 1)
	require.NoError(t, err)
	r, o := rand.New(rand.NewPCG(4, 86)), decoder.OpenOptions{MaxTokens: 256, Reduce: parallel.Exact, DraftFile: f}
	one := a.OpenOn(t, f, false, o)
	steps, kept := longHistory(r, c.Vocab, one.Info().Rewind)
	want, _, err := playKept(one, steps, kept)
	require.NoError(t, err)
	p := randomStages(t, r, plan, 0)
	all := a.OpenAll(t, f, len(p), false, o)
	all.stage(t, memory.Groups(len(all)), p)
	RequireSame(t, want, all.playStages(t, steps, kept, p), fmt.Sprint(p.Stages()))
	id := steps[len(steps)-1].Entries[0].Seq
	require.Empty(t, Guess(t, all[0], 2, model.DraftEntry{Seq: id, Token: 1})[0])
}

// DraftMemory checks that the buffers of a block and what it keeps of a sequence are within
// the plan.
func (a Architecture) DraftMemory(t *testing.T) {
	c := a.blockShape(t, 0, nil)
	f := InMemory(t, c)
	const rows, length = 256, 2000
	o := decoder.OpenOptions{Context: length, MaxTokens: rows}
	without, _ := a.weighed(t, f, o)
	o.DraftFile = f
	plan, err := arch.Plan(f, o, 1)
	require.NoError(t, err)
	require.NotContains(t, plan.UnreadOf, "multi-token prediction")
	b, m := a.weighed(t, f, o)
	require.Equal(t, plan.PerSequence(), m.SequenceBytes(length))

	ids := RandomIDs(rand.New(rand.NewPCG(1, 2)), c.Vocab, length)
	Feed(t, m, 2, 0, ids[:1], Always(1))
	Guess(t, m, 2, model.DraftEntry{Seq: 2, Token: ids[1]})
	m.Drop(2)
	// The weights' vectors are not in the plan, and each buffer is of whole pages.
	require.LessOrEqual(t, b.now-without.now, plan.DraftScratch+decoder.HeadBytes(c.Vocab, 1, false)+int64(80*os.Getpagesize()))
	require.Positive(t, plan.DraftWeights)
	before := b.now
	for at := 0; at < length; at += rows {
		end := min(at+rows, length-1)
		Feed(t, m, 1, at, ids[at:end], Always(rows))
		head := b.now
		Guess(t, m, 2, model.DraftEntry{Seq: 1, Token: ids[end]})
		require.LessOrEqual(t, b.now-before-max(0, head-b.now), m.SequenceBytes(end)+decoder.HeadBytes(c.Vocab, 2*rows, false))
	}
	m.Drop(1)
	require.LessOrEqual(t, b.now, before+decoder.HeadBytes(c.Vocab, 2*rows, false), "a dropped sequence is freed")
}

// BlocksAreRefused checks the errors about files without a block, and with one that has
// other tensors.
func (a Architecture) BlocksAreRefused(t *testing.T) {
	c := a.blockShape(t, 0, nil)
	plain := c
	plain.Block = ""
	f := InMemory(t, c)
	open := func(f, drafts *gguf.File) error {
		m, err := arch.Open(f, reference.New(), decoder.OpenOptions{MaxTokens: 8, DraftFile: drafts})
		if err == nil {
			require.NoError(t, m.Close())
		}
		return err
	}
	require.NoError(t, open(f, f))
	require.NoError(t, open(InMemory(t, plain), f), "of another file")
	none := InMemory(t, plain)
	require.ErrorContains(t, open(none, none), "has no block for multi-token prediction that this program runs")
	_, err := arch.Plan(none, decoder.OpenOptions{DraftFile: none}, 1)
	require.ErrorContains(t, err, "has no block for multi-token prediction that this program runs")
	block := fmt.Sprintf("blk.%d.", c.Layers)
	more := withTensors(t, c, extra{block + "attn_q_a.bias", 1})
	require.ErrorContains(t, open(more, more), fmt.Sprintf("tensor %q is not part of a block for multi-token prediction", block+"attn_q_a.bias"))
	wide := c
	wide.Embd *= 2
	var file *model.FileError
	require.ErrorAs(t, open(f, InMemory(t, wide)), &file)
	require.ErrorContains(t, file, "nextn.enorm.weight")
}
