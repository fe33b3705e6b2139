//go:build cgo && linux

package rdma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/testenv"
	"ringmaster/tests/fakeverbs"
)

// rankVariable makes this test binary one rank of TestKilledMember.
const rankVariable = "RINGMASTER_TEST_RANK"

// processTimeout is the deadline of operations of these ranks.
const processTimeout = 10 * time.Second

// outcome is what a rank reports at the end.
type outcome struct {
	Text    string
	Gone    bool
	Timeout bool
	Peer    int // by its number in the outermost group
	Elapsed time.Duration
}

// TestRankProcess is one rank of TestKilledMember; in other runs it does
// nothing.
func TestRankProcess(t *testing.T) {
	text := os.Getenv(rankVariable)
	if text == "" {
		return
	}
	r, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.NoError(t, rankProcess(t.Context(), r, 4))
}

func rankProcess(ctx context.Context, r, n int) error {
	w := meshOf(n, 1, "")
	tr := rdma.New(rdma.Options{Side: tcp.New(tcp.Options{Threshold: -1}), Matrix: w.matrix,
		Tuning: rdma.Tuning{Library: os.Getenv("RINGMASTER_VERBS_LIBRARY"), Model: model}})
	addr, err := tr.Listen("127.0.0.1")
	if err != nil {
		return err
	}
	fmt.Println("addr", addr)
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	l := distributed.Link{Rank: r, Size: n, GroupID: "processes", Epoch: 3, Token: bytes.Repeat([]byte{4}, 32), OpTimeout: processTimeout}
	if err := json.Unmarshal(line, &l.Addrs); err != nil {
		return err
	}
	g, err := tr.Connect(ctx, l)
	if err != nil {
		return err
	}
	// Ranks 2, 1 and 0 form a child, and in another order its child; rank 3
	// stays with the parent.
	use := g
	for range 2 {
		color := 0
		if r == 3 {
			color = distributed.Undefined
		}
		if use != nil {
			if use, err = use.Split(ctx, color, n-r); err != nil {
				return err
			}
		}
	}
	if use == nil {
		use = g
	} else if use.Kind() != "rdma" {
		return fmt.Errorf("the grandchild is %s", use.Kind())
	}
	if use != g {
		if err := checkedSum(ctx, use, 10_000); err != nil {
			return err
		}
	}
	// Stopped anywhere, a process may hold a lock of the library without hardware,
	// which no card has: it stops between two operations, while its peers begin one.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGUSR1)
	fmt.Println("ready")
	for err == nil {
		select {
		case <-stop:
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			<-ctx.Done() // the threads stop one after the other; this one does no more
		default:
		}
		if use == g {
			err = g.Barrier(ctx) // the others never join it
		} else {
			err = checkedSum(ctx, use, 10_000)
		}
	}
	o := outcome{Text: err.Error(), Gone: errors.Is(err, distributed.ErrPeerGone), Timeout: errors.Is(err, distributed.ErrTimeout), Peer: -1}
	var op *distributed.OpError
	if errors.As(err, &op) {
		o.Peer, o.Elapsed = op.WorldPeer(), op.Elapsed
	}
	out, err := json.Marshal(o)
	if err != nil {
		return err
	}
	fmt.Println("outcome", string(out))
	_, _ = io.Copy(io.Discard, in) // no rank leaves before all have reported
	_ = g.Close()
	return tr.Close()
}

// TestKilledMember: ranks are processes; one is killed, or stopped, during an
// operation of a grandchild. The other members name it within the deadline and one
// second; so does the rank that waits in the parent, if it was killed.
func TestKilledMember(t *testing.T) {
	testenv.Need(t, testenv.Full, "a member that is killed")
	for _, c := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"stopped", syscall.SIGUSR1}} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testenv.Within(t, time.Minute)
			w, dir := meshOf(4, 1, ""), t.TempDir()
			var cmds [4]*exec.Cmd
			var outs [4]*bufio.Reader
			var ins [4]io.WriteCloser
			var logs [4]*os.File
			addrs := make([]string, 4)
			read := func(r int, word string) string {
				said := ""
				for {
					line, err := outs[r].ReadString('\n')
					if err != nil {
						log, _ := os.ReadFile(logs[r].Name())
						t.Fatalf("rank %d: %v: %s%s%s", r, err, said, line, log)
					}
					said += line
					if rest, ok := strings.CutPrefix(line, word); ok {
						return strings.TrimSpace(rest)
					}
				}
			}
			for r := range 4 {
				cmds[r] = exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRankProcess$", "-test.timeout=2m")
				cmds[r].Env = append(append(os.Environ(), fakeverbs.Env(t, dir, w.script, r)...), fmt.Sprintf("%s=%d", rankVariable, r))
				var err error
				logs[r], err = os.Create(filepath.Join(t.TempDir(), "log"))
				require.NoError(t, err)
				defer func() { _ = logs[r].Close() }()
				cmds[r].Stderr = logs[r]
				out, err := cmds[r].StdoutPipe()
				require.NoError(t, err)
				outs[r] = bufio.NewReader(out)
				ins[r], err = cmds[r].StdinPipe()
				require.NoError(t, err)
				require.NoError(t, cmds[r].Start())
				defer func() {
					_ = cmds[r].Process.Kill()
					_ = cmds[r].Wait()
				}()
			}
			for r := range 4 {
				addrs[r] = read(r, "addr ")
			}
			list := testenv.JSON(t, addrs)
			for r := range 4 {
				_, err := ins[r].Write(append(list, '\n'))
				require.NoError(t, err)
			}
			for r := range 4 {
				read(r, "ready")
			}
			const victim = 2
			require.NoError(t, cmds[victim].Process.Signal(c.signal))
			for _, r := range []int{0, 1, 3} {
				o := testenv.FromJSON[outcome](t, read(r, "outcome "))
				require.Less(t, o.Elapsed, processTimeout+time.Second, "rank %d: %s", r, o.Text)
				if r == 3 && c.name == "stopped" {
					continue // no other rank joins its barrier
				}
				require.Equal(t, victim, o.Peer, "rank %d: %s", r, o.Text)
				require.True(t, o.Gone || c.name == "stopped" && o.Timeout, "rank %d: %s", r, o.Text)
				if r != 3 {
					require.Contains(t, o.Text, "(world rank 2)")
				}
			}
		})
	}
}
