package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/engine"
	"ringmaster/engine/drafts"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// read returns the tokens of an answer.
func read(ctx context.Context, s *engine.Stream) (tokens []int32, err error) {
	for {
		ev, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return tokens, nil
		}
		if err != nil {
			return tokens, err
		}
		for _, tok := range ev.Tokens {
			tokens = append(tokens, tok.ID)
		}
	}
}

func newEngine(t *testing.T, m model.Model) *engine.Engine { return newDrafting(t, m, nil) }

// newDrafting is newEngine with drafts.
func newDrafting(t *testing.T, m model.Model, drafter func(*engine.Request) engine.Drafter) *engine.Engine {
	t.Helper()
	e, err := engine.New(m, enginetest.Vocabulary{}, engine.Options{
		MaxActive: 3, PrefillChunk: 7, CacheEntries: 2, QueueLength: 40, Logger: slog.New(slog.DiscardHandler), Drafter: drafter,
	})
	require.NoError(t, err)
	return e
}

// requests are the requests of one history: prompts with common beginnings.
func requests(seed uint64) []engine.Request { return requestsOf(seed, 30) }

// requestsOf is requests with common beginnings of up to most tokens.
func requestsOf(seed uint64, most int) (all []engine.Request) {
	random := rand.New(rand.NewPCG(seed, 3))
	for range 12 {
		r := engine.Request{MaxTokens: 1 + random.IntN(6), IgnoreEOS: true}
		for i := range 1 + random.IntN(most) {
			r.Prompt = append(r.Prompt, int32(i%5))
		}
		for range random.IntN(3) {
			r.Prompt = append(r.Prompt, int32(random.IntN(256)))
		}
		all = append(all, r)
	}
	return all
}

// answers submits all requests at once and returns the tokens of each answer.
func answers(t *testing.T, e *engine.Engine, all []engine.Request) (got [][]int32) {
	t.Helper()
	var streams []*engine.Stream
	for _, r := range all {
		s, err := e.Submit(t.Context(), r)
		require.NoError(t, err)
		streams = append(streams, s)
	}
	for _, s := range streams {
		tokens, err := read(t.Context(), s)
		require.NoError(t, err)
		got = append(got, tokens)
	}
	return got
}

// knower guesses the tokens of an answer that it knows, and errs now and then.
type knower struct {
	answer []int32
	said   int // tokens of it
	random *rand.Rand
}

func (k *knower) Add(ids ...int32)              { k.said += len(ids) }
func (k *knower) Beside(drafts.Source, []int32) {}
func (k *knower) Draft(most int) drafts.Guess {
	out := slices.Clone(k.answer[min(k.said, len(k.answer)):])
	for i := range out {
		if k.random.IntN(4) == 0 {
			out[i] = k.random.Int32N(256)
		}
	}
	return drafts.Guess{Tokens: out[:min(len(out), most)], Match: 20}
}

// knowing returns a drafter of the answers to requests.
func knowing(all []engine.Request, answers [][]int32) func(*engine.Request) engine.Drafter {
	return func(r *engine.Request) engine.Drafter {
		i := slices.IndexFunc(all, func(q engine.Request) bool { return slices.Equal(q.Prompt, r.Prompt) && q.MaxTokens == r.MaxTokens })
		return &knower{answer: answers[i], said: -len(r.Prompt), random: rand.New(rand.NewPCG(uint64(i), 5))}
	}
}

// TestOneHistoryOnAnyNumberOfRanks: an engine on a group gives the same answers
// as on one machine without drafts, and the followers have committed what the leader has,
// except perhaps the last step.
func TestOneHistoryOnAnyNumberOfRanks(t *testing.T) {
	for seed := range uint64(5) {
		var want [][]int32
		for size := range 6 {
			t.Run(fmt.Sprintf("seed %d, %d ranks", seed, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var m model.Model = enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 2})
					var c *fakeCluster
					var l *Leader
					if size > 0 {
						c, l = newCluster(t, size)
						m = l
					}
					all := requestsOf(seed, 90)
					var drafter func(*engine.Request) engine.Drafter
					if size > 0 {
						drafter = knowing(all, want)
					}
					e := newDrafting(t, m, drafter)
					got := answers(t, e, all)
					require.NoError(t, e.Close(t.Context()))
					if size == 0 {
						want = got
						return
					}
					require.Equal(t, want, got)
					synctest.Wait()
					run := uint64(0)
					for _, d := range e.Stats().Drafts {
						run += d.Run[0]
					}
					require.GreaterOrEqual(t, run, uint64(3))
					steps := c.committed(0)
					for rank := 1; rank < size; rank++ {
						require.Equal(t, steps[:len(steps)-1], c.committed(rank), "rank %d", rank)
					}
					c.stop(l)
				})
			})
		}
	}
}

// TestAnEngineThroughLostEpochs: running requests end with the verdict, and the
// next epoch answers the same prompts with the same tokens.
func TestAnEngineThroughLostEpochs(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		e := newEngine(t, l)
		r := requests(1)[0]
		r.MaxTokens = 6
		submit := func() *engine.Stream {
			s, err := e.Submit(t.Context(), r)
			require.NoError(t, err)
			return s
		}
		want, err := read(t.Context(), submit())
		require.NoError(t, err)
		for epoch := range 4 {
			gate := make(chan struct{})
			steps := 0
			c.ranks[0].onForward = func(ctx context.Context, _ model.Step) error {
				if steps++; steps == epoch+2 {
					close(gate)
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return nil
			}
			under := submit()
			<-gate
			verdict := &distributed.PeerError{Rank: 1, Addr: "10.0.0.2:9", Cause: fmt.Sprintf("lost in epoch %d", epoch+1)}
			c.end(verdict)
			_, err := read(t.Context(), under)
			require.ErrorIs(t, err, engine.ErrUnavailable)
			require.ErrorContains(t, err, verdict.Error())
			synctest.Wait()
			_, err = e.Submit(t.Context(), r)
			require.ErrorIs(t, err, engine.ErrUnavailable)
			require.ErrorContains(t, e.Ready(), verdict.Error())

			c.ranks[0].onForward = nil
			require.NoError(t, c.form())
			require.NoError(t, e.Ready())
			got, err := read(t.Context(), submit())
			require.NoError(t, err)
			require.Equal(t, want, got)
			synctest.Wait()
			for i, r := range c.ranks {
				require.LessOrEqual(t, r.Known(), 1, "rank %d holds sequences that no request knows", i)
			}
		}
		require.NoError(t, e.Close(t.Context()))
	})
}
