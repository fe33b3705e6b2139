//go:build unix

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// continueFlags are the flags of a cluster that continues after losses. It re-adds ranks
// quickly, because these tests cause more losses than a rank may have otherwise.
var continueFlags = append([]string{"--on-loss", "continue:1,1s"}, quick...)

// untilRanks waits until an epoch of so many ranks runs.
func (b *bed) untilRanks(n int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	defer cancel()
	require.NoError(b.t, harness.Until(ctx, fmt.Sprint("an epoch of ", n, " ranks"), func() (bool, string) {
		have, err := b.Client.Metric(ctx, "ringmaster_group_ranks")
		return err == nil && have == float64(n), fmt.Sprint(have, " ranks ", err)
	}))
}

// requireWhole requires that a request has been answered to its end with the tokens of
// one rank.
func (b *bed) requireWhole(u *pendingRequest, q question) {
	b.t.Helper()
	<-u.done
	require.NoError(b.t, u.err)
	b.requireComplete(u.answer, q)
}

// outlive injects a fault in a phase and requires that running and new answers are those
// of one rank, that the log names the rank, and that after the repair all ranks serve
// again, without an answer lost meanwhile.
func (b *bed) outlive(f fault, p phase, victim int) {
	t := b.t
	u := b.begin(p)
	from, at := b.Rank(0).Log.Len(), time.Now()
	f.inject(b, victim)
	line := b.waitLog(0, from, `epoch \d+ has ended: .*`)
	requireRank(t, line, victim)
	if u != nil {
		b.requireWhole(u, p.question)
	}
	t.Logf("%v after the fault: %s", time.Since(at).Round(time.Millisecond), line)
	// A rank that had copies of all that was lost has nothing to read.
	b.waitLog(0, from, `new to them: rank \d \(\S+\) has to read up to [\d.]+ [KMG]iB of weights that are new to it, within \S+ at the [\d.]+ [KMG]iB/s|experts that only the lost or departed ranks had are read from disk" ranks=\[\d\] size="0 B"`)
	b.untilRanks(b.Size - 1)
	b.requireAnswer(brief)
	b.othersRun(victim)
	u = b.begin(phase{"decode", longAnswer})
	f.repair(b, victim)
	b.requireWhole(u, longAnswer)
	b.untilRanks(b.Size)
	b.requireAnswer(brief)
	b.othersRun(-1)
}

// TestAnswersOutliveALoss: with --on-loss continue no fault of a rank ends an answer. On
// three ranks one dies in the middle of an answer; in the full form they have every fault
// in every phase, and two and five ranks a third of the pairs; with -exhaustive all.
func TestAnswersOutliveALoss(t *testing.T) {
	sizes := []int{3}
	if testenv.Rest(t, testenv.Full, "two and five ranks, and on three ranks every fault in every phase") {
		testenv.Rest(t, testenv.Exhaustive, "two and five ranks with every fault in every phase")
		sizes = append(sizes, 2, 5)
	}
	for _, size := range sizes {
		share := []string{"experts", "all"}[size%2]
		// runs reports whether this form has fault i in phase j.
		runs := func(i, j int) bool {
			switch {
			case !testenv.At(testenv.Full):
				return faults[i].name == "killed" && phases[j].name == "decode"
			case size == 3 || testenv.At(testenv.Exhaustive):
				return true
			}
			return (i+j+size)%3 == 0
		}
		t.Run(fmt.Sprintf("%d ranks, share %s", size, share), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: size, Model: model(t, slowModel), Flags: append([]string{"--share", share, "--cache-entries", "0"}, continueFlags...)})
			require.NoError(t, b.Start(0)) // without a prefix cache, so that every prefill takes its time
			for r := size - 1; r > 0; r-- {
				require.NoError(t, b.Start(r))
			}
			b.ready()
			for i, f := range faults {
				if f.net {
					continue
				}
				for j, p := range phases {
					if !runs(i, j) {
						continue
					}
					victim := 1 + (i+j)%(size-1)
					good := b.t.Run(fmt.Sprintf("rank %d %s, %s", victim, f.name, p.name), func(t *testing.T) {
						b.on(t).outlive(f, p, victim)
					})
					if !good {
						return // the cluster is in an unknown state
					}
				}
			}
		})
	}
}

// TestAnswersOutliveACut is TestAnswersOutliveALoss for links in network namespaces.
func TestAnswersOutliveACut(t *testing.T) {
	testenv.Need(t, testenv.Full, "cut links of a cluster that continues")
	t.Parallel()
	// A rank that is cut off waits as long as an answer takes on a slow host.
	flags := append([]string{"--connect-timeout", "10m"}, continueFlags...)
	b := formed(t, harness.Options{Size: 3, Model: model(t, slowModel), Net: network(t, 3), Flags: flags})
	for i, f := range faults {
		if f.net {
			t.Run(f.name, func(t *testing.T) { b.on(t).outlive(f, phases[1+i%2], 1+i%2) })
		}
	}
}

