package reuse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// patience ends a test that hangs; no other outcome depends on it.
const patience = 3 * time.Minute

// host is the process of a rank.
type host struct {
	t    *testing.T
	file *gguf.File
}

// rank is the model of a rank with its backend.
type rank struct {
	decoder.Decoder
	backend *cpu.Backend
}

func (r *rank) Close() error { return errors.Join(r.Decoder.Close(), r.backend.Close()) }

func (h host) Load(s replica.Settings, _ int) (replica.Rank, error) {
	b, err := cpu.New(1)
	if err != nil {
		return nil, err
	}
	m, err := arch.Open(h.file, b, decoder.OpenOptions{Context: s.Context, MaxTokens: s.MaxTokens, Reduce: s.Reduce})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &rank{m, b}, nil
}

func (h host) Measure(context.Context, *distributed.Group, replica.Rank, parallel.Placement) (calibrate.Costs, error) {
	return calibrate.Costs{}, errors.New("settings without Measure")
}

func (h host) ResidentBytes() int64 { return 0 }

// planner divides a model evenly among the ranks of every epoch.
type planner struct {
	share     parallel.Share
	sizes     parallel.Sizes
	maxTokens int
	budget    int64
}

func (p planner) Plan(members []cluster.Hello, _ replica.Past) (replica.Settings, error) {
	place, err := parallel.Place(p.share, p.sizes, slices.Repeat([]float64{1}, len(members)))
	return replica.Settings{Context: contextLength, MaxTokens: p.maxTokens, Reduce: parallel.Exact, Placement: place, SequenceBudget: p.budget}, err
}

func (planner) Fits([]cluster.Hello, replica.Past) error { return nil }

func (planner) Reads(replica.Settings, int, *parallel.Part) int64 { return 0 }

func (planner) Lost([]parallel.Part) int64 { return 0 }

func (planner) Choose(context.Context, calibrate.Costs, []parallel.Placement) replica.Choice {
	return replica.Choice{}
}

// group runs ranks in this process, over a driver between goroutines and with control
// connections over loopback.
type group struct {
	t         *testing.T
	size      int
	host      host
	transport distributed.Transport
	leader    *cluster.Leader
	program   *replica.Program
	steps     *replica.Leader
	followers []*follower // of ranks 1 and up
}

// follower is the life of a rank other than 0.
type follower struct {
	leave context.CancelCauseFunc
	left  bool // leave was called
	ended chan error
}

func (g *group) config(rank int, addr string) cluster.Config {
	return cluster.Config{
		Hello:       cluster.Hello{Rank: rank, Size: g.size, Build: "test", ByteOrder: "little", Model: "m", Fingerprint: "f", Kernels: "none"},
		Coordinator: addr, ConnectTimeout: patience, PeerTimeout: 30 * time.Second, RejoinAfter: time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
}

// formed returns a group that runs steps.
func formed(t *testing.T, f *gguf.File, size int, p planner) *group {
	g := &group{t: t, size: size, host: host{t, f}, transport: memory.NewNetwork(), followers: make([]*follower, size)}
	g.program = replica.NewProgram(g.host, p)
	cfg := g.config(0, "127.0.0.1:0")
	cfg.Transport = g.program.Transport(g.transport)
	var err error
	g.leader, err = cluster.Lead(t.Context(), cfg, g.program)
	require.NoError(t, err)
	for r := 1; r < size; r++ {
		g.follow(r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, g.leader.Wait(ctx))
	g.steps = replica.NewLeader(g.program, g.leader)
	return g
}

// follow starts the process of a rank.
func (g *group) follow(r int) {
	ctx, cancel := context.WithCancelCause(g.t.Context())
	f := &follower{leave: cancel, ended: make(chan error, 1)}
	g.followers[r] = f
	go func() {
		w := replica.NewWorker(r, g.host)
		cfg := g.config(r, g.leader.Addr().String())
		cfg.Transport = w.Transport(g.transport)
		err := cluster.Follow(ctx, cfg, w)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		f.ended <- errors.Join(err, w.Close(ctx))
	}()
}

// suffer makes a random follower leave, return, or count as lost.
func (g *group) suffer(r *rand.Rand) {
	rank := 1 + r.IntN(g.size-1)
	f := g.followers[rank]
	switch {
	case f.left:
		select {
		case err := <-f.ended:
			require.NoError(g.t, err)
			g.follow(rank)
		default: // it waits until the others continue without it
		}
	case r.IntN(3) == 0:
		f.leave(errors.New("was told to leave"))
		f.left = true
	default:
		if e, err := g.leader.Epoch(); err == nil && slices.Contains(e.Members, rank) {
			_ = g.leader.Fail(e.Number, &distributed.PeerError{Rank: rank, Cause: "lost by the test"}) // it may have ended
		}
	}
}

// end ends all ranks.
func (g *group) end() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(g.t, g.leader.Close(ctx, "the test is over"))
	require.NoError(g.t, g.steps.Close())
	for _, f := range g.followers[1:] {
		f.leave(errors.New("the test is over")) // it may not have joined yet
		select {
		case err := <-f.ended:
			require.NoError(g.t, err)
		case <-ctx.Done():
			require.NoError(g.t, ctx.Err(), "a rank does not end")
		}
	}
}

// gatedGroup is a group as a model that runs a step when the test lets it.
type gatedGroup struct {
	*replica.Leader
	gate    chan struct{}
	seen    *reached
	members func() int // of the epoch
	were    int        // in the last step
}

func (g *gatedGroup) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	return g.seen.forward(ctx, g.gate, g.Leader, s)
}

