//go:build unix

package cluster

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// The campaign: random faults of random ranks in random moments, with one or eight running answers, on
// clusters of 2 to 5 ranks. No answer may be lost or wrong.
//
//	go test ./tests/cluster -run TestCampaign -timeout 4h -v -args -campaign 1000 -seed 7 -campaign-jobs 4
//
// Job j of seed S has the faults that the one job of seed S+j has. SIGINT and SIGTERM end
// every job after the fault that is under way, with the summary; so does a failure.
var (
	campaignFaults = flag.Int("campaign", 0, "the number of faults of TestCampaign; 0: a few")
	campaignSeed   = flag.Uint64("seed", 1, "what the faults of TestCampaign and TestSoak are drawn from")
	campaignJobs   = flag.Int("campaign-jobs", 1, "how many clusters of TestCampaign suffer at the same time")
)

// faultsOfCluster is how many faults a cluster suffers before another replaces it, up to faultsOfRound of
// them during the same answers. If possible one more follows: a rank that computes wrongly.
const (
	faultsOfCluster = 40
	faultsOfRound   = 6
)

// The phases of the campaign: a cluster is idle, in a prefill, or decoding.
var (
	shortAnswer    = question{20, 120}
	campaignPhases = []phase{{"idle", question{}}, {"prefill", question{1000, 4}}, {"decode", shortAnswer}}
)

// job is one sequence of clusters and faults.
type job struct {
	*tally
	seed   uint64
	faults int // that it is to suffer
	random *rand.Rand
	lap    time.Time // when the current part of a fault began
}

func newJob(seed uint64, faults int) *job {
	return &job{newTally(), seed, faults, rand.New(rand.NewPCG(seed, 15)), time.Now()}
}

// stream is a running answer with the times of its tokens.
type stream struct {
	*pendingRequest
	question question
	tokens   []time.Time  // complete when done is closed
	came     atomic.Int32 // tokens so far
}

// ask sends a question. It hangs if no token arrives for hangLimit, which is long because five ranks may
// poll on two processors.
func (b *bed) ask(q question) *stream {
	s := &stream{pendingRequest: &pendingRequest{done: make(chan struct{})}, question: q}
	ctx, cancel := context.WithCancelCause(b.ctx)
	hang := time.AfterFunc(hangLimit, func() { cancel(fmt.Errorf("a request hangs")) })
	r := q.request(b.t, b.Model)
	r.OnToken = func(int) {
		hang.Reset(hangLimit)
		s.tokens = append(s.tokens, time.Now())
		s.came.Add(1)
	}
	go func() {
		defer cancel(nil)
		defer hang.Stop()
		defer close(s.done)
		s.answer, s.err = b.Client.Complete(ctx, r)
	}()
	return s
}

// arrivals returns the times of the tokens after the answer has ended.
func (s *stream) arrivals() (at []string) {
	<-s.done
	for _, t := range s.tokens {
		at = append(at, t.UTC().Format("15:04:05.000"))
	}
	return at
}

func ended(streams []*stream) bool {
	return !slices.ContainsFunc(streams, func(s *stream) bool {
		select {
		case <-s.done:
			return false
		default:
			return true
		}
	})
}

// steps waits until the server has run so many steps more, or all answers have ended.
func (b *bed) steps(n int, streams []*stream) {
	const steps = "ringmaster_engine_steps_total"
	was, err := b.Client.Metric(b.ctx, steps)
	require.NoError(b.t, err)
	require.NoError(b.t, harness.Until(testenv.Within(b.t, hangLimit), "a moment told by steps", func() (bool, string) {
		now, err := b.Client.Metric(b.ctx, steps)
		return err == nil && now >= was+float64(n) || ended(streams), fmt.Sprint(now, err)
	}))
}

// struck is a fault that was suffered during running answers.
type struck struct {
	stroke
	at   time.Time
	line int // of the log of rank 0
	name string
}

// round makes a cluster suffer up to a number of faults, one after the other, during the same answers.
func (j *job) round(b *bed, most int) {
	r := j.random
	p := campaignPhases[r.IntN(len(campaignPhases))]
	var streams []*stream
	j.lap = time.Now()
	if p.question != (question{}) {
		streams = append(streams, b.ask(p.question))
		for range []int{1, 1, 1, 7}[r.IntN(4)] {
			streams = append(streams, b.ask(shortAnswer))
		}
	}
	defer func() {
		if b.t.Failed() {
			for _, s := range streams {
				b.t.Logf("tokens of an answer of %d came at %v", s.question.tokens, s.arrivals())
			}
		}
	}()
	var faults []struck
	for range min(1+r.IntN(faultsOfRound), most) {
		faults = append(faults, j.suffer(b, b.drawn(r), p, streams))
	}
	for _, s := range streams {
		b.requireWhole(s.pendingRequest, s.question)
		j.answered(s.question)
	}
	j.spent("until the answers' end")
	j.pausesOf(b, streams, faults)
	b.requireAnswer(brief)
	j.spent("a last answer")
}

