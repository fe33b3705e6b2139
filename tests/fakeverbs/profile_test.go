//go:build cgo && (linux || darwin)

package fakeverbs

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
)

// profiles are the versions of macOS with a provider that the library imitates.
var profiles = []string{"26.2", "26.3", "27.0"}

// TestProfileLimits: what a version reports, and how many queue pairs it really
// has.
func TestProfileLimits(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			f := New(t, "device a profile="+name+"\n")
			lib := openLibrary(t, f)
			a := openEnd(t, lib, "a", verbs.UC, 2)
			attr, err := a.ctx.Query()
			require.NoError(t, err)
			told, works := 11, 10
			if name == "27.0" {
				told, works = 3, 3
			}
			require.Equal(t, []int{told, 4095, 1, 100, 11, 11, 1},
				[]int{attr.MaxQP, attr.MaxQPWR, attr.MaxSGE, attr.MaxMR, attr.MaxPD, attr.MaxCQ, attr.Ports})
			require.EqualValues(t, 16384000, attr.MaxMRSize)
			p, err := a.ctx.Port(1)
			require.NoError(t, err)
			require.Equal(t, verbs.LinkThunderbolt, p.LinkLayer)
			require.EqualValues(t, 0x1000000, p.MaxMsg)
			require.GreaterOrEqual(t, p.LID, uint16(1))
			cfg := verbs.QPConfig{Type: verbs.UC, SendCQ: a.cq, RecvCQ: a.cq, Caps: verbs.Caps{SendWR: 2, RecvWR: 2}}
			for range works - 1 {
				_, err = a.pd.CreateQP(cfg)
				require.NoError(t, err)
			}
			_, err = a.pd.CreateQP(cfg)
			require.ErrorIs(t, err, syscall.EBUSY)
		})
	}
	require.ErrorContains(t, tryScript(t, "device a profile=28.0\n"), "profile is 26.2, 26.3 or 27.0")
	require.ErrorContains(t, tryScript(t, "device a link=eth profile=26.3\n"), "needs link=tb")
}

// tryScript is the error of a script.
func tryScript(t *testing.T, script string) error {
	f, err := Make(t.TempDir(), script)
	if err == nil {
		require.NoError(t, f.Close())
	}
	return err
}

// TestProfileDefault: the environment chooses the version of devices that name
// none; 26.3 without it.
func TestProfileDefault(t *testing.T) {
	for value, told := range map[string]int{"": 11, "27.0": 3} {
		t.Setenv("FAKEVERBS_PROFILE", value)
		a := openEnd(t, openLibrary(t, New(t, "device a\n")), "a", verbs.UC, 2)
		attr, err := a.ctx.Query()
		require.NoError(t, err)
		require.Equal(t, told, attr.MaxQP)
	}
	t.Setenv("FAKEVERBS_PROFILE", "26.9")
	require.ErrorContains(t, tryScript(t, "device a\n"), "profile is 26.2")
	require.NoError(t, tryScript(t, "device a link=ib\n"), "not Apple's")
}

// TestProfileGIDs: the tables of 26, and of 27 with a first entry that is not an
// address.
func TestProfileGIDs(t *testing.T) {
	table := func(words string) []verbs.GIDEntry {
		a := openEnd(t, openLibrary(t, New(t, "device a ip=169.254.9.1 "+words+"\n")), "a", verbs.UC, 2)
		g, err := a.ctx.GIDs(1)
		require.NoError(t, err)
		return g
	}
	local := netip.MustParsePrefix("fe80::/10")
	for _, name := range profiles[:2] {
		g := table("profile=" + name)
		require.Len(t, g, 3)
		require.Equal(t, "fe80::ff:fe00:1", g[0].GID.String(), "EUI-64 of the MAC")
		require.Equal(t, "::ffff:169.254.9.1", g[1].GID.String())
		require.True(t, local.Contains(g[2].GID.Addr()))
		require.NotEqual(t, g[0].GID, g[2].GID)
	}
	g := table("profile=27.0")
	require.Len(t, g, 2)
	require.False(t, local.Contains(g[0].GID.Addr()))
	require.EqualValues(t, 4, g[0].GID[6]>>4, "version of the UUID")
	require.EqualValues(t, 2, g[0].GID[8]>>6, "variant of the UUID")
	require.Equal(t, "fe80::ff:fe00:1", g[1].GID.String())
}

