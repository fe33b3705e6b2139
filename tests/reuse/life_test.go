package reuse

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/engine/diskcache"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// reached counts what the histories have reached.
type reached struct {
	answers, cancelled                  int
	forks, old, checkpoints             int // committed; old: forks that only a checkpoint made possible
	refused                             int // steps, for lack of memory: the engine's account was wrong
	cached, prompts                     int // tokens
	continued, forked, restored, waited uint64
	replayed                            uint64
	evicted, crowded, expired, saved    uint64
	lives, recoveries                   uint64
	shrunk, grown                       int            // times that a step ran on fewer or more ranks than the one before
	kinds                               map[string]int // requests with reuse, by kind
}

// failed notes the error of a step.
func (r *reached) failed(err error) {
	if errors.Is(err, model.ErrNoMemory) {
		r.refused++
	}
}

// committed notes what a step did.
func (r *reached) committed(m model.Model, s model.Step) {
	for _, f := range s.Forks {
		r.forks++
		if m.Info().Rewind < contextLength && m.Len(f.From)-f.Length > m.Info().Rewind {
			r.old++
		}
	}
	r.checkpoints += len(s.Checkpoints)
}

func (r *reached) add(s engine.Stats) {
	r.continued += s.Hits.Continued
	r.forked += s.Hits.Forked
	r.restored += s.Hits.Restored
	r.replayed += s.Hits.Replayed
	r.waited += s.Hits.Waited
	r.evicted += s.Evicted
	r.crowded += s.Crowded
	r.expired += s.Expired
	r.saved += s.Disk.Saved
	r.lives++
}

// require fails the test unless the histories reached everything that n of them should reach
// at least n times. Up to 3 histories need not reach every kind of request with reuse.
func (r *reached) require(t *testing.T, n int, architecture string) {
	t.Logf("%+v", *r)
	least := map[string]int{
		"forks": r.forks, "continued entries": int(r.continued), "waiting for a prefill": int(r.waited), "snapshots": int(r.restored),
		"lack of memory": int(r.evicted), "lack of places": int(r.crowded), "cancelled requests": r.cancelled,
	}
	if n > 3 {
		for _, kind := range []string{"new", "continued", "regenerated", "edited", "branched", "choices", "together"} {
			least["reuse: "+kind] = r.kinds[kind]
		}
	}
	switch architecture {
	case "deepseek4":
		least["checkpoints"], least["forks that need a checkpoint"] = r.checkpoints, r.old
	case "deepseek41":
		least["checkpoints"] = r.checkpoints
	}
	for what, have := range least {
		require.GreaterOrEqual(t, have, n, "the histories do not reach: %s", what)
	}
}

// littleMemory draws a budget for one to five sequences of the context.
func littleMemory(r *rand.Rand, m model.Sized) int64 {
	return m.SequenceBytes(contextLength)*int64(10+r.IntN(40))/10 + int64(r.IntN(4))*m.CheckpointBytes() + 1<<16
}

// life is a server between two restarts.
type life struct {
	*history
	t      *testing.T
	engine *engine.Engine
	store  *diskcache.Store
	seen   *reached
	what   string       // its options
	step   func()       // lets a step run, if any can
	suffer func()       // a loss or the return of a rank
	ahead  atomic.Int64 // nanoseconds that the clock of the server is ahead of the true time
	all    []*asked
}

// newLife starts a server on a model with random options, and mostly with a cache on disk.
func newLife(t *testing.T, h *history, m model.Model, dir string, seen *reached) *life {
	r := h.random
	l := &life{history: h, t: t, seen: seen}
	var err error
	l.store, err = diskcache.Open(dir, diskcache.Options{Budget: 1 << (22 + r.IntN(8)), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	l.store.Use("m", m.Info().Rewind, m.Info().Replay)
	o := engine.Options{MaxActive: 1 + r.IntN(5), QueueLength: 100, PrefillChunk: 8 + r.IntN(200), CacheEntries: []int{-1, 1, 2, 4, 0}[r.IntN(5)],
		Clock: func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }, Logger: slog.New(slog.DiscardHandler)}
	if r.IntN(3) == 0 {
		o.CacheTimeout = time.Duration(1+r.IntN(20)) * time.Second
	}
	if r.IntN(6) > 0 {
		o.Disk = l.store
	}
	l.what = fmt.Sprintf("steps of %d tokens, %d active, chunks of %d, %d entries, disk %v", m.Info().MaxTokens, o.MaxActive, o.PrefillChunk, o.CacheEntries, o.Disk != nil)
	l.engine, err = engine.New(m, enginetest.Vocabulary{}, o)
	require.NoError(t, err)
	return l
}

// run does so many things: mostly it lets steps run.
func (l *life) run(n int) {
	r := l.random
	for range n {
		l.withinBudget()
		switch op := r.IntN(12); {
		case op < 3:
			for _, a := range l.next() {
				s, err := l.engine.Submit(l.ctx, a.Request)
				if errors.Is(err, engine.ErrTooLarge) {
					continue
				}
				require.NoError(l.t, err)
				a.stream, a.gone = s, false
				l.all = append(l.all, a)
			}
		case op == 3 && len(l.all) > 0:
			a := l.all[max(len(l.all)-1-r.IntN(8), 0)]
			a.stream.Close()
			a.gone = true
		case op == 4:
			l.suffer()
		case op == 5:
			l.ahead.Add(int64(r.IntN(5)) * int64(time.Second)) // what is idle is saved
		default:
			for range 1 + r.IntN(12) {
				l.step()
			}
		}
	}
}

func (l *life) withinBudget() {
	l.t.Helper()
	if s := l.engine.Stats(); s.MemoryBudget > 0 && s.Memory > s.MemoryBudget {
		l.t.Errorf("%s: %d bytes are held, the budget is %d", l.what, s.Memory, s.MemoryBudget)
	}
}

// end compares the answers and ends the server.
func (l *life) end() {
	for _, a := range l.all {
		got, err := read(l.ctx, a.stream)
		if a.gone {
			l.seen.cancelled++
			continue
		}
		if err == nil {
			err = same(a.want, got)
		}
		if err != nil {
			l.t.Errorf("%s: %s with a prompt of %d tokens: %v", l.what, a.kind, len(a.Prompt), err)
		}
		l.seen.answers++
		l.seen.prompts, l.seen.cached = l.seen.prompts+len(a.Prompt), l.seen.cached+got.usage.Cached
		if got.usage.Cached > 0 {
			l.seen.kinds[a.kind]++
		}
	}
	l.withinBudget()
	if l.random.IntN(3) > 0 { // otherwise it was killed
		require.NoError(l.t, l.engine.Flush(l.ctx))
	}
	require.NoError(l.t, l.engine.Close(l.ctx))
	l.seen.add(l.engine.Stats())
	require.NoError(l.t, l.store.Close(l.ctx))
	require.Zero(l.t, l.seen.refused, l.what)
}