// suffer makes a cluster suffer a fault; all ranks then return.
func (j *job) suffer(b *bed, s stroke, p phase, streams []*stream) struck {
	r := j.random
	j.lap = time.Now()
	before, after := r.IntN(20), r.IntN(2)*r.IntN(20)
	b.steps(before, streams)
	j.spent("before the fault")
	n := slices.IndexFunc(streams, func(s *stream) bool { return !ended([]*stream{s}) })
	moment := "idle"
	if n >= 0 {
		moment = fmt.Sprintf("%s, %d answers", p.name, len(streams))
	}
	name := fmt.Sprintf("fault %d of seed %d: %s, %s", j.tally.faults, j.seed, s.name, moment)
	b.t.Log(name)
	from, at := b.Rank(0).Log.Len(), time.Now()
	victims, named := s.strike(b, r)
	j.spent("striking")
	if s.finding != slow {
		line := b.waitLog(0, from, `epoch \d+ has ended: .*`)
		if named >= 0 {
			requireRank(b.t, line, named)
			j.named++
		}
	}
	j.spent("until the verdict")
	b.steps(after, streams) // without them
	j.spent("without the victims")
	if s.repair != nil {
		for _, v := range victims {
			s.repair(b, v)
		}
		j.spent("repairing")
		b.untilRanks(b.Size)
		b.othersRun(-1)
		j.spent("until all ranks are back")
	} else if s.finding == closed {
		b.untilRanks(b.Size - len(victims))
	}
	j.count(s.name)
	return struck{stroke: s, at: at, line: from, name: name}
}

// pausesOf notes the longest pause between two tokens of each answer after each fault.
func (j *job) pausesOf(b *bed, streams []*stream, faults []struck) {
	for i, f := range faults {
		for _, s := range streams {
			longest := pause{finding: f.finding, what: f.name + ", " + b.t.Name()}
			for n := 1; n < len(s.tokens); n++ {
				began, ended := s.tokens[n-1], s.tokens[n]
				if ended.Before(f.at) || i+1 < len(faults) && ended.After(faults[i+1].at) && began.After(f.at) {
					continue // it belongs to another fault
				}
				if took := ended.Sub(began); took > longest.took {
					longest.took, longest.token, longest.until = took, n, ended
				}
			}
			if longest.took == 0 {
				continue
			}
			if longest.notable() {
				b.t.Logf("a pause of %v before token %d, until %v: %s; the log of rank 0 meanwhile:\n%s", longest.took.Round(time.Millisecond), longest.token,
					longest.until.Format(time.StampMilli), longest.what, b.Rank(0).Log.From(f.line))
			}
			j.paused(longest)
		}
	}
}

// spent ends a part of a fault.
func (j *job) spent(part string) {
	now := time.Now()
	j.parts[part] += now.Sub(j.lap)
	j.lap = now
}

// cluster makes one cluster suffer its number of faults, or until stopped ends.
func (j *job) cluster(t *testing.T, n int, stopped context.Context) {
	size, share, over := 2+j.random.IntN(4), []string{"experts", "all"}[j.random.IntN(2)], fabrics[n%len(fabrics)]
	entries := []string{"0", "4"}[j.random.IntN(2)] // a prefill may be found in the prefix cache
	t.Run(fmt.Sprintf("cluster %d of %d ranks, share %s, %s entries, %s", n, size, share, entries, over.name), func(t *testing.T) {
		o := harness.Options{Size: size, Model: model(t, campaignModel), RankFlags: map[int][]string{}, Flags: append([]string{"--share", share, "--cache-entries", entries}, continueFlags...)}
		for r := range size { // with a copy of the file, so that a bit of it can flip
			o.RankFlags[r] = []string{"--model", copyOf(t, o.Model)}
		}
		want(t, o.Model, shortAnswer)
		j.lap = time.Now()
		left := over.prepare(t, &o)
		b := newBed(t, o)
		if size > 2 && j.random.IntN(3) == 0 {
			b.startWhileKilling(j)
		} else {
			require.NoError(t, b.StartAll(testenv.Within(t, hangLimit)))
		}
		b.ready()
		b.untilRanks(size)
		b.requireAnswer(brief)
		j.spent("starting clusters")
		goroutines, files := b.held()
		for end := min(j.tally.faults+faultsOfCluster, j.faults); j.tally.faults < end && stopped.Err() == nil; {
			j.round(b, end-j.tally.faults)
		}
		if wrong.fits(b) && j.tally.faults < j.faults && stopped.Err() == nil {
			streams := []*stream{b.ask(shortAnswer)}
			f := j.suffer(b, wrong, campaignPhases[2], streams)
			b.requireWhole(streams[0].pendingRequest, shortAnswer)
			j.answered(shortAnswer)
			j.pausesOf(b, streams, []struck{f})
			b.requireAnswer(brief)
		}
		// What a loss leaves open is closed soon, but not at once.
		j.lap = time.Now()
		require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "as many goroutines and files as before", func() (bool, string) {
			g, f := b.held()
			return g <= goroutines+2 && f <= files+2, fmt.Sprintf("%v goroutines and %v files, before %v and %v", g, f, goroutines, files)
		}))
		b.endsWhole()
		left()
		j.checked++
		j.spent("ending clusters")
	})
}

