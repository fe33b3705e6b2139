package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/memory"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
	"ringmaster/parallel"
)

// limit bounds the waits of this test; none comes near it.
const limit = 20 * time.Second

// TestOverATrueCluster: engine, replica and package cluster together, with
// control connections over loopback. A follower leaves in the middle of an
// answer and returns.
func TestOverATrueCluster(t *testing.T) {
	transport := memory.NewNetwork()
	config := func(rank int, addr string) cluster.Config {
		return cluster.Config{
			Hello:       cluster.Hello{Rank: rank, Size: 3, Build: "test", ByteOrder: "little", Model: "m", Fingerprint: "f", Kernels: "none"},
			Coordinator: addr, Transport: transport, ConnectTimeout: limit, PeerTimeout: 2 * time.Second, OnLoss: cluster.Await, Log: slog.New(slog.DiscardHandler),
		}
	}
	var gate sync.Mutex // guards step
	step := func(int, context.Context) error { return nil }
	load := func(s Settings, rank int) (Rank, error) {
		r := &fakeRank{Model: enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: s.MaxTokens}), number: rank, flip: -1}
		r.onForward = func(ctx context.Context, _ model.Step) error {
			gate.Lock()
			f := step
			gate.Unlock()
			return f(rank, ctx)
		}
		return r, nil
	}
	plan := func([]cluster.Hello) (Settings, error) {
		p, err := parallel.ByExperts(parallel.Sizes{Experts: 256}, []float64{3, 1, 1})
		return Settings{Context: 4096, MaxTokens: 64, Reduce: parallel.Sum, Placement: p}, err
	}
	program := NewProgram(hostOf(load), &fakePlanner{plan: plan})
	leader, err := cluster.Lead(t.Context(), config(0, "127.0.0.1:0"), program)
	require.NoError(t, err)
	follow := func(rank int) (stop context.CancelCauseFunc, ended chan error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended = make(chan error, 1)
		go func() {
			w := NewWorker(rank, hostOf(load))
			err := cluster.Follow(ctx, config(rank, leader.Addr().String()), w)
			ended <- errors.Join(err, w.Close(t.Context()))
		}()
		return cancel, ended
	}
	_, ended1 := follow(1)
	stop2, ended2 := follow(2)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.NoError(t, leader.Wait(ctx))
	l := NewLeader(program, leader)
	e := newEngine(t, l)
	ask := func() ([]int32, error) {
		s, err := e.Submit(ctx, engine.Request{Prompt: []int32{1, 2, 3}, MaxTokens: 9, IgnoreEOS: true})
		require.NoError(t, err)
		return read(ctx, s)
	}
	want, err := ask()
	require.NoError(t, err)
	require.Len(t, want, 9)

	steps := 0
	gate.Lock()
	step = func(rank int, ctx context.Context) error {
		if rank != 2 {
			return nil
		}
		if steps++; steps == 3 {
			stop2(errors.New("was told to leave"))
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	gate.Unlock()
	_, err = ask()
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "rank 2 at 127.0.0.1:")
	require.ErrorContains(t, err, "was told to leave")
	require.NoError(t, <-ended2)
	require.ErrorContains(t, e.Ready(), "rank 2")

	_, ended2 = follow(2)
	require.Eventually(t, func() bool { return e.Ready() == nil }, limit, 2*time.Millisecond)
	got, err := ask()
	require.NoError(t, err)
	require.Equal(t, want, got)
	reports, err := l.Reports(ctx)
	require.NoError(t, err)
	for i, r := range reports {
		require.Equal(t, i, r.Rank)
		require.EqualValues(t, 2, r.Epoch)
	}
	require.Greater(t, reports[1].Steps, reports[2].Steps, "rank 2 has restarted")

	require.NoError(t, e.Close(ctx))
	require.NoError(t, leader.Close(ctx, "the test is over"))
	require.NoError(t, l.Close())
	require.NoError(t, <-ended1)
	require.NoError(t, <-ended2)
}
