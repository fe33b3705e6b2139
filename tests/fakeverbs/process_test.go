//go:build cgo && linux

package fakeverbs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// address is what one process sends the other on its standard output.
type address struct {
	QPN uint32
	LID uint16
}

// childVariable turns this test binary into one process of a fabric.
const childVariable = "FAKEVERBS_TEST_CHILD"

// child connects its device to that of the other process and streams messages
// both ways. Both see one device, "en6". With "forever" it never stops.
func child(t *testing.T, mode string) {
	lib := openLibrary(t, &Fabric{}) // the one that the environment names
	devices, err := lib.Devices()
	require.NoError(t, err)
	require.Len(t, devices, 1, "this host has one device, en6")
	e := openEnd(t, lib, "en6", verbs.RC, 16)
	port, err := e.ctx.Port(1)
	require.NoError(t, err)
	require.NoError(t, e.qp.Init(1))
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(address{e.qp.Num(), port.LID}))
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	require.NoError(t, err)
	peer := testenv.FromJSON[address](t, line)
	require.NoError(t, e.qp.RTR(verbs.Route{PeerQPN: peer.QPN, PeerLID: peer.LID, PeerPSN: 7, PathMTU: port.ActiveMTU}))
	require.NoError(t, e.qp.RTS(7, verbs.DefaultRetries))
	// Both are in RTS before either sends.
	fmt.Println("ready")
	_, err = in.ReadBytes('\n')
	require.NoError(t, err)
	count := 500
	if mode == "forever" {
		count = 1 << 30
	}
	require.NoError(t, stream(e, count, 8, 8192))
	// The other process may still have messages to receive, so this one waits
	// until it reports its end.
	fmt.Println("done")
	_, err = in.ReadBytes('\n')
	require.NoError(t, err)
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (p *process) line(t testing.TB) string {
	t.Helper()
	s, err := p.out.ReadString('\n')
	require.NoError(t, err)
	return s
}

func (p *process) tell(t testing.TB, s string) {
	t.Helper()
	_, err := io.WriteString(p.in, s)
	require.NoError(t, err)
}

// start runs two processes until both stream.
func start(t *testing.T, mode string) [2]*process {
	dir := t.TempDir()
	script := "device en6 host=0 link=ib\ndevice en6 host=1 link=ib\nswitch 0:en6 1:en6\n"
	var ps [2]*process
	for h := range ps {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
		cmd.Env = append(append(os.Environ(), childVariable+"="+mode), Env(t, dir, script, h)...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		ps[h] = &process{cmd, in, bufio.NewReader(out)}
	}
	a, b := ps[0].line(t), ps[1].line(t)
	ps[0].tell(t, b)
	ps[1].tell(t, a)
	for _, p := range ps {
		require.Equal(t, "ready\n", p.line(t))
	}
	for _, p := range ps {
		p.tell(t, "go\n")
	}
	return ps
}

// TestProcesses: two processes exchange messages over one fabric.
func TestProcesses(t *testing.T) {
	if mode := os.Getenv(childVariable); mode != "" {
		child(t, mode)
		return
	}
	ps := start(t, "count")
	for _, p := range ps {
		require.Equal(t, "done\n", p.line(t))
	}
	for _, p := range ps {
		p.tell(t, "end\n")
	}
	for _, p := range ps {
		rest, err := io.ReadAll(p.out)
		require.NoError(t, err)
		require.NoError(t, p.cmd.Wait(), "%s", rest)
	}
}

// TestProcessDies: one process is killed while it streams; RC notifies the
// other.
func TestProcessDies(t *testing.T) {
	ps := start(t, "forever")
	timer := time.AfterFunc(100*time.Millisecond, func() { _ = ps[1].cmd.Process.Kill() })
	defer timer.Stop()
	out, err := io.ReadAll(ps[0].out)
	require.NoError(t, err)
	require.Error(t, ps[0].cmd.Wait())
	require.Error(t, ps[1].cmd.Wait())
	require.Regexp(t, "RETRY_EXC_ERR|WR_FLUSH_ERR", string(out))
}
