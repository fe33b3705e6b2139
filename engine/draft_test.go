package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/drafts"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// go test ./engine -noise runs every test with drafts that are wrong most of the time. Those
// that look at single steps, or at the scheduler alone, then fail or see none.
var noisy = flag.Bool("noise", false, "give every engine drafts that are mostly wrong")

// noise guesses tokens of the text in any order.
type noise struct {
	r       *rand.Rand
	history []int32
}

func newNoise(r *Request) Drafter {
	return &noise{r: rand.New(rand.NewPCG(uint64(len(r.Prompt)), uint64(r.MaxTokens)))}
}

func (n *noise) Add(ids ...int32)              { n.history = append(n.history, ids...) }
func (n *noise) Beside(drafts.Source, []int32) {}
func (n *noise) Draft(most int) drafts.Guess {
	out := make([]int32, n.r.IntN(most+1))
	for i := range out {
		out[i] = n.history[n.r.IntN(len(n.history))]
	}
	return drafts.Guess{Tokens: out, Match: 1 + n.r.IntN(20)}
}

// knowing knows the answers of all requests, by their seeds, and errs now and then.
type knowing struct {
	mu      sync.Mutex
	wrong   *rand.Rand
	answers map[uint64][]int32
}

func (k *knowing) learn(r Request, answer []int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers[*r.Sampling.Seed] = answer
}

func (k *knowing) drafter(r *Request) Drafter {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &knower{k: k, said: -len(r.Prompt), answer: k.answers[*r.Sampling.Seed]}
}

type knower struct {
	k      *knowing
	said   int // tokens of the answer
	answer []int32
}

func (o *knower) Add(ids ...int32)              { o.said += len(ids) }
func (o *knower) Beside(drafts.Source, []int32) {}
func (o *knower) Draft(most int) drafts.Guess {
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	out := slices.Clone(o.answer[min(o.said, len(o.answer)):])
	out = out[:min(len(out), 1+o.k.wrong.IntN(most))]
	for i := range out {
		if o.k.wrong.IntN(5) == 0 {
			out[i] = o.k.wrong.Int32N(enginetest.Size)
		}
	}
	return drafts.Guess{Tokens: out, Match: 8}
}

// TestDraftsChangeNothing: answers with drafts are those without, with all of their
// log-probabilities, usage and reasons, at any temperature, with penalties, stop strings
// and limits, and the model holds the same sequences at the end.
func TestDraftsChangeNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	var requests []Request
	for i := range 24 {
		seed := uint64(i)
		q := Request{Prompt: encode(fmt.Sprintf("prompt %d of %d", i%5, i)), MaxTokens: 1 + r.IntN(60), IgnoreEOS: i%3 == 0,
			Sampling: Sampling{Temperature: []float64{0, 0, 0.2, 0.7, 1, 1.5}[i%6], TopK: []int{0, 5, 0}[i%3],
				TopP: []float64{0, 0.9}[i%2], MinP: []float64{0, 0, 0, 0.05}[i%4], Seed: &seed}}
		if i%4 == 1 {
			q.Sampling.FrequencyPenalty, q.Sampling.PresencePenalty = 0.7, 0.3
		}
		if i%5 == 2 {
			q.Logprobs, q.TopLogprobs = true, 3
		}
		if i%7 == 3 {
			q.Stop = []string{"e", "ab"}
		}
		if i%6 == 4 {
			q.MinTokens = min(10, q.MaxTokens)
		}
		requests = append(requests, q)
	}
	knows := &knowing{wrong: r, answers: map[uint64][]int32{}}
	run := func(drafter func(*Request) Drafter) (all []answer, steps int, live map[model.SeqID][]int32) {
		m := enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 64})
		e := start(t, m, Options{MaxActive: 4, Drafter: drafter})
		for i, q := range requests {
			if i%8 == 6 {
				q.Constraint = &gatedConstraint{}
			}
			a := ask(t, e, q)
			a.events = 0
			knows.learn(q, a.ids())
			all = append(all, a)
		}
		return all, len(m.Steps()), m.Live()
	}
	want, plain, live := run(nil)
	for name, drafter := range map[string]func(*Request) Drafter{"noise": newNoise, "oracle": knows.drafter, "text": TextDrafter} {
		t.Run(name, func(t *testing.T) {
			got, steps, left := run(drafter)
			require.Equal(t, want, got)
			require.Equal(t, live, left)
			t.Logf("%d steps, %d without drafts", steps, plain)
			if name == "oracle" {
				require.Less(t, steps, plain*6/10)
			}
		})
	}
}

