//go:build unix

package cluster

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// The campaign: random faults of random ranks in random moments, with one answer or
// eight under way, on clusters of 2 to 5 ranks. No answer may be lost or wrong.
//
//	go test ./tests/cluster -run TestCampaign -timeout 4h -v -args -campaign 1000 -seed 7
var (
	campaignFaults = flag.Int("campaign", 0, "the number of faults of TestCampaign; 0: a few")
	campaignSeed   = flag.Uint64("seed", 1, "what the faults of TestCampaign are drawn from")
)

// faultsOfCluster is how many faults a cluster suffers before another takes its place.
const faultsOfCluster = 25

// tally is what a campaign has seen.
type tally struct {
	faults, answers, tokens int
	kinds                   map[string]int
	closed, silent          []time.Duration // longest pauses between two tokens of an answer, by how the loss was found
}

func (c *tally) String() string {
	var kinds []string
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range c.kinds {
			if !yield(k) {
				return
			}
		}
	}) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, c.kinds[k]))
	}
	return fmt.Sprintf("%d faults (%s), %d answers with %d tokens: 0 hangs, 0 wrong tokens, 0 lost answers; pauses after closed connections %s, after silence %s",
		c.faults, strings.Join(kinds, ", "), c.answers, c.tokens, quantiles(c.closed), quantiles(c.silent))
}

func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	return fmt.Sprintf("median %v, most %v of %d", d[len(d)/2].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond), len(d))
}

// stroke is a kind of fault; it returns the ranks that must be repaired.
type stroke struct {
	name   string
	least  int // ranks that the cluster must have
	silent bool
	strike func(b *bed, r *rand.Rand) (victims []int, named int)
	repair func(b *bed, rank int) error
}

// one strikes a random follower with a signal.
func one(s syscall.Signal) func(*bed, *rand.Rand) ([]int, int) {
	return func(b *bed, r *rand.Rand) ([]int, int) {
		victim := 1 + r.IntN(b.Size-1)
		_, err := b.Signal(victim, s)
		require.NoError(b.t, err)
		return []int{victim}, victim
	}
}

// two kills a follower, and another one when the log of rank 0 has a line after it; ""
// kills both at once.
func two(line string) func(*bed, *rand.Rand) ([]int, int) {
	return func(b *bed, r *rand.Rand) ([]int, int) {
		victims := r.Perm(b.Size - 1)[:2]
		from := b.Rank(0).Log.Len()
		for i := range victims {
			victims[i]++
			_, err := b.Signal(victims[i], syscall.SIGKILL)
			require.NoError(b.t, err)
			if i == 0 && line != "" {
				_, err := b.Rank(0).Log.Wait(within(b.t, hangLimit), from, regexp.MustCompile(line))
				require.NoError(b.t, err)
			}
		}
		return victims, -1
	}
}

var strokes = []stroke{
	{"killed", 2, false, one(syscall.SIGKILL), restart},
	{"terminated", 2, false, one(syscall.SIGTERM), restart},
	{"stopped", 2, true, one(syscall.SIGSTOP), signals(syscall.SIGCONT)},
	{"two killed at once", 3, false, two(""), restart},
	{"one killed, one more while recovering", 3, false, two(`epoch \d+ has ended`), restart},
	{"killed, and again while joining", 2, false, one(syscall.SIGKILL), func(b *bed, rank int) error {
		from := b.Rank(0).Log.Len()
		if err := restart(b, rank); err != nil {
			return err
		}
		if _, err := b.Rank(0).Log.Wait(within(b.t, hangLimit), from, regexp.MustCompile(fmt.Sprintf(`rank %d (prepares|joined)`, rank))); err != nil {
			return err
		}
		if _, err := b.Signal(rank, syscall.SIGKILL); err != nil {
			return err
		}
		return restart(b, rank)
	}},
}

// ask sends a question and notes the longest pause between two tokens.
func (b *bed) ask(p phase) (u *pendingRequest, pause *time.Duration) {
	u, pause = &pendingRequest{done: make(chan struct{})}, new(time.Duration)
	ctx, cancel := context.WithTimeoutCause(b.ctx, hangLimit, fmt.Errorf("a request hangs"))
	r := p.question.request(b.t, b.Model)
	var last time.Time
	r.OnToken = func(int) {
		now := time.Now()
		if !last.IsZero() {
			*pause = max(*pause, now.Sub(last))
		}
		last = now
	}
	go func() {
		defer cancel()
		defer close(u.done)
		u.answer, u.err = b.Client.Complete(ctx, r)
	}()
	return u, pause
}

