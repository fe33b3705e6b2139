package replica

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/engine"
	"ringmaster/engine/diskcache"
	"ringmaster/engine/enginetest"
	"ringmaster/model"
)

// export copies a sequence from the leader.
func export(t *testing.T, l *Leader, id model.SeqID) (pieces [][]byte) {
	t.Helper()
	x := l.Export(id, l.tokens[id], 0)
	defer x.Stop()
	for {
		b, err := x.Next()
		if errors.Is(err, io.EOF) {
			return pieces
		}
		require.NoError(t, err)
		pieces = append(pieces, append([]byte(nil), b...))
	}
}

// bring writes pieces of a sequence.
func bring(t *testing.T, in model.Import, pieces [][]byte) {
	t.Helper()
	for _, b := range pieces {
		_, err := in.Write(b)
		require.NoError(t, err)
	}
}

// TestSequencesTravel: an exported sequence enters another group, on all ranks, between
// steps of others, and continues there with the same logits.
func TestSequencesTravel(t *testing.T) {
	for size := 1; size <= 5; size++ {
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			var pieces [][]byte
			var want [][]float32
			inCluster(t, 2, func(t *testing.T, _ *fakeCluster, l *Leader) {
				mustRun(t, l, entry(1, 0, model.WantNone, 1, 2, 3))
				pieces = export(t, l, 1)
				want = mustRun(t, l, entry(1, 3, model.WantLast, 4))
			})
			require.Greater(t, len(pieces), 2)
			inCluster(t, size, func(t *testing.T, c *fakeCluster, l *Leader) {
				in := l.Import(7)
				for i, b := range pieces {
					_, err := in.Write(b)
					require.NoError(t, err)
					require.Zero(t, l.Len(7))
					mustRun(t, l, entry(8, i, model.WantLast, 9))
				}
				tokens, err := in.Close()
				require.NoError(t, err)
				require.Equal(t, []int32{1, 2, 3}, tokens)
				require.Equal(t, 3, l.Len(7))
				require.Equal(t, want, mustRun(t, l, entry(7, 3, model.WantLast, 4)))
				mustRun(t, l, model.Step{Drop: []model.SeqID{8}})
				mustRun(t, l, model.Step{Drop: []model.SeqID{9}})
				synctest.Wait()
				for i, r := range c.ranks {
					require.Equal(t, map[model.SeqID][]int32{7: {1, 2, 3, 4}}, r.Live(), "rank %d", i)
				}
			})
		})
	}
}

// TestSequencesTravelWithCheckpoints: forks of a sequence that entered another group begin at
// the checkpoints that it had, also on a rank that joins later.
func TestSequencesTravelWithCheckpoints(t *testing.T) {
	for size := 1; size <= 5; size++ {
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			var pieces [][]byte
			var from *living
			inCluster(t, 2, func(t *testing.T, _ *fakeCluster, l *Leader) {
				f := newLife(t, l, 3)
				f.last, f.live[1] = 1, &living{}
				f.run(model.Step{Entries: []model.Entry{f.grow(1, 0, 10)}})
				f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 8, 10)}, Entries: []model.Entry{f.grow(1, 0, 10)}})
				f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 8, 10, 20)}})
				pieces, from = export(t, l, 1), f.live[1]
			})
			inCluster(t, size, func(t *testing.T, c *fakeCluster, l *Leader) {
				in := l.Import(7)
				bring(t, in, pieces)
				tokens, err := in.Close()
				require.NoError(t, err)
				require.Equal(t, from.tokens, tokens)
				require.Equal(t, l.SequenceBytes(20)+3*l.CheckpointBytes(), l.Held())
				f := newLife(t, l, 4)
				f.live[7], f.last = from, 10
				f.run(model.Step{Forks: []model.Fork{f.forkAt(8, 7, 8), f.forkAt(9, 7, 20)}, Entries: []model.Entry{f.grow(7, 0, 3), f.grow(8, 0, 2), f.grow(9, 0, 1)}})
				if size > 1 {
					c.recovering = true
					c.end(&distributed.PeerError{Rank: 1, Addr: "10.0.0.1:7", Cause: "lost"})
					c.replace(1)
					require.NoError(t, c.form())
				}
				f.run(model.Step{Forks: []model.Fork{f.forkAt(10, 7, 10)}, Drop: []model.SeqID{7}, Entries: []model.Entry{f.grow(8, 1, 3), f.grow(10, 0, 2)}})
				c.alike(l, c.others()...)
			})
		})
	}
}