// TestDraftsKeepASpoiledRowForLater: a row that is not finite behind a right draft fails
// the request as the same row fails it without drafts, after the same tokens.
func TestDraftsKeepASpoiledRowForLater(t *testing.T) {
	const text = "abcdefgh"
	knows := &knowing{wrong: rand.New(rand.NewPCG(1, 1)), answers: map[uint64][]int32{5: encode(text)}}
	seed := uint64(5)
	for _, drafter := range []func(*Request) Drafter{nil, knows.drafter} {
		m := &spoiling{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{
			Rewind: 8, Say: func([]int32) string { return text }}), from: 7}
		e := start(t, m, Options{Drafter: drafter})
		s := submit(t, e, Request{Prompt: encode("xyz"), Sampling: Sampling{Seed: &seed}})
		var got string
		for {
			ev, err := s.Next(testContext(t))
			if err != nil {
				var which *NonFiniteError
				require.ErrorAs(t, err, &which)
				require.Equal(t, 7, which.Pos)
				break
			}
			got += ev.Text
		}
		require.Equal(t, text[:5], got)
	}
}

// spoiling makes the rows from a position on NaN.
type spoiling struct {
	*enginetest.Model
	from int
}

func (m *spoiling) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	rows, err := m.Model.Forward(ctx, s)
	row := 0
	for _, e := range s.Entries {
		for i := range e.Tokens {
			if e.Want == model.WantAll || e.Want == model.WantLast && i == len(e.Tokens)-1 {
				if err == nil && e.Pos+i >= m.from {
					rows[row][3] = float32(math.NaN())
				}
				row++
			}
		}
	}
	return rows, err
}

// guessing is a model with a block that knows what follows, and errs now and then.
type guessing struct {
	*enginetest.Model
	text   []int32
	wrong  *rand.Rand
	asked  int
	fails  error
	panics bool
}

func (m *guessing) Draft(_ context.Context, entries []model.DraftEntry, pick model.Pick) ([][]int32, error) {
	out := make([][]int32, len(entries))
	for i, e := range entries {
		m.asked++
		at := m.Len(e.Seq) + 1 // of the first draft
		for depth := range e.Most {
			row := make([]float32, enginetest.Size)
			if at+depth < len(m.text) && m.wrong.IntN(6) > 0 {
				row[m.text[at+depth]] = 50
			}
			id, more := pick(i, depth, row)
			if out[i] = append(out[i], id); !more {
				break
			}
		}
	}
	if m.panics {
		panic("a block that is broken")
	}
	return out, m.fails
}

// TestDraftsOfTheModel: a model that is a model.Drafter makes drafts, with the answer's own
// sampling, and they change nothing. One that fails or
// panics is not asked again.
func TestDraftsOfTheModel(t *testing.T) {
	const said = "the answer that the block of the model knows by heart"
	prompt := encode("question ")
	ask := func(drafts bool, fails error, panics bool) (answer, *guessing, *Engine) {
		m := &guessing{text: append(slices.Clone(prompt), encode(said)...), wrong: rand.New(rand.NewPCG(1, 2)), fails: fails, panics: panics,
			Model: enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: 8, Say: func([]int32) string { return said }})}
		e := start(t, m, Options{ModelDrafts: drafts})
		a := ask(t, e, Request{Prompt: prompt, Logprobs: true, Sampling: Sampling{Temperature: 1, Seed: new(uint64(7))}})
		a.events = 0
		return a, m, e
	}
	want, plain, _ := ask(false, nil, false)
	require.Equal(t, said, want.Text)
	require.Zero(t, plain.asked)
	got, m, e := ask(true, nil, false)
	require.Equal(t, want, got)
	require.Less(t, len(m.Steps()), len(plain.Steps())*2/3)
	counts := e.Stats().Drafts[drafts.Model]
	require.Greater(t, counts.Accepted[0], uint64(5))
	require.Greater(t, counts.Accepted[2], uint64(1))
	require.Greater(t, counts.Run[0], counts.Accepted[0])
	for _, panics := range []bool{false, true} {
		got, m, _ = ask(true, errors.New("no memory"), panics)
		require.Equal(t, want, got)
		require.Equal(t, 1, m.asked)
	}
}

