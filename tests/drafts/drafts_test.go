// Package drafts_test measures what drafts gain: an engine with a real model gives an answer
// that is known, because a constraint leaves each token no choice, with drafts and without,
// in turns. Measured are answers that repeat their prompt, also in another form, answers in
// prose, where short runs of tokens repeat by chance, and answers that repeat nothing: see kinds.
// The test itself checks that the answers are the known ones and how many steps they took;
// no time decides it. To measure:
//
//	go test ./tests/drafts -v -timeout 1h -args -model FILE -tokens 400 -rounds 5 -threads 1 -ranks 2
//
// With ranks on hosts of their own, for example in namespaces (tests/cluster/links), each runs
// it with -coordinator and its -rank, and rank 0 measures.
package drafts_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/engine"
	"ringmaster/groupplan"
	"ringmaster/kernels/cpu"
	"ringmaster/model/chat"
	"ringmaster/model/tokenizer"
	"ringmaster/node"
	"ringmaster/parallel"
)

var (
	modelFile = flag.String("model", "", "GGUF file; default is the built-in model")
	tokens    = flag.Int("tokens", 60, "tokens of an answer")
	prompt    = flag.Int("prompt", 300, "tokens of a prompt")
	rounds    = flag.Int("rounds", 1, "answers of each kind with drafts, and as many without")
	streams   = flag.Int("streams", 1, "answers at once")
	threads   = flag.Int("threads", 1, "threads of the kernels of a rank")
	cpuTime   = flag.Bool("cpu", false, "measure processor time of the process, where others use the machine; with one rank of one thread")
	ranks     = flag.Int("ranks", 1, "ranks in this process, or with -coordinator in as many")
	rank      = flag.Int("rank", 0, "with -coordinator: this process's")

	coordinator = flag.String("coordinator", "", "address of rank 0, for ranks in processes of their own, on other hosts")
)

// script is a constraint that allows only the tokens of an answer.
type script struct {
	ids  []int32
	said int
}

func (s *script) Mask(_ context.Context, allowed []uint64) error {
	if s.said < len(s.ids) {
		id := s.ids[s.said]
		allowed[id/64] |= 1 << (id % 64)
	}
	return nil
}

func (s *script) Accept(int32) error { s.said++; return nil }

// text draws n tokens without control tokens.
func text(r *rand.Rand, n int, v *tokenizer.Tokenizer) []int32 {
	out := make([]int32, 0, n)
	for len(out) < n {
		if id := r.Int32N(int32(v.Size())); len(v.Bytes(id)) > 0 && !v.IsEnd(id) {
			out = append(out, id)
		}
	}
	return out
}

// open starts a node with a model, with others in this process if there are to be several
// ranks.
func open(t testing.TB, path string, ranks int, block node.Block, stages ...groupplan.Stages) *node.Node {
	level, err := cpu.ParseLevel("auto") // as the program does: the zero level is the portable one
	require.NoError(t, err)
	options := func(rank int, group *node.Group) node.Options {
		o := node.Options{Threads: *threads, Level: level, Context: *prompt + *tokens + 64, MaxTokens: 256, Sequences: 2**streams + 2,
			Tokenizes: rank == 0, Overcommit: true, Plans: io.Discard, Group: group, Block: block}
		o.File.Path = path
		if group != nil {
			group.Rank, o.Reduce = rank, parallel.Exact
		}
		return o
	}
	if ranks == 1 {
		n := node.New(options(0, nil))
		require.NoError(t, n.Start(t.Context()))
		t.Cleanup(n.Close)
		return n
	}
	address, own := *coordinator, 1
	if address == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address, own = l.Addr().String(), ranks
		require.NoError(t, l.Close())
	}
	group := func() *node.Group {
		g := &node.Group{Size: ranks, Coordinator: address, Key: []byte("a key of this test alone, not secret"), Share: groupplan.Share{Of: parallel.ShareAll},
			ConnectTimeout: time.Minute, PeerTimeout: time.Minute, WorkTimeout: time.Minute}
		if len(stages) > 0 {
			g.Share, g.Stages = groupplan.Share{}, stages[0]
		}
		return g
	}
	if *rank > 0 {
		err := node.New(options(*rank, group())).Follow(t.Context())
		t.Skipf("NOT CHECKED: rank %d followed until: %v", *rank, err)
	}
	var followers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for rank := 1; rank < own; rank++ {
		followers.Go(func() { _ = node.New(options(rank, group())).Follow(ctx) }) // it ends with the leader
	}
	n := node.New(options(0, group()))
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(func() {
		n.Close()
		stop()
		followers.Wait()
	})
	return n
}

// answer is what an answer took.
type answer struct {
	took  time.Duration
	steps int
}