func (g *gatedGroup) Commit(s model.Step) {
	g.Leader.Commit(s)
	g.seen.committed(g.Leader, s)
	switch n := g.members(); {
	case n < g.were:
		g.seen.shrunk++
		g.were = n
	case n > g.were:
		g.seen.grown++
		g.were = n
	}
}

// TestGroups runs the trees of TestAlone on 2 to 5 ranks, while followers leave, return and
// are lost in the middle of steps. No request fails.
func TestGroups(t *testing.T) {
	n := *histories
	if n == 0 {
		n = 4 // one for each number of ranks
		if testenv.Rest(t, testenv.Exhaustive, "8 histories of each architecture") {
			n = 8
		}
	}
	for _, s := range shapes {
		if !testenv.At(s.level) {
			continue // Rest has logged it
		}
		t.Run(s.name, func(t *testing.T) {
			f := decodertest.InMemory(t, s.shape(t))
			seen := &reached{kinds: map[string]int{}}
			for i := range uint64(n) {
				seed := *firstSeed + i
				ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					random := rand.New(rand.NewPCG(seed, 36))
					plain, closed := plainEngine(t, f)
					defer closed()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					h := newHistory(t, ctx, random, plain)
					dir := filepath.Join(t.TempDir(), "cache")
					for range 2 {
						groupLife(t, f, h, dir, 2+int(i)%4, seen)
					}
				})
				if !ok {
					t.Fatalf("reproduce with -run '%s' -args -histories 1 -seed %d", t.Name(), seed)
				}
			}
			seen.require(t, n/3, s.name)
			if n >= 3 { // fewer may lose no rank in the middle of a step
				require.Positive(t, seen.recoveries)
				require.Positive(t, seen.shrunk)
				require.Positive(t, seen.grown)
			}
		})
	}
}

// groupLife runs requests of a history on a group.
func groupLife(t *testing.T, f *gguf.File, h *history, dir string, size int, seen *reached) {
	r := h.random
	m, closed := open(t, f, decoder.OpenOptions{})
	p := planner{[]parallel.Share{parallel.ShareExperts, parallel.ShareAll}[r.IntN(2)], m.Sizes(), 16 << r.IntN(5), 0}
	if r.IntN(3) > 0 {
		p.budget = littleMemory(r, m)
	}
	closed()
	g := formed(t, f, size, p)
	defer g.end()
	gated := &gatedGroup{Leader: g.steps, gate: make(chan struct{}), seen: seen, were: size, members: func() int {
		e, err := g.leader.Epoch()
		if err != nil { // it has just ended
			return size
		}
		return len(e.Members)
	}}
	l := newLife(t, h, gated, dir, seen)
	l.what = fmt.Sprintf("%d ranks, %+v, %s", size, p, l.what)
	// step lets a step run, if there is any to run.
	l.step = func() {
		for {
			select {
			case gated.gate <- struct{}{}:
				return
			case <-l.ctx.Done():
				require.NoError(t, l.ctx.Err(), l.what)
			case <-time.After(time.Millisecond):
				if s := l.engine.Stats(); s.Active+s.Queued == 0 {
					return
				}
			}
		}
	}
	l.suffer = func() {
		if r.IntN(2) == 0 { // in the middle of a step
			select {
			case gated.gate <- struct{}{}:
			default: // nothing waits to run
			}
		}
		g.suffer(r)
	}
	l.run(60)
	close(gated.gate)
	l.end()
	n, _ := g.steps.Recoveries()
	seen.recoveries += n
}
