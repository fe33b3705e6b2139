//go:build unix

package cluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// The soak: one cluster under constant load, in which ranks are lost and return at random
// for the time that a flag sets. What rank 0 holds must stay flat, and every token must
// be that of one rank.
//
//	go test ./tests/cluster -run TestSoak -timeout 2h -v -args -soak 1h
var soakFor = flag.Duration("soak", 0, "how long TestSoak runs; 0: two minutes, with -exhaustive")

// soakStreams is how many answers run at any time.
const soakStreams = 4

// A prefix cache fills while it has free slots, which looks like a leak. So it has few
// here, and the test judges what rank 0 holds only after warmAnswers have filled them.
// The existing KV caches are then those of soakStreams answers and soakSessions
// conversations.
const (
	soakSessions = 4
	warmAnswers  = 2 * (soakStreams + soakSessions)
)

// holding is what rank 0 holds at a moment.
type holding struct {
	memory            float64 // MiB of its own, without the pages of the mapped model
	files, goroutines float64
}

func (h holding) String() string {
	return fmt.Sprintf("%.0f MiB, %v files, %v goroutines", h.memory, h.files, h.goroutines)
}

func (b *bed) holding() (h holding) {
	b.t.Helper()
	h.goroutines, h.files = b.held()
	memory, err := b.Client.Metric(b.ctx, `ringmaster_budget_used{budget="memory of the process (bytes)"}`)
	require.NoError(b.t, err)
	h.memory = memory / (1 << 20)
	return h
}

// TestSoak runs the soak.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		testenv.Need(t, testenv.Exhaustive, "a soak of two minutes")
		*soakFor = 2 * time.Minute
	}
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: append([]string{"--share", "all", "--cache-entries", fmt.Sprint(soakSessions)}, continueFlags...)})
	b.ctx = testenv.Within(t, *soakFor+30*hangLimit)
	b.form()
	b.requireAnswer(longAnswer) // warms what is reused

	// The load: answers without a pause, each compared with that of one rank.
	var answers atomic.Int64
	var over atomic.Bool
	defer over.Store(true)
	var load sync.WaitGroup
	wrong := make(chan error, soakStreams)
	one := want(t, b.Model, longAnswer)
	r := longAnswer.request(t, b.Model)
	for range soakStreams {
		load.Go(func() {
			for !over.Load() {
				a, err := b.Client.Complete(b.ctx, r)
				switch {
				case err == nil && a.Err != nil:
					err = fmt.Errorf("%+v", a.Err)
				case err == nil && !slices.EqualFunc(a.Tokens, one.Tokens, func(a, b harness.Token) bool { return a.Equal(b, true) }):
					err = fmt.Errorf("%d tokens are not those of one rank", len(a.Tokens))
				}
				if err != nil {
					wrong <- err
					return
				}
				answers.Add(1)
			}
		})
	}
	require.NoError(t, harness.Until(testenv.Within(t, 10*hangLimit), "a full prefix cache", func() (bool, string) {
		return answers.Load() >= warmAnswers || len(wrong) > 0, fmt.Sprint(answers.Load(), " answers")
	}))
	end := time.Now().Add(*soakFor)
	random, faults := rand.New(rand.NewPCG(*campaignSeed, 16)), 0
	var seen []holding
	sample := time.Now()
	for time.Now().Before(end) {
		s := b.drawn(random)
		from := b.Rank(0).Log.Len()
		victims, _ := s.strike(b, random)
		if s.finding != slow {
			b.waitLog(0, from, `epoch \d+ has ended: .*`)
		}
		for _, v := range victims {
			s.repair(b, v)
		}
		b.untilRanks(b.Size)
		b.othersRun(-1)
		faults++
		select {
		case err := <-wrong:
			t.Fatalf("after %d faults: %v", faults, err)
		default:
		}
		h := b.holding()
		seen = append(seen, h)
		if time.Now().After(sample) {
			sample = time.Now().Add(*soakFor / 12)
			t.Logf("%d faults, %d answers: %v", faults, answers.Load(), h)
		}
	}
	over.Store(true)
	load.Wait()
	close(wrong)
	require.NoError(t, <-wrong)
	require.Greater(t, len(seen), 8, "too short to tell")
	// Flat: the last third is not above the maximum of the second third.
	third := len(seen) / 3
	most := func(part []holding) (m holding) {
		for _, h := range part {
			m.memory, m.files, m.goroutines = max(m.memory, h.memory), max(m.files, h.files), max(m.goroutines, h.goroutines)
		}
		return m
	}
	before, after := most(seen[third:2*third]), most(seen[2*third:])
	t.Logf("seed %d, %v: %d faults, %d answers of %d tokens, all those of one rank; at most %v, then %v",
		*campaignSeed, *soakFor, faults, answers.Load(), longAnswer.tokens, before, after)
	require.LessOrEqual(t, after.memory, 1.1*before.memory+8)
	require.LessOrEqual(t, after.files, before.files+8)
	require.LessOrEqual(t, after.goroutines, before.goroutines+16)
}