// TestProfileRights: whether memory may be registered for local writing only.
func TestProfileRights(t *testing.T) {
	for _, c := range []struct {
		words string
		taken bool
	}{{"profile=26.2", false}, {"profile=26.3", true}, {"profile=27.0", true}, {"profile=26.3 local_write=0", false}, {"link=eth", true}} {
		a := openEnd(t, openLibrary(t, New(t, "device a "+c.words+"\n")), "a", verbs.UC, 2)
		slab, err := verbs.NewSlab(4096)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, slab.Free()) })
		mr, err := a.pd.RegMR(slab, verbs.AccessLocalWrite)
		if c.taken {
			require.NoError(t, err, c.words)
			require.NoError(t, mr.Close())
		} else {
			require.ErrorIs(t, err, syscall.EINVAL, c.words)
		}
	}
}

// TestReceiveState: the state from which receives are accepted.
func TestReceiveState(t *testing.T) {
	for words, from := range map[string]verbs.QPState{"profile=26.2": verbs.StateRTS, "profile=26.3": verbs.StateRTS, "profile=27.0 gids=ll,v4": verbs.StateInit,
		"recv_from=rtr": verbs.StateRTR, "link=eth": verbs.StateInit} {
		lib := openLibrary(t, New(t, "device a "+words+"\ndevice b host=1 "+words+"\ncable a b\n"))
		a, b := openEnd(t, lib, "a", verbs.UC, 8), openEnd(t, lib, "b", verbs.UC, 8)
		check := func(state verbs.QPState) {
			_, err := a.qp.PostRecv(a.mr.Request(1, 0, 64))
			if state >= from {
				require.NoError(t, err, "%s at %v", words, state)
			} else {
				require.ErrorIs(t, err, syscall.EINVAL, "%s at %v", words, state)
			}
		}
		check(verbs.StateReset)
		require.NoError(t, a.qp.Init(1))
		check(verbs.StateInit)
		require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
		check(verbs.StateRTR)
		require.NoError(t, a.qp.RTS(7, verbs.DefaultRetries))
		check(verbs.StateRTS)
	}
}

// TestLateMemory: a queue pair of Apple's receives only in memory that was
// registered before it was made.
func TestLateMemory(t *testing.T) {
	_, a, _ := link(t, tbPair, verbs.UC, 8)
	slab, err := verbs.NewSlab(4096)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.ctx.Close()); require.NoError(t, slab.Free()) })
	late, err := a.pd.RegMR(slab, verbs.AccessAuto)
	require.NoError(t, err)
	_, err = a.qp.PostRecv(late.Request(1, 0, 64))
	require.ErrorIs(t, err, syscall.EFAULT)
	a.recv(t, 1, 0, 64)
}

// TestGrants: the device reports more than was requested, and has less than it
// reports.
func TestGrants(t *testing.T) {
	for asked, want := range map[int][2]int{8: {1023, 256}, 256: {1023, 256}, 300: {2047, 300}, 1024: {4095, 1024}} {
		_, a, _ := link(t, tbPair, verbs.UC, asked)
		require.Equal(t, verbs.Caps{SendWR: want[0], RecvWR: want[0]}, a.qp.Granted(), "%d asked", asked)
		n := 0
		for ; n < 5000; n++ {
			if _, err := a.qp.PostRecv(a.mr.Request(1, 0, 64)); err != nil {
				require.ErrorIs(t, err, syscall.ENOMEM)
				break
			}
		}
		require.Equal(t, want[1], n, "%d asked", asked)
	}
}

