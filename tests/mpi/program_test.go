package mpi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// limit bounds every wait of the tests in this file.
const limit = 2 * time.Minute

var build struct {
	sync.Once
	path string
	err  error
}

// program returns the path of the built ringmaster.
func program(t *testing.T) string {
	needMPI(t)
	build.Do(func() {
		dir, err := os.MkdirTemp("", "rm")
		if err != nil {
			build.err = err
			return
		}
		build.path, build.err = testenv.BuildProgram(context.Background(), dir)
	})
	require.NoError(t, build.err)
	return build.path
}

// TestNotLinked: the program starts without an MPI library.
func TestNotLinked(t *testing.T) {
	ldd := testenv.NeedTool(t, "ldd", "no ldd here")
	out, err := exec.Command(ldd, program(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "libc.so")
	require.NotContains(t, string(out), "mpi")
}

// TestLogits runs the same command on all ranks of a job. With --reduce exact
// the logits have the bits of a single rank, with sum those of as many ranks
// over TCP. The ranks run all ids in one step and divide its rows; the single rank
// and those over TCP run steps of fewer rows and do not divide them.
func TestLogits(t *testing.T) {
	exe := program(t)
	dir := t.TempDir()
	ids := testenv.WriteFile(t, filepath.Join(dir, "ids"), strings.Repeat("17 42 311 9 55 120 ", 11))
	ctx := testenv.Within(t, limit)
	exchanges := map[int]int{} // of rank 0 over MPI, by ranks
	logits := func(reduce string, n int) []byte {
		out := filepath.Join(dir, fmt.Sprint(reduce, n))
		args := []string{exe, "logits", "--tokens", ids, "--out", out, "--reduce", reduce, "--threads", "1", "--batch"}
		cmd := exec.CommandContext(ctx, args[0], append(args[1:], "23")...)
		if n > 1 {
			cmd = mpirun(ctx, n, append(args, "66", "--distributed", "--transport", "mpi", "--share", "all:"+strings.Repeat("2,", n-1)+"1")...)
		}
		log, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", log)
		if n > 1 {
			require.Contains(t, string(log), "transport=mpi")
			exchanges[n] = exchanged(t, string(log), 1)
		}
		got := testenv.ReadFile(t, out)
		return got
	}
	want := logits("exact", 1)
	require.Equal(t, want, logits("exact", 2), "2 ranks")
	require.Equal(t, want, logits("exact", 3), "3 ranks")

	at := testenv.LoopbackAddr(t)
	group := []string{"--distributed", "--coordinator", at, "--world-size", "3", "--threads", "1", "--transport", "tcp", "--rank"}
	var followers []*exec.Cmd
	for r := 1; r < 3; r++ {
		f := exec.CommandContext(ctx, exe, append(append([]string{"serve"}, group...), fmt.Sprint(r))...)
		require.NoError(t, f.Start())
		followers = append(followers, f)
	}
	out := filepath.Join(dir, "tcp")
	args := append([]string{"logits", "--tokens", ids, "--out", out, "--reduce", "sum", "--batch", "23", "--share", "all:2,2,1"}, group...)
	log, err := exec.CommandContext(ctx, exe, append(args, "0")...).CombinedOutput()
	require.NoError(t, err, "%s", log)
	for _, f := range followers {
		require.NoError(t, f.Wait())
	}
	tcp := testenv.ReadFile(t, out)
	require.Equal(t, tcp, logits("sum", 3), "sums over MPI and TCP")
	require.NotEqual(t, want, tcp, "exact and sum differ, so the comparison means something")

	undivided := exchanged(t, string(log), 3)
	for n := 2; n <= 3; n++ {
		require.Greater(t, exchanges[n], undivided/3, "%d ranks over MPI divide the rows of their step, which takes more exchanges", n)
	}
}

// exchanged reads from the log of rank 0 how many exchanges a group had in a number of steps.
func exchanged(t *testing.T, log string, steps int) int {
	found := regexp.MustCompile(fmt.Sprintf(`exchanged rank=0 host=\S+ steps=%d exchanges=(\d+) `, steps)).FindStringSubmatch(log)
	require.NotNil(t, found, "%s", log)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// cluster is a job of mpirun that serves requests.
type cluster struct {
	cmd   *exec.Cmd
	at    string
	log   *bytes.Buffer // to be read only after ended
	ended chan error
}

// serveJob starts a job and waits until it answers.
func serveJob(t *testing.T, n int, flags ...string) *cluster {
	c := &cluster{at: testenv.LoopbackAddr(t), log: &bytes.Buffer{}, ended: make(chan error, 1)}
	args := append([]string{program(t), "serve", "--distributed", "--transport", "mpi", "--listen", c.at, "--threads", "1", "--share", "experts"}, flags...)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	c.cmd = mpirun(ctx, n, args...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	require.NoError(t, c.cmd.Start())
	over := make(chan struct{})
	go func() {
		c.ended <- c.cmd.Wait()
		close(over)
	}()
	t.Cleanup(func() { // leave no processes behind, even after a failure
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		cancel()
		<-over
	})
	c.ready(t)
	return c
}

// ready waits until the group serves.
func (c *cluster) ready(t *testing.T) {
	require.Eventually(t, func() bool {
		r, err := http.Get("http://" + c.at + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, limit, 20*time.Millisecond)
}

// ask sends a request with fixed sampling and returns the status and the
// answer.
func (c *cluster) ask(t *testing.T) (int, string) {
	body := `{"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0,"max_tokens":24}`
	r, err := http.Post("http://"+c.at+"/v1/chat/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	var out struct {
		Choices []struct{ Message struct{ Content string } }
		Error   struct{ Message string }
	}
	require.NoError(t, json.Unmarshal(text, &out), "%s", text)
	if len(out.Choices) == 0 {
		return r.StatusCode, out.Error.Message
	}
	return r.StatusCode, out.Choices[0].Message.Content
}

// end waits for the end of the job and returns its log and error.
func (c *cluster) end(t *testing.T) (string, error) {
	select {
	case err := <-c.ended:
		return c.log.String(), err
	case <-time.After(limit):
		require.Fail(t, "the job does not end")
		return "", nil
	}
}

// process finds a rank of the job among the processes of this host.
func (c *cluster) process(t *testing.T, rank int) int {
	if runtime.GOOS != "linux" {
		t.Skip("NOT CHECKED: ranks are found in /proc")
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		args, err2 := os.ReadFile(d + "/cmdline")
		if err != nil || err2 != nil || !bytes.Contains(env, []byte(fmt.Sprintf("\x00OMPI_COMM_WORLD_RANK=%d\x00", rank))) ||
			!bytes.Contains(args, []byte("\x00"+c.at+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(d))
		require.NoError(t, err)
		return pid
	}
	require.Fail(t, "no process", "rank %d of %s", rank, c.at)
	return 0
}

// TestServe: a job answers with the same tokens as one rank; the error names a
// rank that is stopped for a while, and when it continues, the next epoch forms
// over the same MPI world; Ctrl-C at mpirun ends the job.
func TestServe(t *testing.T) {
	one := serveJob(t, 1, "--world-size", "1", "--reduce", "exact")
	status, want := one.ask(t)
	require.Equal(t, http.StatusOK, status, want)
	require.NoError(t, one.cmd.Process.Signal(os.Interrupt))
	_, _ = one.end(t) // mpirun reports the interrupt as an error

	c := serveJob(t, 3, "--reduce", "exact", "--peer-timeout", "2s")
	status, got := c.ask(t)
	require.Equal(t, http.StatusOK, status, got)
	require.Equal(t, want, got)

	pid := c.process(t, 2)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	status, got = c.ask(t)
	require.Equal(t, http.StatusServiceUnavailable, status, got)
	require.Contains(t, got, "rank 2")
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	c.ready(t)
	status, got = c.ask(t)
	require.Equal(t, http.StatusOK, status, got)
	require.Equal(t, want, got, "the second epoch")

	require.NoError(t, c.cmd.Process.Signal(os.Interrupt))
	log, _ := c.end(t)
	require.Contains(t, log, "epoch=2")
}

// TestLostForGood: a rank that never returns ends the job, with an error that
// says what to do.
func TestLostForGood(t *testing.T) {
	testenv.Need(t, testenv.Full, "a rank of a job that is lost for good")
	c := serveJob(t, 2, "--peer-timeout", "1s", "--connect-timeout", "3s")
	pid := c.process(t, 1)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	status, text := c.ask(t)
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	log, err := c.end(t)
	require.Error(t, err)
	require.Regexp(t, `rank 1 \(\S+\) did not return within 3s: restart the job \(mpirun, srun\): MPI cannot add a process to a running job`, log)
}

// TestKilled: when a rank is killed, the launcher ends the job.
func TestKilled(t *testing.T) {
	c := serveJob(t, 3)
	require.NoError(t, syscall.Kill(c.process(t, 1), syscall.SIGKILL))
	log, err := c.end(t)
	require.Error(t, err)
	require.Contains(t, log, "signal 9")
}

// TestNoJob: without a launcher, and with flags that contradict it, the error
// says what to do.
func TestNoJob(t *testing.T) {
	ctx := testenv.Within(t, limit)
	cmd := exec.CommandContext(ctx, program(t), "serve", "--distributed", "--transport", "mpi")
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "start it with mpirun -n N or srun")
	out, err = mpirun(ctx, 2, program(t), "serve", "--distributed", "--transport", "mpi", "--world-size", "3").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--world-size is 3 but MPI reports 2; omit the flag")
	out, err = mpirun(ctx, 2, "env", "MLX_MPI_LIBNAME=libother.so", program(t), "serve", "--distributed", "--transport", "mpi").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "libother.so")
	require.Contains(t, string(out), "Install Open MPI")
}
