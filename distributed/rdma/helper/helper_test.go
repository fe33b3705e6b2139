//go:build cgo && linux

package helper

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
	"ringmaster/tests/fakeverbs"
)

// TestMain runs a helper in place of the tests if this binary was started as one.
func TestMain(m *testing.M) {
	if Wanted() && os.Getenv(faultVariable) != "" {
		faulty()
	}
	if Wanted() {
		Main()
	}
	os.Exit(m.Run())
}

// TestRings drives both sides of the rings in one process, a thread each: order,
// content, refusals, full rings, and that no wake-up is lost. A full run repeats it
// under the sanitizers.
func TestRings(t *testing.T) {
	for _, san := range []string{"", "address,undefined", "thread"} {
		t.Run("sanitizer "+san, func(t *testing.T) {
			if san != "" {
				testenv.Need(t, testenv.Full, "the rings under the sanitizers")
			}
			out := filepath.Join(t.TempDir(), "drive")
			args := []string{"-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out}
			if san != "" {
				args = append(args, "-fsanitize="+san, "-fno-sanitize-recover=all")
			}
			msg, err := exec.Command("cc", append(args, "testdata/drive.c", "rm_loop.c", "rm_server.c")...).CombinedOutput()
			require.NoError(t, err, "%s", msg)
			msg, err = exec.CommandContext(t.Context(), out).CombinedOutput()
			require.NoError(t, err, "%s", msg)
			t.Logf("%s", msg)
		})
	}
}

// open opens the library of a fabric in helpers. The end of the test closes it and
// checks that the fabric has no objects left.
func open(t *testing.T, script string) (*fakeverbs.Fabric, *verbs.Library) {
	t.Helper()
	t.Setenv("FAKEVERBS_DIR", t.TempDir())
	f := fakeverbs.New(t, script)
	lib, err := Open(f.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lib.Close()) })
	return f, lib
}

// TestUnavailable: errors of the library are the same as without helpers.
func TestUnavailable(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none.so"), 0)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "none.so")
	_, lib := open(t, "")
	_, err = lib.Devices()
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "lists no RDMA device")
	_, err = lib.Device("a")
	require.Error(t, err)
}

// TestSameAnswers: a device reports and refuses the same with and without a helper.
func TestSameAnswers(t *testing.T) {
	f, helped := open(t, "device a link=eth max_cq=2\ndevice b host=1 link=eth\nswitch a b\n")
	own, err := verbs.Open(f.Path)
	require.NoError(t, err)
	type answers struct {
		attr    verbs.DeviceAttr
		port    verbs.PortAttr
		gids    []verbs.GIDEntry
		granted verbs.Caps
		state   verbs.QPState
		errors  []string
	}
	var said [2]answers
	for i, lib := range []*verbs.Library{own, helped} {
		dev, err := lib.Device("a")
		require.NoError(t, err)
		ctx, err := dev.Open()
		require.NoError(t, err)
		a := &said[i]
		a.attr, err = ctx.Query()
		require.NoError(t, err)
		a.port, err = ctx.Port(1)
		require.NoError(t, err)
		a.gids, err = ctx.GIDs(1)
		require.NoError(t, err)
		pd, err := ctx.AllocPD()
		require.NoError(t, err)
		cq, err := ctx.CreateCQ(8)
		require.NoError(t, err)
		qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.Caps{SendWR: 4, RecvWR: 4}})
		require.NoError(t, err)
		a.granted, a.state, err = qp.Query()
		require.NoError(t, err)
		refused := func(err error) {
			t.Helper()
			require.Error(t, err)
			a.errors = append(a.errors, regexp.MustCompile("qp 0x[0-9a-f]+").ReplaceAllString(err.Error(), "qp"))
		}
		_, err = ctx.Port(9)
		refused(err)
		_, err = ctx.CreateCQ(1 << 20)
		refused(err)
		refused(qp.RTS(0, verbs.DefaultRetries)) // from RESET
		refused(pd.Close())                      // a queue pair uses it
		_, err = qp.PostSend(verbs.Request{ID: 1, Len: 8})
		refused(err)
		require.NoError(t, ctx.Close())
		require.NoError(t, ctx.Close())
	}
	require.NoError(t, own.Close())
	require.Equal(t, said[0], said[1])
}

// TestHangingCall: a call that hangs in the library is abandoned in time and does not
// block others.
func TestHangingCall(t *testing.T) {
	_, lib := open(t, "device a\ndevice b host=1\ncable a b\nfault device=a on=create_cq do=hang:700\n")
	lib.Limit = 100 * time.Millisecond
	dev, err := lib.Device("a")
	require.NoError(t, err)
	lib.Limit = 10 * time.Second
	ctx, err := dev.Open()
	require.NoError(t, err)
	lib.Limit = 100 * time.Millisecond
	_, err = ctx.CreateCQ(8)
	require.ErrorIs(t, err, distributed.ErrTimeout)
	require.Equal(t, []string{"create_cq on a"}, lib.Lost())
	lib.Limit = 10 * time.Second
	_, err = ctx.Query()
	require.NoError(t, err)
	require.NoError(t, ctx.Close())
}

// TestLostDevice: after its helper has ended, every call on a device fails at once
// with the reason, memory and objects can be freed, and another helper can open the
// device.
func TestLostDevice(t *testing.T) {
	f, lib := open(t, "device a\ndevice b host=1\ncable a b\n")
	dev, err := lib.Device("a")
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	slab, err := ctx.NewSlab(1 << 20)
	require.NoError(t, err)
	mr, err := pd.RegMR(slab, verbs.AccessAuto)
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(8)
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: cq, RecvCQ: cq, Caps: verbs.Caps{SendWR: 4, RecvWR: 4}})
	require.NoError(t, err)
	require.NoError(t, qp.Init(1))
	require.NoError(t, syscall.Kill(f.Count("pid:a"), syscall.SIGSEGV))
	<-ctx.Lost()
	const why = "was ended by SIGSEGV"
	require.ErrorContains(t, ctx.Err(), why)
	_, err = ctx.Port(1)
	require.ErrorContains(t, err, why)
	_, err = ctx.AllocPD()
	require.ErrorContains(t, err, why)
	_, err = pd.RegMR(slab, verbs.AccessAuto)
	require.ErrorContains(t, err, why)
	_, err = qp.PostRecv(mr.Request(1, 0, 64))
	require.ErrorContains(t, err, why)
	_, err = cq.Poll(make([]verbs.WC, 4))
	require.ErrorContains(t, err, why)
	require.ErrorContains(t, cq.Fault(), why)
	slab.Bytes()[0] = 1 // the memory is still there
	require.NoError(t, ctx.Close())
	require.NoError(t, slab.Free())
	ctx, err = dev.Open()
	require.NoError(t, err)
	require.NoError(t, ctx.Close())
}

// TestStartedByHand: a person who starts a helper gets an explanation.
func TestStartedByHand(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), self, Argument).CombinedOutput()
	require.Error(t, err)
	require.True(t, strings.HasPrefix(string(out), "ringmaster: the helper process of verbs: "), "%s", out)
}
