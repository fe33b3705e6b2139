package agents

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// install gives the path of a program of a package for this system, which another
// package has as an option. Where it cannot be had, the test says so.
func install(t *testing.T, pkg, program string) string {
	testenv.Need(t, testenv.Full, "true coding agents, from npm (some 400 MB)")
	testenv.NeedTool(t, "npm", "no npm here, from which the agents come")
	ctx := testenv.Within(t, 10*time.Minute)
	if err := npm.Install(ctx, "."); err != nil {
		t.Skipf("NOT CHECKED: the agents cannot be installed: %v", err)
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	path, err := filepath.Abs(filepath.Join("node_modules", pkg+"-"+runtime.GOOS+"-"+arch, program))
	require.NoError(t, err)
	if found, err := filepath.Glob(path); err == nil && len(found) == 1 {
		path = found[0]
	} else {
		t.Skipf("NOT CHECKED: %s is not to be had for %s on %s", pkg, runtime.GOOS, runtime.GOARCH)
	}
	return path
}

// process is a program that runs.
type process struct {
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan struct{} // closed when it has ended
	err   error         // after ended
}

// run starts a program in a folder of its own, with an environment of its own. It
// ends with the test at the latest.
func run(t *testing.T, folder string, env []string, program string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // for an agent that hangs
	p := &process{cmd: exec.CommandContext(ctx, program, args...), ended: make(chan struct{})}
	p.cmd.Dir = folder
	p.cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=dumb", "NO_COLOR=1"}, env...)
	p.cmd.WaitDelay = 10 * time.Second // children that keep its output open
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		defer cancel()
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// wait gives what the program wrote, when it has ended.
func (p *process) wait() (out string, err error) {
	<-p.ended
	return p.out.String(), p.err
}

// interrupt does what control-C does.
func (p *process) interrupt(t *testing.T) { require.NoError(t, p.cmd.Process.Signal(os.Interrupt)) }
