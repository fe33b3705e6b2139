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
)

// address is what one process sends the other on its standard output.
type address struct {
	QPN uint32
	LID uint16
}

// childVariable turns this test binary into one process of a fabric.
const childVariable = "FAKEVERBS_TEST_CHILD"

// TestMain runs a child in place of the tests.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child connects its device to that of the other process and streams messages
// both ways. Both see one device, "en6". With "forever" it never stops.
func child() error {
	lib, err := verbs.Open("")
	if err != nil {
		return err
	}
	devices, err := lib.Devices()
	if err != nil {
		return err
	}
	if len(devices) != 1 || devices[0].Name != "en6" {
		return fmt.Errorf("this host has one device, en6, not %v", devices)
	}
	ctx, err := devices[0].Open()
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	slab, err := verbs.NewSlab(room)
	if err != nil {
		return err
	}
	e := &end{ctx: ctx, pd: pd}
	if e.mr, err = pd.RegMR(slab, verbs.AccessAuto); err != nil {
		return err
	}
	if e.cq, err = ctx.CreateCQ(64); err != nil {
		return err
	}
	e.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.Caps{SendWR: 16, RecvWR: 16}})
	if err != nil {
		return err
	}
	port, err := ctx.Port(1)
	if err != nil {
		return err
	}
	if err = e.qp.Init(1); err != nil {
		return err
	}
	if err = json.NewEncoder(os.Stdout).Encode(address{e.qp.Num(), port.LID}); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var peer address
	if err = json.Unmarshal(line, &peer); err != nil {
		return err
	}
	if err = e.qp.RTR(verbs.Route{PeerQPN: peer.QPN, PeerLID: peer.LID, PeerPSN: 7, PathMTU: port.ActiveMTU}); err != nil {
		return err
	}
	if err = e.qp.RTS(7, verbs.DefaultRetries); err != nil {
		return err
	}
	// Both are in RTS before either sends.
	fmt.Println("ready")
	if _, err = in.ReadBytes('\n'); err != nil {
		return err
	}
	count := 500
	if os.Getenv(childVariable) == "forever" {
		count = 1 << 30
	}
	if err = stream(e, count, 8, 8192); err != nil {
		return err
	}
	// The other process may still have messages to receive, so this one waits
	// until it reports its end.
	fmt.Println("done")
	if _, err = in.ReadBytes('\n'); err != nil {
		return err
	}
	if err = ctx.Close(); err != nil {
		return err
	}
	return lib.Close()
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *limited
}

// limited keeps what a child wrote to its standard error.
type limited struct{ b []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	return len(p), nil
}

func (p *process) line(t testing.TB) string {
	t.Helper()
	s, err := p.out.ReadString('\n')
	require.NoError(t, err, "%s", p.err.b)
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
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(append(os.Environ(), childVariable+"="+mode), Env(t, dir, script, h)...)
		p := &process{cmd: cmd, err: &limited{}}
		cmd.Stderr = p.err
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		p.in, p.out = in, bufio.NewReader(out)
		require.NoError(t, cmd.Start())
		ps[h] = p
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
	ps := start(t, "count")
	for _, p := range ps {
		require.Equal(t, "done\n", p.line(t))
	}
	for _, p := range ps {
		p.tell(t, "end\n")
	}
	for _, p := range ps {
		require.NoError(t, p.cmd.Wait(), "%s", p.err.b)
	}
}

// TestProcessDies: one process is killed while it streams; RC notifies the
// other.
func TestProcessDies(t *testing.T) {
	ps := start(t, "forever")
	timer := time.AfterFunc(100*time.Millisecond, func() { _ = ps[1].cmd.Process.Kill() })
	defer timer.Stop()
	_, err := ps[0].out.ReadString('\n') // until it ends
	require.ErrorIs(t, err, io.EOF)
	require.Error(t, ps[0].cmd.Wait())
	require.Error(t, ps[1].cmd.Wait())
	require.Regexp(t, "RETRY_EXC_ERR|WR_FLUSH_ERR", string(ps[0].err.b))
}
