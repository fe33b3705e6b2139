package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"ringmaster/internal/safetext"
)

// sshLimit bounds a command on all hosts. ssh itself gives up a host that does not answer
// within 10 seconds.
const sshLimit = time.Minute

// mostAnswer bounds what a host may say, in bytes.
const mostAnswer = 1 << 20

// sshOptions make ssh fail where it would wait for a person or for a host that is gone.
var sshOptions = []string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"}

// target is what ssh calls the host of a rank.
func (g *group) target(rank int) string {
	if g.User != "" {
		return g.User + "@" + g.Hosts[rank]
	}
	return g.Hosts[rank]
}

// ssh is the command line that runs a command on the host of a rank.
func (g *group) ssh(rank int, options []string, command string) []string {
	args := append(append([]string{}, g.SSH...), options...)
	return append(append(args, sshOptions...), g.target(rank), command)
}

// capped keeps the first mostAnswer bytes that are written to it.
type capped struct{ kept bytes.Buffer }

func (c *capped) Write(b []byte) (int, error) {
	c.kept.Write(b[:min(len(b), mostAnswer-c.kept.Len())])
	return len(b), nil
}

// answer is what a command on a host has said.
type answer struct {
	out string
	err error // with the last line of the standard error
}

// atAll runs a command on all hosts at the same time, with a standard input, and returns
// their answers, [size].
func (g *group) atAll(ctx context.Context, command func(rank int) string, input string) []answer {
	ctx, cancel := context.WithTimeout(ctx, sshLimit)
	defer cancel()
	out := make([]answer, g.size)
	var all sync.WaitGroup
	for r := range g.size {
		all.Go(func() {
			args := g.ssh(r, nil, command(r))
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.WaitDelay = time.Second // for pipes that a process in the background keeps open
			var text, errs capped
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &text, &errs
			err := cmd.Run()
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer: %w", context.Cause(ctx))
			} else if err != nil {
				lines := strings.Split(strings.TrimSpace(errs.kept.String()), "\n")
				if last := safetext.Drop(strings.TrimSpace(lines[len(lines)-1])); last != "" {
					err = errors.New(last)
				}
			}
			out[r] = answer{text.kept.String(), err}
		})
	}
	all.Wait()
	return out
}

// onHost is the command line that runs a rank on its host: caffeinate keeps a Mac awake.
// The terminal (-tt) passes Ctrl-C on, without echo, and ends the program if ssh is killed.
func (g *group) onHost(rank int) []string {
	const script = `stty -echo 2>/dev/null; if command -v caffeinate >/dev/null 2>&1; then caffeinate -i -w $$ & fi; exec "$@"`
	remote := "exec sh -c " + quote(append([]string{script, "ringmaster"}, g.arguments(rank)...))
	return g.ssh(rank, []string{"-tt"}, remote)
}

// interruptKey is Ctrl-C, as a terminal sends it.
const interruptKey = "\x03"

// press sends Ctrl-C over a rank's terminal.
func press(keys io.Writer) {
	_, _ = io.WriteString(keys, interruptKey) // a rank that has ended reads no keys
}
