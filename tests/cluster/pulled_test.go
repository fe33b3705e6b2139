//go:build cgo && linux

package cluster

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
	"ringmaster/tests/fakeverbs"
)

// TestPulledCables: two servers with two cables and a verbs library that crashes when a
// cable is lost, as Apple's does. Each time a cable is pulled in the middle of an
// answer, the servers survive and name it. The group forms again over the other cable,
// and when that is lost too, over TCP. Every token is that of one rank. When the
// servers are killed, their helper processes free what they have and end.
func TestPulledCables(t *testing.T) {
	testenv.Need(t, testenv.Full, "pulled cables of a cluster over RDMA")
	pulledCables(t)
	if testenv.Rest(t, testenv.Full, "the same as on macOS 26.2 and 27.0") {
		for _, version := range []string{"26.2", "27.0"} {
			t.Run(version, func(t *testing.T) {
				t.Setenv("FAKEVERBS_PROFILE", version)
				pulledCables(t)
			})
		}
	}
}

func pulledCables(t *testing.T) {
	t.Setenv("FAKEVERBS_DIR", t.TempDir())
	f := fakeverbs.New(t, `
device rdma_en2 host=0 crash=1
device rdma_en3 host=0 crash=1
device rdma_en4 host=1 crash=1
device rdma_en5 host=1 crash=1
cable rdma_en2 rdma_en4
cable rdma_en3 rdma_en5
`)
	devices := testenv.WriteFile(t, filepath.Join(t.TempDir(), "devices.json"), `[[null,["rdma_en2","rdma_en3"]],[["rdma_en4","rdma_en5"],null]]`)
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Env: []string{"RINGMASTER_VERBS_LIBRARY=" + f.Path},
		Flags: []string{"--transport", "auto", "--rdma-devices", devices, "--rdma-in-process=false"}})
	b.form()
	pids := []int{b.Rank(0).Pid(), b.Rank(1).Pid()}
	b.waitLog(0, 0, `rdma \w+( \[0 1\])? of 2 ranks, rails 2, .*verbs in a helper process for each device`)
	b.requireAnswer(brief)
	for i, cable := range [][2]string{{"rdma_en2", "rdma_en4"}, {"rdma_en3", "rdma_en5"}} {
		from := []int{b.Rank(0).Log.Len(), b.Rank(1).Log.Len()}
		u := b.begin(phase{"decode", longAnswer})
		require.NoError(t, f.Script(fmt.Sprintf("cable %[1]s %[2]s dead\nport %[1]s down\nport %[2]s down\n", cable[0], cable[1])))
		b.requireWhole(u, longAnswer)
		// The first to notice informs the others: the device at either end, by a post
		// that crashes, or a waiting rank, by querying its port.
		named := fmt.Sprintf(`(%s|%s).*(was ended by SIGSEGV|its port is DOWN)`, cable[0], cable[1])
		b.waitLog(0, from[0], named)
		b.ready()
		b.waitLog(0, from[0], []string{`rdma \w+( \[0 1\])? of 2 ranks, rails 1,`, `no group over RDMA, so all ranks use tcp`}[i])
		b.requireAnswer(brief)
		b.othersRun(-1)
		require.Equal(t, pids, []int{b.Rank(0).Pid(), b.Rank(1).Pid()})
	}
	require.Positive(t, f.Count("contexts"), "the servers have opened the devices again")
	b.Close() // by SIGKILL
	require.Eventually(t, func() bool { return f.Count("contexts") == 0 && f.Count("pds") == 0 }, hangLimit, 10*time.Millisecond,
		"helper processes have outlived their servers, or ended without giving back what they had")
}

// TestAnswersOutliveALossOverRDMA: three servers with a cable between any two. When one
// dies in the middle of an answer, the other two continue over the cable between them,
// and when it returns all three use RDMA again.
func TestAnswersOutliveALossOverRDMA(t *testing.T) {
	testenv.Need(t, testenv.Full, "answers that outlive a loss over RDMA")
	t.Setenv("FAKEVERBS_DIR", t.TempDir())
	f := fakeverbs.New(t, `
device rdma_en2 host=0
device rdma_en3 host=0
device rdma_en4 host=1
device rdma_en5 host=1
device rdma_en6 host=2
device rdma_en7 host=2
cable rdma_en2 rdma_en4
cable rdma_en3 rdma_en6
cable rdma_en5 rdma_en7
`)
	devices := testenv.WriteFile(t, filepath.Join(t.TempDir(), "devices.json"), `[[null,["rdma_en2"],["rdma_en3"]],[["rdma_en4"],null,["rdma_en5"]],[["rdma_en6"],["rdma_en7"],null]]`)
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel), Env: []string{"RINGMASTER_VERBS_LIBRARY=" + f.Path},
		Flags: append([]string{"--transport", "rdma", "--rdma-devices", devices, "--share", "all"}, continueFlags...)})
	b.form()
	for _, victim := range []int{1, 2} {
		from := b.Rank(0).Log.Len()
		u := b.begin(phase{"decode", longAnswer})
		b.signal(victim, syscall.SIGKILL)
		b.requireWhole(u, longAnswer)
		b.untilRanks(2)
		b.waitLog(0, from, `msg="the group is running" epoch=\d+ ranks=2 size=3 transport=rdma`)
		b.restart(victim)
		b.untilRanks(3)
		b.requireAnswer(brief)
	}
	b.othersRun(-1)
}
