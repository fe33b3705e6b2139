package rdmavm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/tests/rdmavm/job"
)

// boot runs a guest, or skips the test where that is impossible.
func boot(t *testing.T, r Run) []Result {
	t.Helper()
	results, times, err := Boot(t.Context(), r)
	if errors.Is(err, ErrNotHere) {
		t.Skipf("NOT CHECKED: %v", err)
	}
	require.NoError(t, err)
	t.Logf("fetched and built in %v, booted in %v, over after %v", times.Fetch, times.Boot, times.Whole)
	return results
}

// inguest builds the tests that run inside.
func inguest(t *testing.T) map[string]string {
	t.Helper()
	testenv.Need(t, testenv.Full, "the kernel's soft-RoCE in a guest")
	tests := filepath.Join(t.TempDir(), "inguest.test")
	require.NoError(t, Build(t.Context(), tests, "test -c", "./tests/rdmavm/inguest"))
	return map[string]string{"/bin/inguest.test": tests}
}

// step runs those tests that match run.
func step(name, run string, limit time.Duration) job.Step {
	return job.Step{Name: name, Limit: limit, Args: []string{"/bin/inguest.test", "-test.v", "-test.run=" + run, "-test.timeout=" + (limit - 5*time.Second).String()}}
}

// well requires that all steps have succeeded.
func well(t *testing.T, r Run, results []Result) {
	t.Helper()
	for i, res := range results {
		t.Logf("%s: exit status %d after %v", r.Steps[i].Name, res.Exit, res.Took)
		require.Empty(t, res.Err, r.Steps[i].Name)
		require.Zero(t, res.Exit, r.Steps[i].Name)
	}
}

// TestVerbs runs the tests of package verbs on two devices of a guest.
func TestVerbs(t *testing.T) {
	r := Run{
		Rails: 1, Ports: 2, Log: os.Stdout, Programs: inguest(t),
		Steps: []job.Step{step("verbs", "^Test(Devices|Errors|PostsAfterFailure|LateReceive|LinkDown|KilledProcess|Messages|ManyMessages|TwoProcesses)$", 4*time.Minute)},
	}
	if testenv.Rest(t, testenv.Exhaustive, "the figures of a ping-pong") {
		r.Steps = append(r.Steps, step("ping-pong", "^TestPingPong$", 4*time.Minute))
	}
	well(t, r, boot(t, r))
}

// TestGroups runs the tests of package rdma: groups of 2 to 4 ranks, one rail
// and two, each rank with its own devices.
func TestGroups(t *testing.T) {
	// The emulated processor is slow; tests/rdma runs the whole contract on verbs in software.
	programs, cases := inguest(t), "(mesh,_rails=1|ring,_rails=2)/^ranks=[24]"
	if testenv.Rest(t, testenv.Exhaustive, "all rails, also of three ranks") {
		cases = "(mesh|ring),_rails/^ranks=[234]"
	}
	r := Run{
		Rails: 2, Ports: 4, Log: os.Stdout, Programs: programs,
		Steps: []job.Step{
			step("measured", "^TestMeasured$/^(mesh|ring),_rails", 2*time.Minute),
			step("killed", "^TestKilledRank$", 2*time.Minute),
			step("contract", "^TestContract$/^"+cases+"$/^(move|history|order)$", 8*time.Minute),
			step("contract of sums", "^TestContract$/^(mesh,_rails=1|ring,_rails=2)/^ranks=3$/^reduce_scattered$", 5*time.Minute),
		},
	}
	// On UC queue pairs the kernel of a busy host now and then drops a packet. The operation
	// then ends with an error, as it must, because nothing retransmits.
	if testenv.Rest(t, testenv.Exhaustive, "groups on UC queue pairs, where a busy machine may drop packets") {
		r.Steps = append(r.Steps,
			step("measured, UC", "^TestMeasured$/_of_", 2*time.Minute),
			step("contract, UC", "^TestContract$/_of_/^ranks=3$/^(move|history)$", 5*time.Minute))
	}
	well(t, r, boot(t, r))
}

// TestServe runs the program itself: serve over RDMA, with its tokens compared
// with those of one rank.
func TestServe(t *testing.T) {
	programs := inguest(t)
	dir := t.TempDir()
	server, tiny := filepath.Join(dir, "ringmaster"), filepath.Join(dir, "tiny.gguf")
	require.NoError(t, Build(t.Context(), server, "build", "./cmd/server"))
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	_, err = c.WriteFile(tiny)
	require.NoError(t, err)
	programs["/bin/ringmaster"], programs["/tiny.gguf"] = server, tiny
	r := Run{
		Rails: 2, Ports: 4, Log: os.Stdout, Programs: programs, MemoryMB: 1536,
		Steps: []job.Step{step("serve", "^TestServe$", 12*time.Minute)},
	}
	well(t, r, boot(t, r))
}
