//go:build unix

package cluster

import (
	"flag"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// How long answers pause when a rank joins can be measured with any model, length and
// build:
//
//	go test ./tests/cluster -run TestAJoinUnderWay -v -args -join-model F -join-tokens 2000 -join-program P
var (
	joinModel   = flag.String("join-model", "", "the model file of TestAJoinUnderWay; \"\": a tiny one, and the test compares the tokens")
	joinTokens  = flag.Int("join-tokens", 20, "the tokens of each prompt of TestAJoinUnderWay")
	joinProgram = flag.String("join-program", "", "the program of TestAJoinUnderWay; \"\": that of this tree")
)

// TestAJoinUnderWay: a rank that joins in the middle of three answers receives their sequences before it
// is a member, and no token differs.
func TestAJoinUnderWay(t *testing.T) {
	if *joinModel == "" {
		testenv.Need(t, testenv.Full, "a rank that joins in the midst of three answers")
	}
	t.Parallel()
	o := harness.Options{Size: 2, Flags: append([]string{"--share", "experts", "--cache-entries", "0"}, continueFlags...)}
	if o.Model = *joinModel; o.Model == "" {
		o.Model = model(t, slowModel)
	}
	b := newBed(t, o)
	if *joinProgram != "" {
		b.Program = *joinProgram
	}
	b.form()
	b.signal(1, syscall.SIGKILL)
	b.untilRanks(1)
	q := question{*joinTokens, 300}
	var streams []*stream
	for range 3 {
		streams = append(streams, b.ask(q))
	}
	require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "tokens of all answers", func() (bool, string) {
		return !slices.ContainsFunc(streams, func(s *stream) bool { return s.came.Load() < 5 }), ""
	}))
	from, restarted := b.Rank(0).Log.Len(), time.Now()
	b.restart(1)
	if *joinProgram == "" {
		b.waitLog(0, from, "a rank has the sequences and joins")
	}
	b.waitLog(0, from, "has ended: "+named(1)+" joins")
	joins := time.Now()
	b.untilRanks(2)
	if ended(streams) {
		t.Log("the answers ended before the rank joined")
	}
	var gaps []time.Duration
	for _, s := range streams {
		<-s.done
		require.NoError(t, s.err)
		if *joinModel == "" {
			b.requireWhole(s.pendingRequest, q)
		}
		var longest, there time.Duration
		for i := 1; i < len(s.tokens); i++ {
			gap := s.tokens[i].Sub(s.tokens[i-1])
			gaps = append(gaps, gap)
			if s.tokens[i].After(restarted) {
				longest = max(longest, gap)
			}
			if s.tokens[i].After(joins) && there == 0 {
				there = gap
			}
		}
		t.Logf("%d tokens of prompt: a pause of %v as the rank became a member; the longest since its process began was %v",
			q.prompt, there.Round(time.Millisecond), longest.Round(time.Millisecond))
	}
	for line := range strings.Lines(b.Rank(0).Log.From(from)) {
		if strings.Contains(line, "joins") || strings.Contains(line, "joined") || strings.Contains(line, "the group is running") {
			t.Log(strings.TrimSpace(line))
		}
	}
	slices.Sort(gaps)
	t.Logf("median between two tokens %v", gaps[len(gaps)/2].Round(time.Millisecond/10))
}
