package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine/drafts"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// settled is a model on which every step waits until all else that runs has ended, so that
// the texts beside a request have arrived.
func settled(say func([]int32) string) *enginetest.Model {
	return enginetest.NewModel(enginetest.Size, enginetest.Options{Rewind: 64, Say: say,
		OnForward: func(context.Context, model.Step) error { synctest.Wait(); return nil }})
}

// TestDraftsFromAPrediction: drafts come from the texts that a request brings, and usage says
// what became of those of a prediction.
func TestDraftsFromAPrediction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const said = "func main() { fmt.Println(one, two, three, four, five) }"
		m := settled(func([]int32) string { return said })
		e := start(t, m, Options{Drafter: TextDrafter})
		asks := func(source drafts.Source, text string) (answer, DraftStats) {
			before := e.Stats().Drafts[source]
			a := ask(t, e, Request{Prompt: encode("q"), Related: func(context.Context) []RelatedText {
				return []RelatedText{{Source: source, Tokens: encode(text)}}
			}})
			require.Equal(t, said, a.Text)
			now := e.Stats().Drafts[source]
			for i := range now.Run {
				now.Run[i] -= before.Run[i]
				now.Accepted[i] -= before.Accepted[i]
			}
			return a, now
		}
		expected := strings.ReplaceAll(said, "three", "drei")
		a, counts := asks(drafts.Prediction, expected)
		run, accepted := 0, 0
		for i := range counts.Run {
			run, accepted = run+int(counts.Run[i]), accepted+int(counts.Accepted[i])
		}
		require.Greater(t, accepted, 20)
		require.Greater(t, run, accepted)
		require.Equal(t, accepted, a.Usage.Accepted)
		require.Equal(t, run-accepted, a.Usage.Rejected)

		a, counts = asks(drafts.Text, expected)
		require.Greater(t, counts.Accepted[0], uint64(1))
		require.Zero(t, a.Usage.Accepted+a.Usage.Rejected, "it is no prediction")
	})
}

// TestDraftsOfAGroup: drafts come from conversations of the same cache group, and from no
// other scope or group.
func TestDraftsOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := settled(func([]int32) string { return "whatever the conversation before has said as well" })
		e := start(t, m, Options{Drafter: TextDrafter})
		asks := func(prompt, scope, group string) uint64 {
			before := e.Stats().Drafts[drafts.Group].Accepted[0]
			ask(t, e, Request{Prompt: encode(prompt), CacheScope: scope, CacheGroup: group})
			return e.Stats().Drafts[drafts.Group].Accepted[0] - before
		}
		require.Zero(t, asks("one", "a", "g"))
		require.Positive(t, asks("two", "a", "g"))
		require.Zero(t, asks("three", "b", "g"), "another scope")
		require.Zero(t, asks("four", "a", "h"), "another group")
		require.Zero(t, asks("five", "a", ""), "no group")
	})
}

// forced is a constraint that forces a text.
type forced struct {
	onlyIDs
	text []int32
}

func (f *forced) Forced(context.Context) []int32 { return f.text[min(f.place, len(f.text)):] }

// TestForcedDrafts: what a constraint forces are drafts, and what it excludes is none.
func TestForcedDrafts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := settled(nil)
		e := start(t, m, Options{Drafter: TextDrafter})
		text := encode(`{"key": "value"}`)
		c := &forced{text: text}
		for _, id := range text {
			c.allowed = append(c.allowed, []int32{id})
		}
		a := ask(t, e, Request{Prompt: encode("q"), MaxTokens: len(text), IgnoreEOS: true, Constraint: c})
		require.Equal(t, text, a.ids())
		counts := e.Stats().Drafts[drafts.Grammar]
		require.Equal(t, uint64(1), counts.Accepted[0])
		require.Equal(t, uint64(1), counts.Accepted[len(text)-3])
		require.Len(t, m.Steps(), 2)
	})
}

// TestMasksForDrafts: the drafts of a step wait for late masks together, not one after the
// other.
func TestMasksForDrafts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{model: enginetest.Script("x"), opts: Options{Drafter: TextDrafter}, sched: &scheduler{}, runs: map[requestID]*run{}}
		for id := range requestID(5) {
			e.sched.active = append(e.sched.active, &task{id: id, sequence: &sequence{}, decode: true, todo: []int32{1}})
			e.runs[id] = &run{id: id, maxTokens: 9, mask: mask{constraint: &forced{}, ready: make(chan error)}}
		}
		// The mask of the last is not late, and is found after the time is over.
		e.runs[4].mask.ready = nil
		e.runs[4].mask.forced = encode("abc")
		began := time.Now()
		e.draft()
		require.Equal(t, masksForDrafts, time.Since(began))
		require.Equal(t, drafts.Grammar, e.sched.active[4].guess.Source)
		require.Empty(t, e.sched.active[0].guess.Tokens)
	})
}

// TestNoDrafts: a request without drafts has a step for each token.
func TestNoDrafts(t *testing.T) {
	m := enginetest.Script(strings.Repeat("again and ", 9))
	e := start(t, m, Options{Drafter: TextDrafter})
	related := func(context.Context) []RelatedText { return nil }
	s := submit(t, e, Request{Prompt: encode("q"), NoDrafts: true, Related: related})
	e.mu.Lock()
	for _, r := range e.runs {
		require.Nil(t, r.req.Related, "it has texts")
	}
	e.mu.Unlock()
	a := finish(t, s)
	require.Len(t, m.Steps(), a.Usage.Completion)
	require.Zero(t, e.Stats().Drafts)
}