// TestAnswersOutliveAPartition: when two followers no longer reach each other, though all
// others reach both, no answer ends: the two detect it, one of them stays out, and it
// returns when the link does.
func TestAnswersOutliveAPartition(t *testing.T) {
	testenv.Need(t, testenv.Full, "a partition between two followers")
	t.Parallel()
	sizes := []int{3}
	if testenv.Rest(t, testenv.Exhaustive, "a partition between two of four ranks") {
		sizes = append(sizes, 4)
	}
	for _, size := range sizes {
		share := []string{"experts", "all"}[size%2]
		t.Run(fmt.Sprintf("%d ranks, share %s", size, share), func(t *testing.T) {
			b := formed(t, harness.Options{Size: size, Model: model(t, slowModel), Net: network(t, size), Flags: append([]string{"--share", share}, continueFlags...)})
			for i, p := range phases {
				if i > 0 && i < len(phases)-1 && !testenv.At(testenv.Exhaustive) {
					continue
				}
				t.Run(p.name, func(t *testing.T) {
					b := b.on(t)
					u, from, at := b.begin(p), b.Rank(0).Log.Len(), time.Now()
					require.NoError(t, b.Net.Partition(1, 2))
					if u == nil { // no rank uses an idle link
						p.question = brief
						u = b.begin(phase{"decode", brief})
					}
					line := b.waitLog(0, from, `epoch \d+ has ended: rank [12] .*`)
					t.Logf("%v after the cut: %s", time.Since(at).Round(time.Millisecond), line)
					b.requireWhole(u, p.question)
					b.untilRanks(size - 1)
					b.waitLog(0, from, `rank [12] \S+ stays out for .*rank [12] \S+ does not reach rank [12] \S+ at `)
					b.requireAnswer(brief)
					u = b.begin(phase{"decode", longAnswer})
					require.NoError(t, b.Net.Heal(1, 2))
					b.requireWhole(u, longAnswer)
					b.untilRanks(size)
					b.requireAnswer(brief)
				})
			}
		})
	}
}

// drain runs the command drain and requires its exit code and a part of its output.
func (b *bed) drain(rank, code int, says string) {
	b.t.Helper()
	p := harness.Run(b.t, nil, b.Program, "drain", "--rank", fmt.Sprint(rank), "--coordinator", b.Coordinator)
	requireExitCode(b.t, p, code, says)
}

// TestRollingRestart: all followers are restarted, one after the other, while the
// cluster answers, one by SIGTERM and one by drain; no token is lost, and nothing is
// computed twice.
func TestRollingRestart(t *testing.T) {
	testenv.Need(t, testenv.Full, "a rolling restart")
	t.Parallel()
	b := formed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: append([]string{"--share", "all"}, continueFlags...)})
	for r := 1; r < b.Size; r++ {
		u := b.begin(phase{"decode", longAnswer})
		from := b.Rank(0).Log.Len()
		if r == 1 {
			b.signal(r, syscall.SIGTERM)
		} else {
			b.drain(3, 1, "refused: rank 3 does not exist")
			b.drain(r, 0, hostName(2)+" left the group")
			require.Zero(t, exitCode(t, b.Rank(r)), "a rank that was drained ends in order")
			b.drain(r, 1, "refused: "+hostName(2)+" is not connected")
		}
		line := b.waitLog(0, from, `epoch \d+ has ended: .*`)
		require.Contains(t, line, hostName(r)+" leaves: ", "a planned end, between two steps")
		b.restart(r)
		b.requireWhole(u, longAnswer)
		b.untilRanks(b.Size)
		b.requireAnswer(brief)
	}
}

// TestTwoLosses: two ranks of four die at once in the middle of three answers; of eight in
// the full form.
func TestTwoLosses(t *testing.T) {
	testenv.Need(t, testenv.Full, "two losses")
	t.Parallel()
	b := formed(t, harness.Options{Size: 4, Model: model(t, slowModel), Flags: continueFlags})
	count := 3
	if testenv.Rest(t, testenv.Full, "two losses in the midst of eight answers") {
		count = 8
	}
	answers := make([]*pendingRequest, count)
	for i := range answers {
		answers[i] = b.begin(phase{"decode", longAnswer})
	}
	for _, r := range []int{1, 3} {
		b.signal(r, syscall.SIGKILL)
	}
	for _, u := range answers {
		b.requireWhole(u, longAnswer)
	}
	b.untilRanks(2)
	b.restart(1)
	b.restart(3)
	b.untilRanks(4)
	b.requireAnswer(brief)
}

// TestTooFewRanks: with fewer ranks than --on-loss continue:N allows, requests end with the rank's name.
func TestTooFewRanks(t *testing.T) {
	testenv.Need(t, testenv.Full, "a cluster that continues, with too few ranks")
	t.Parallel()
	b := formed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: append(slices.Clone(continueFlags), "--on-loss", "continue:3")})
	b.drain(2, 1, "refused: only ranks "+strings.TrimPrefix(hostName(0), "rank ")+" and "+strings.TrimPrefix(hostName(1), "rank ")+" would be left, and --on-loss continue:3 allows no fewer")
	b.survive(faults[0], phases[2], 2)
}