// suffer has a cluster suffer a fault.
func (b *bed) suffer(s stroke, r *rand.Rand, seen *tally) {
	p := phases[r.IntN(len(phases))]
	b.t.Logf("fault %d: %s, %s", seen.faults, s.name, p.name)
	var first *pendingRequest
	if p.question != (question{}) {
		first, _ = b.ask(p) // a prefill may be found in the prefix cache
	}
	var others []*pendingRequest
	var pauses []*time.Duration
	if r.IntN(3) == 0 && first != nil {
		for range 7 {
			u, pause := b.ask(phases[2])
			others, pauses = append(others, u), append(pauses, pause)
		}
	} else {
		u, pause := b.ask(phases[2])
		others, pauses = append(others, u), append(pauses, pause)
	}
	// A random moment, told by the steps that the server has run.
	const steps = "ringmaster_engine_steps_total"
	was, err := b.Client.Metric(b.ctx, steps)
	require.NoError(b.t, err)
	moment := was + float64(r.IntN(40))
	require.NoError(b.t, harness.Until(within(b.t, hangLimit), "the moment", func() (bool, string) {
		n, err := b.Client.Metric(b.ctx, steps)
		return err == nil && n >= moment, fmt.Sprint(n, err)
	}))
	from := b.Rank(0).Log.Len()
	victims, named := s.strike(b, r)
	line, err := b.Rank(0).Log.Wait(within(b.t, hangLimit), from, regexp.MustCompile(`epoch \d+ has ended: .*`))
	require.NoError(b.t, err)
	if named >= 0 {
		requireRank(b.t, line, named)
	}
	if r.IntN(2) == 0 { // they come back while the answers go on
		for _, v := range victims {
			require.NoError(b.t, s.repair(b, v))
		}
		victims = nil
	}
	if first != nil {
		b.requireWhole(first, p.question)
		seen.answers, seen.tokens = seen.answers+1, seen.tokens+p.question.tokens
	}
	for i, u := range others {
		b.requireWhole(u, longAnswer)
		seen.answers, seen.tokens = seen.answers+1, seen.tokens+longAnswer.tokens
		if s.silent {
			seen.silent = append(seen.silent, *pauses[i])
		} else {
			seen.closed = append(seen.closed, *pauses[i])
		}
	}
	for _, v := range victims {
		require.NoError(b.t, s.repair(b, v))
	}
	b.untilRanks(b.Size)
	b.requireAnswer(brief)
	b.othersRun(-1)
	seen.faults++
	seen.kinds[s.name]++
}

// TestCampaign runs the campaign and prints what it has seen.
func TestCampaign(t *testing.T) {
	faults := *campaignFaults
	if faults == 0 {
		faults = 2
		if testenv.Rest(t, testenv.Full, "a campaign of 30 faults") {
			faults = 30
		}
	}
	seen := &tally{kinds: map[string]int{}}
	random := rand.New(rand.NewPCG(*campaignSeed, 15))
	for n := 0; seen.faults < faults; n++ {
		size, share := 2+random.IntN(4), []string{"experts", "all"}[random.IntN(2)]
		t.Run(fmt.Sprintf("cluster %d of %d ranks, share %s", n, size, share), func(t *testing.T) {
			b := newBed(t, harness.Options{Size: size, Model: model(t, slowModel), Flags: append([]string{"--share", share}, goesOn...)})
			require.NoError(t, b.StartAll(within(t, hangLimit)))
			b.ready()
			b.requireAnswer(brief)
			goroutines, files := b.held()
			for range min(faultsOfCluster, faults-seen.faults) {
				s := strokes[random.IntN(len(strokes))]
				for s.least > size {
					s = strokes[random.IntN(len(strokes))]
				}
				b.suffer(s, random, seen)
			}
			// What a loss leaves open ends soon, but not at once.
			require.NoError(t, harness.Until(within(t, hangLimit), "as many goroutines and files as before", func() (bool, string) {
				g, f := b.held()
				return g <= goroutines+2 && f <= files+2, fmt.Sprintf("%v goroutines and %v files, before %v and %v", g, f, goroutines, files)
			}))
		})
		if t.Failed() {
			t.Logf("after %v; reproduce with -args -campaign %d -seed %d", seen, faults, *campaignSeed)
			return
		}
	}
	t.Logf("seed %d: %v", *campaignSeed, seen)
}

// held is how many goroutines and open files rank 0 has.
func (b *bed) held() (goroutines, files float64) {
	b.t.Helper()
	goroutines, err := b.Client.Metric(b.ctx, "go_goroutines")
	require.NoError(b.t, err)
	files, err = b.Client.Metric(b.ctx, "process_open_fds")
	require.NoError(b.t, err)
	return goroutines, files
}