// ask gives each request its known answer, and returns what the decode of all took.
func ask(t *testing.T, e *engine.Engine, requests []engine.Request, drafts bool) (a answer) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var from, to time.Time
	for i, q := range requests {
		known := q.Constraint.(*script).ids
		q.Constraint, q.NoDrafts, q.CacheScope = &script{ids: known}, !drafts, fmt.Sprint(drafts, i, rand.Uint64())
		all.Go(func() {
			s, err := e.Submit(t.Context(), q)
			if err != nil {
				t.Error(err)
				return
			}
			var got []int32
			for {
				ev, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, tok := range ev.Tokens {
					got = append(got, tok.ID)
				}
			}
			if !slices.Equal(known, got) {
				t.Errorf("answer %d is %v, not %v", i, got, known)
			}
			times := s.Times()
			mu.Lock()
			defer mu.Unlock()
			if from.IsZero() || times.Decoding.Before(from) {
				from = times.Decoding
			}
			if times.Ended.After(to) {
				to = times.Ended
			}
			a.steps += times.DecodeSteps
		})
	}
	all.Wait()
	a.took = to.Sub(from)
	return a
}

// TestDraftsGain asks for answers of each of kinds, without and with drafts.
func TestDraftsGain(t *testing.T) {
	n := open(t, *modelFile, *ranks, node.Block{})
	o := engine.Options{Drafter: engine.TextDrafter, MaxActive: *streams, CacheEntries: -1, Logger: slog.New(slog.DiscardHandler)}
	switch {
	case *modelFile == "": // nothing is measured, and no time decides what a step runs
		o.Clock = func() time.Time { return time.Unix(0, 0) }
	case *cpuTime:
		o.Clock = processorTime
	}
	e, err := engine.New(n.Model, n.Tokens, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close(context.Background())) }()
	api := dialect.Service{Tokenizer: n.Tokens}
	for _, kind := range kinds {
		var plain, drafted []answer
		for round := range *rounds {
			r := rand.New(rand.NewPCG(uint64(round), 7))
			var all []engine.Request
			for range *streams {
				a := kind.draw(t, r, n.Tokens)
				q := []engine.Request{{Prompt: a.prompt, MaxTokens: len(a.answer), IgnoreEOS: true, Constraint: &script{ids: a.answer}}}
				if a.file != "" { // as the APIs do
					api.Relate([]chat.Message{{Role: chat.User, Content: a.file}}, "", q)
				}
				all = append(all, q...)
			}
			plain = append(plain, ask(t, e, all, false))
			drafted = append(drafted, ask(t, e, all, true))
		}
		stats := e.Stats()
		t.Logf("%s: %d answers at once on %d ranks of %d threads", kind.name, *streams, *ranks, *threads)
		t.Logf("  without drafts %s", show(plain))
		t.Logf("  with drafts    %s", show(drafted))
		t.Logf("  gain %.2f (medians); drafts so far by depth %v, of them accepted %v", median(plain).took.Seconds()/median(drafted).took.Seconds(), stats.Drafts[0].Run, stats.Drafts[0].Accepted)
		require.Equal(t, (*tokens-1)**streams, plain[0].steps, "without drafts a step gives a token")
		switch {
		case kind.name == "nothing repeats":
			require.Equal(t, (*tokens-1)**streams, drafted[0].steps)
		case kind.repeats && *streams == 1:
			require.Less(t, drafted[0].steps, *tokens*8/10, kind.name)
		}
	}
}

// prose returns tokens of a document of this repository, from anywhere in it.
func prose(t *testing.T, r *rand.Rand, name string, n int, v *tokenizer.Tokenizer) []int32 {
	b, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	ids, err := v.EncodeContext(t.Context(), string(b), false)
	require.NoError(t, err)
	require.Greater(t, len(ids), n)
	return ids[r.IntN(len(ids)-n):][:n]
}

// rewrite returns the beginning of a text with a change every 25 tokens or so.
func rewrite(r *rand.Rand, from []int32, v *tokenizer.Tokenizer) (out []int32) {
	for _, id := range from {
		switch r.IntN(50) {
		case 0: // left out
		case 1:
			out = append(out, text(r, 1+r.IntN(3), v)...)
		default:
			out = append(out, id)
		}
	}
	for len(out) < *tokens {
		out = append(out, from[:min(len(from), *tokens-len(out))]...)
	}
	return out[:*tokens]
}

// processorTime is the processor time of the process.
func processorTime() time.Time {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail with these arguments
	}
	return time.Unix(0, u.Utime.Nano()+u.Stime.Nano())
}

func median(all []answer) answer {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b answer) int { return int(a.took - b.took) })
	return sorted[len(sorted)/2]
}

func show(all []answer) string {
	m := median(all)
	return fmt.Sprintf("%.1f t/s (median of %d), %.2f tokens a step", float64((*tokens-1)**streams)/m.took.Seconds(), len(all), float64((*tokens-1)**streams)/float64(m.steps))
}