// TestEpochsEndWhileASequenceEnters: the sequence is refused, whatever part has arrived,
// no rank keeps it, and others continue. It can enter again, and a new rank then has it,
// too.
func TestEpochsEndWhileASequenceEnters(t *testing.T) {
	var pieces [][]byte
	inCluster(t, 1, func(t *testing.T, _ *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantNone, 1, 2, 3))
		pieces = export(t, l, 1)
	})
	for after := range len(pieces) {
		for _, rank := range []int{0, 2} { // that is replaced, but for 0
			t.Run(fmt.Sprint(after, " pieces, rank ", rank), func(t *testing.T) {
				inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
					mustRun(t, l, entry(1, 0, model.WantLast, 1))
					c.recovering = true
					in := l.Import(7)
					bring(t, in, pieces[:after+1])
					c.end(&distributed.PeerError{Rank: 2, Addr: "10.0.0.2:7", Cause: "lost"})
					_, err := in.Close()
					require.ErrorIs(t, err, model.ErrRecovering)
					if rank > 0 {
						c.replace(rank)
					}
					require.NoError(t, c.form())
					if after > 0 {
						_, err = in.Close()
						require.ErrorIs(t, err, model.ErrRecovering, "the first pieces were of another epoch")
					}
					in.Stop()
					require.Zero(t, l.Len(7))
					mustRun(t, l, model.Step{Drop: []model.SeqID{7}, Entries: entry(1, 1, model.WantLast, 2).Entries})

					in = l.Import(8)
					bring(t, in, pieces)
					_, err = in.Close()
					require.NoError(t, err)
					c.end(&distributed.PeerError{Rank: 1, Addr: "10.0.0.1:7", Cause: "lost"})
					c.replace(1)
					require.NoError(t, c.form())
					mustRun(t, l, entry(8, 3, model.WantLast, 4))
					mustRun(t, l, model.Step{Drop: []model.SeqID{9}})
					synctest.Wait()
					for i, r := range c.ranks {
						require.Equal(t, map[model.SeqID][]int32{1: {1, 2}, 8: {1, 2, 3, 4}}, r.Live(), "rank %d", i)
						require.Equal(t, 2, r.Known(), "rank %d", i)
					}
				})
			})
		}
	}
}

// TestADamagedSequenceIsNotSent: the leader's own rank refuses it, and the group
// continues.
func TestADamagedSequenceIsNotSent(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantNone, 1, 2, 3))
		pieces := export(t, l, 1)
		pieces[1][5] ^= 1
		in := l.Import(7)
		var err error
		for _, b := range pieces {
			if _, err = in.Write(b); err != nil {
				break
			}
		}
		require.ErrorContains(t, err, "damaged")
		in.Stop()
		mustRun(t, l, model.Step{Drop: []model.SeqID{7}, Entries: entry(1, 3, model.WantLast, 4).Entries})
		_, err = l.Epoch()
		require.NoError(t, err)
		require.EqualValues(t, 1, c.epoch.Number)
	})
}

// TestConversationsOutliveTheirGroup: conversations continue from snapshots on disk in
// groups of other sizes, even while epochs end, with the tokens of an undisturbed engine;
// some have the file of their beginning in common.
func TestConversationsOutliveTheirGroup(t *testing.T) {
	hits := uint64(0)
	for seed := range uint64(6) {
		dir := filepath.Join(t.TempDir(), "cache")
		random := rand.New(rand.NewPCG(seed, 4))
		prompts := make([][]int32, 5)
		const shared = 140
		for i := range prompts {
			if i > 2 { // they begin alike
				prompts[i] = slices.Clone(prompts[2][:shared])
			}
			for range shared + random.IntN(200) {
				prompts[i] = append(prompts[i], int32(random.IntN(256)))
			}
		}
		for turn := range 3 {
			synctest.Test(t, func(t *testing.T) {
				var all []engine.Request
				for _, p := range prompts {
					all = append(all, engine.Request{Prompt: p, Branches: []int{shared}, MaxTokens: 4, IgnoreEOS: true})
				}
				plain := newEngine(t, enginetest.NewModel(enginetest.Size, enginetest.Options{MaxTokens: 64, Rewind: 2}))
				want := answers(t, plain, all)
				require.NoError(t, plain.Close(t.Context()))

				c, l := newCluster(t, 3)
				if turn > 0 && seed > 1 {
					c.disturb(seed)
				}
				s, err := diskcache.Open(dir, diskcache.Options{Budget: 1 << 30, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				s.Use("m", 2, 0)
				e, err := engine.New(l, enginetest.Vocabulary{}, engine.Options{MaxActive: 3, PrefillChunk: 50, CacheEntries: 1, Disk: s, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				got := answers(t, e, all)
				require.Equal(t, want, got)
				require.NoError(t, e.Flush(t.Context()))
				hits += e.Stats().Disk.Hits
				require.NoError(t, e.Close(t.Context()))
				require.NoError(t, s.Close(t.Context()))
				c.recovering = false
				c.stop(l)
				for i := range prompts {
					prompts[i] = append(append(prompts[i], got[i]...), int32(turn))
				}
			})
		}
	}
	require.Greater(t, hits, uint64(20))
}