// TestCampaign runs the campaign and prints what it has seen.
func TestCampaign(t *testing.T) {
	testenv.Need(t, testenv.Full, "a campaign of faults")
	faults := *campaignFaults
	if faults == 0 {
		faults = 2
		if testenv.Rest(t, testenv.Full, "a campaign of 16 faults") {
			faults = 16
			if testenv.Rest(t, testenv.Exhaustive, "a campaign of 60 faults") {
				faults = 60
			}
		}
	}
	require.Positive(t, *campaignJobs)
	bySignal, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stopped, end := context.WithCancel(bySignal)
	defer end()
	jobs := make([]*job, *campaignJobs)
	all := newTally()
	var mu sync.Mutex // guards all, and the jobs' tallies between clusters
	done := make([]*tally, len(jobs))
	t.Run("jobs", func(t *testing.T) {
		for i := range jobs {
			j := newJob(*campaignSeed+uint64(i), faults/len(jobs)+min(1, faults%len(jobs)/(i+1)))
			jobs[i] = j
			t.Run(fmt.Sprint("seed ", j.seed), func(t *testing.T) {
				if len(jobs) > 1 {
					t.Parallel()
				}
				for n := 0; j.tally.faults < j.faults && stopped.Err() == nil; n++ {
					j.cluster(t, n, stopped)
					mu.Lock()
					done[i] = j.tally.clone()
					all = sum(done)
					t.Logf("%d of %d faults: %v", all.faults, faults, all)
					mu.Unlock()
					if t.Failed() {
						t.Logf("reproduce with -args -campaign %d -seed %d", j.faults, j.seed)
						end() // the others print what they have seen
						return
					}
				}
			})
		}
	})
	if all.faults < faults {
		t.Logf("ended after %d of %d faults, by a signal: %v", all.faults, faults, bySignal.Err() != nil)
	}
	t.Logf("seed %d, %d jobs: %v", *campaignSeed, len(jobs), all)
}

// TestFlippedBit: a bit that flips in the weights of one of three ranks, in the middle of an answer, ends
// no answer; the rank is named and excluded.
func TestFlippedBit(t *testing.T) {
	testenv.Need(t, testenv.Full, "a bit flipped in a rank's weights")
	for _, share := range []string{"experts", "all"} {
		t.Run(share, func(t *testing.T) {
			t.Parallel()
			o := harness.Options{Size: 3, Model: model(t, slowModel), RankFlags: map[int][]string{}, Flags: append([]string{"--share", share}, continueFlags...)}
			for r := range o.Size {
				o.RankFlags[r] = []string{"--model", copyOf(t, o.Model)}
			}
			b := formed(t, o)
			u := b.begin(phases[2])
			from := b.Rank(0).Log.Len()
			_, victim := flip(b, rand.New(rand.NewPCG(1, 1)))
			line := b.waitLog(0, from, `epoch \d+ has ended: .*`)
			requireRank(t, line, victim)
			require.Contains(t, line, "differs from "+hostName(0)+" in work")
			b.requireWhole(u, longAnswer)
			b.untilRanks(2)
			b.requireAnswer(brief)
			b.othersRun(-1)
		})
	}
}

// startWhileKilling starts a cluster and kills a follower while it loads.
func (b *bed) startWhileKilling(j *job) {
	b.t.Logf("fault %d: killed while loading", j.tally.faults)
	for r := range b.Size {
		require.NoError(b.t, b.Start(r))
	}
	b.waitLog(0, 0, `all ranks have joined`)
	victim := 1 + j.random.IntN(b.Size-1)
	b.signal(victim, syscall.SIGKILL)
	b.restart(victim)
	j.count("killed while loading")
}

// endsWhole ends a cluster as a user does, and requires that no process is left.
func (b *bed) endsWhole() {
	b.t.Helper()
	b.signal(0, syscall.SIGINT)
	for r := range b.Size {
		require.Zero(b.t, exitCode(b.t, b.Rank(r)), "rank %d", r)
		require.True(b.t, b.Rank(r).GroupGone(), "rank %d has left a process", r)
	}
}

// held returns how many goroutines and open files rank 0 has.
func (b *bed) held() (goroutines, files float64) {
	b.t.Helper()
	goroutines, err := b.Client.Metric(b.ctx, "go_goroutines")
	require.NoError(b.t, err)
	files, err = b.Client.Metric(b.ctx, "process_open_fds")
	require.NoError(b.t, err)
	return goroutines, files
}
