package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/engine"
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

func newEngine(t *testing.T, m model.Model) *engine.Engine {
	t.Helper()
	e, err := engine.New(m, enginetest.Vocabulary{}, engine.Options{
		MaxActive: 3, PrefillChunk: 7, CacheEntries: 2, QueueLength: 40, Logger: slog.New(slog.DiscardHandler),
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

// TestOneHistoryOnAnyNumberOfRanks: an engine on a group gives the same answers
// as on one machine, and the followers have committed what the leader has,
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
					e := newEngine(t, m)
					got := answers(t, e, requestsOf(seed, 90))
					require.NoError(t, e.Close(t.Context()))
					if size == 0 {
						want = got
						return
					}
					require.Equal(t, want, got)
					synctest.Wait()
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