// TestSpoiltQueuePair: after a failed RTR only a new queue pair helps.
func TestSpoiltQueuePair(t *testing.T) {
	lib := openLibrary(t, New(t, tbPair+"fault device=a on=rtr do=errno:60\n"))
	a, b := openEnd(t, lib, "a", verbs.UC, 8), openEnd(t, lib, "b", verbs.UC, 8)
	require.NoError(t, a.qp.Init(1))
	require.ErrorIs(t, a.qp.RTR(routeTo(t, a, b)), syscall.Errno(60))
	require.ErrorIs(t, a.qp.RTR(routeTo(t, a, b)), syscall.EBUSY)
	require.NoError(t, a.qp.Destroy())
	a = openEnd(t, lib, "a", verbs.UC, 8)
	require.NoError(t, a.qp.Init(1))
	require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
}

// crashVariable holds the number of a case of TestCrash that this process is to
// run until it ends.
const crashVariable = "FAKEVERBS_TEST_CRASH"

// TestCrash: after a lost link the next post ends the process inside the library,
// as Apple's provider does on 26; so does a memory region too many on 26.2.
// Without the word crash=1 the process survives.
func TestCrash(t *testing.T) {
	const pair = "device a %[1]s\ndevice b host=1 %[1]s\ncable a b\n"
	cases := []struct {
		name, words string
		lose        string // a line of the script
		again       string
		dies        bool
		act         func(t *testing.T, a *end)
	}{
		{"cable, post_recv", "crash=1", "cable a b dead", "", true, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64) }},
		{"cable, post_send", "crash=1", "cable a b dead", "", true, func(t *testing.T, a *end) { a.send(t, 1, 0, 64) }},
		{"own port", "crash=1", "port a down", "", true, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64) }},
		{"peer's port", "crash=1", "port b down", "", true, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64) }},
		{"back again", "crash=1", "port a down", "port a up", true, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64) }},
		{"without the word", "", "cable a b dead", "", false, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64); a.send(t, 1, 0, 64) }},
		{"nothing lost", "crash=1", "", "", false, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64); a.send(t, 1, 0, 64) }},
		{"fault", "", "fault device=a on=post_recv nth=2 do=crash", "", true, func(t *testing.T, a *end) { a.recv(t, 1, 0, 64); a.recv(t, 1, 0, 64) }},
		{"region 101 on 26.2", "profile=26.2", "", "", true, tooManyRegions},
		{"region 101 on 26.3", "profile=26.3", "", "", false, tooManyRegions},
	}
	if n := os.Getenv(crashVariable); n != "" {
		for _, c := range cases {
			if c.name != n {
				continue
			}
			f, a, _ := link(t, fmt.Sprintf(pair, c.words), verbs.UC, 8)
			require.NoError(t, f.Script(c.lose+"\n"+c.again))
			c.act(t, a)
			fmt.Println("ALIVE")
		}
		return
	}
	dir := t.TempDir() // of all children: the first compiles the library
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash$", "-test.v")
			// The child cannot remove its temporary folder.
			cmd.Env = append(os.Environ(), crashVariable+"="+c.name, "TMPDIR="+dir)
			out, err := cmd.CombinedOutput()
			if !c.dies {
				require.NoError(t, err, "%s", out)
				require.Contains(t, string(out), "ALIVE")
				return
			}
			require.Error(t, err)
			require.Contains(t, string(out), "SIGSEGV", "%v", err)
			require.NotContains(t, string(out), "ALIVE")
		})
	}
}

// tooManyRegions registers 101 regions, including the one of the end.
func tooManyRegions(t *testing.T, a *end) {
	slab, err := verbs.NewSlab(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.ctx.Close()); require.NoError(t, slab.Free()) })
	for range 99 {
		_, err = a.pd.RegMR(slab, verbs.AccessAuto)
		require.NoError(t, err)
	}
	_, err = a.pd.RegMR(slab, verbs.AccessAuto)
	require.ErrorIs(t, err, syscall.ENOMEM)
}