// TestABlockOfAnotherModelIsNotUsed: a model whose drafts are never right is not asked any
// more, and the answer is as without.
func TestABlockOfAnotherModelIsNotUsed(t *testing.T) {
	said := strings.Repeat("what the block of another model does not know. ", 4)
	m := &guessing{wrong: rand.New(rand.NewPCG(1, 2)),
		Model: enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: 8, Say: func([]int32) string { return said }})}
	e := start(t, m, Options{ModelDrafts: true})
	require.Equal(t, said, ask(t, e, Request{Prompt: encode("question ")}).Text)
	counts := e.Stats().Drafts[drafts.Model]
	require.Zero(t, counts.Accepted[0])
	require.LessOrEqual(t, m.asked, hopelessDrafts/modelDrafts+1)
	require.Greater(t, len(m.Steps()), 2*m.asked)
}

// dictated allows the tokens of a text alone, one after the other.
type dictated struct{ rest []int32 }

func (d *dictated) Mask(_ context.Context, allowed []uint64) error {
	allowed[d.rest[0]/64] |= 1 << (d.rest[0] % 64)
	return nil
}

func (d *dictated) Accept(int32) error { d.rest = d.rest[1:]; return nil }

// TestDraftsThatAConstraintRefuses: a model whose drafts a constraint does not allow is asked
// less and less, as one whose drafts are wrong.
func TestDraftsThatAConstraintRefuses(t *testing.T) {
	synctest.Test(t, testDraftsThatAConstraintRefuses)
}

// testDraftsThatAConstraintRefuses has a clock that stands still while masks are computed. A
// mask that came too late would let a draft run unchecked.
func testDraftsThatAConstraintRefuses(t *testing.T) {
	said := strings.Repeat("what a constraint dictates. ", 10)
	m := &guessing{wrong: rand.New(rand.NewPCG(1, 2)), Model: enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: 8})}
	e := start(t, m, Options{ModelDrafts: true})
	e.mu.Lock()
	e.sched.always = false
	e.mu.Unlock()
	ids := encode(said)
	require.Equal(t, said, ask(t, e, Request{Prompt: encode("question "), MaxTokens: len(ids), IgnoreEOS: true, Constraint: &dictated{ids}}).Text)
	require.Zero(t, e.Stats().Drafts[drafts.Model].Run[0])
	require.Positive(t, m.asked)
	require.Less(t, m.asked, len(m.Steps())/8)
}

// TestTheModelIsAskedIfItPays: where further rows cost much, or the drafts themselves do, a
// model is asked only now and then.
func TestTheModelIsAskedIfItPays(t *testing.T) {
	asked := func(row, draft float64, sequences int) (times, drafts int) {
		var s scheduler
		for i := range s.pace.rows {
			s.pace.rows[i] = rowCost{first: 1, slope: row, plain: true}
		}
		s.model.seconds = draft
		for range 2 * hopeless {
			if n := s.draftsToAsk(sequences); n > 0 {
				times, drafts = times+1, drafts+n
			}
		}
		return times, drafts
	}
	requireAsked := func(row, draft float64, sequences, times, drafts int) {
		gotTimes, gotDrafts := asked(row, draft, sequences)
		require.Equal(t, []int{times, drafts}, []int{gotTimes, gotDrafts}, "a row of %v steps, a draft of %v, %d sequences", row, draft, sequences)
	}
	requireAsked(0.2, 0.05, 1, 2*hopeless, 2*hopeless*modelDrafts)
	requireAsked(0.1, 0.05, 4, 2*hopeless, 2*hopeless*modelDrafts)
	requireAsked(0.2, 0.6, 1, 2, 2)   // drafts as slow as half a step
	requireAsked(0.9, 0.05, 1, 2, 2)  // a further row is almost a step
	requireAsked(0.3, 0.05, 16, 2, 2) // many sequences
}
