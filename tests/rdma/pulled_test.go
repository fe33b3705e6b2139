//go:build cgo && linux

package rdma

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/helper"
	"ringmaster/internal/testenv"
)

// A cable is pulled and its provider ends the process with the verbs, as Apple's
// does. Here that is a helper process, so the ranks, which are this process, survive.

// children returns the child processes that still exist, including dead ones that
// were not waited for.
func children(t testing.TB) []int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	var pids []int
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, w := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(w)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// held returns what this process holds for helpers: mapped shared memory, and
// descriptors of it and of socket pairs.
func held(t testing.TB) (maps, files int) {
	t.Helper()
	text := testenv.ReadFile(t, "/proc/self/maps")
	maps = strings.Count(string(text), "memfd:ringmaster-rails")
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, f := range all {
		to, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err == nil && (strings.Contains(to, "memfd:") || strings.HasPrefix(to, "socket:")) {
			files++
		}
	}
	return maps, files
}

// clean requires that helpers leave nothing behind, in time.
func clean(t testing.TB, files int) {
	t.Helper()
	require.Eventually(t, func() bool {
		maps, now := held(t)
		return maps == 0 && now <= files && len(children(t)) == 0
	}, 10*time.Second, 10*time.Millisecond, "children, shared memory or descriptors are left behind")
}

// scene is two ranks with two cables, and the suspicions that rank 0 received.
type scene struct {
	*ranks
	t        *testing.T
	suspects chan error // of rank 0
}

const crashing = "crash=1"

// newScene makes a scene with a provider that crashes in the first post after a link
// is lost.
func newScene(t *testing.T, script string) *scene { return sceneOf(t, crashing, script) }

// sceneOf makes a scene with words for all devices, and further lines of the script.
func sceneOf(t *testing.T, words, script string) *scene {
	processes(t)
	_, files := held(t)
	s := &scene{t: t, suspects: make(chan error, 16)}
	w := meshOf(2, 2, words)
	w.script += script
	// The fabric is closed last: this cleanup, before it, closes what the ranks have.
	t.Cleanup(func() { clean(t, files) })
	s.ranks = setup(t, w, 2, helped(func(r int, o *rdma.Options, l *distributed.Link) {
		o.OrSide = true
		o.Tuning.TokenTimeout = 2 * time.Second
		l.OpTimeout = 20 * time.Second
		if r == 0 {
			l.Suspect = func(_ int, err error) { s.suspects <- err }
		}
	}))
	return s
}

// form connects the ranks for an epoch and returns rank 0's group.
func (s *scene) form(epoch uint32) *distributed.Group {
	s.t.Helper()
	for r := range s.links {
		s.links[r].Epoch = epoch
	}
	ctx := testenv.Within(s.t, time.Minute)
	succeed(s.t, s.connect(ctx))
	return s.groups[0]
}

// end closes the groups of an epoch, whatever state they are in.
func (s *scene) end() {
	s.t.Helper()
	s.all(s.t, func(g *distributed.Group) error { return g.Close() })
	clear(s.groups)
}

// works requires that the groups carry sums over this many cables, 0 for TCP.
func (s *scene) works(g *distributed.Group, rails int) {
	s.t.Helper()
	if rails == 0 {
		require.Equal(s.t, "tcp", g.Kind())
	} else {
		require.Equal(s.t, "rdma", g.Kind())
		require.Len(s.t, cables(g)[0][1], rails)
		require.Contains(s.t, g.Describe().Topology, "verbs in a helper process for each device")
	}
	s.all(s.t, func(g *distributed.Group) error { return firstSums(s.t.Context(), g) })
}

// pull pulls the cable number k.
func (s *scene) pull(k int) {
	s.t.Helper()
	require.NoError(s.t, s.fabric.Script(fmt.Sprintf("cable %s %s dead\nport %s down\nport %s down\n",
		device(0, 1, k), device(1, 0, k), device(0, 1, k), device(1, 0, k))))
}

// named requires that an error names the cable, and the crash of the provider or, on
// a rank that only waited, the port that is down.
func named(t testing.TB, err error, k int) {
	t.Helper()
	var lost *helper.LostError
	require.Error(t, err)
	text := err.Error()
	require.Regexp(t, "SIGSEGV|its port is DOWN", text)
	require.Regexp(t, regexp.MustCompile(`rail \d.*\(`+device(0, 1, k)+`\)|rail \d.*\(`+device(1, 0, k)+`\)`), text)
	if errors.As(err, &lost) {
		require.Equal(t, syscall.SIGSEGV, lost.Signal)
	}
}

// sumsUntilFailure does sums on all ranks until they fail; it closes begun first.
func (s *scene) sumsUntilFailure(begun chan struct{}) []error {
	return s.each(func(g *distributed.Group) error {
		src, dst := make([]byte, 256<<10), make([]byte, 256<<10)
		for i := 0; ; i++ {
			if err := g.AllSum(s.t.Context(), dst, src, distributed.Float16); err != nil {
				return err
			}
			if i == 10 && g.Rank() == 0 {
				close(begun)
			}
		}
	})
}

// TestPulledInBringUp: the provider crashes at the first receive on a cable. The
// group forms over the other one.
func TestPulledInBringUp(t *testing.T) {
	s := newScene(t, "fault device="+device(0, 1, 0)+" on=post_recv do=crash\n")
	g := s.form(1)
	s.works(g, 1)
	require.Regexp(t, "rank 0 "+device(0, 1, 0)+" .* was ended by SIGSEGV", strings.Join(g.Describe().Notes, "; "))
	s.end()
	// The device is opened again, in a new helper, and its cable is plugged in.
	s.works(s.form(2), 2)
	s.end()
}

// TestPulledInSum: all ranks learn which cable it was; the next epoch uses the other
// one, and the one after that, when that cable is pulled as well, uses TCP.
func TestPulledInSum(t *testing.T) {
	s := newScene(t, "")
	for k := range 2 {
		s.works(s.form(uint32(1+k)), 2-k)
		begun := make(chan struct{})
		go func() {
			<-begun
			s.pull(k)
		}()
		at := time.Now()
		errs := s.sumsUntilFailure(begun)
		require.Less(t, time.Since(at), 15*time.Second, "before any deadline")
		for _, err := range errs {
			named(t, err, k)
		}
		named(t, <-s.suspects, k)
		s.end()
	}
	s.works(s.form(3), 0)
	s.end()
}

// TestPulledIdle: the end of a helper is reported while no operation runs.
func TestPulledIdle(t *testing.T) {
	s := newScene(t, "")
	s.works(s.form(1), 2)
	require.NoError(t, syscall.Kill(s.helper(device(0, 1, 1)), syscall.SIGSEGV))
	named(t, <-s.suspects, 1)
	for _, err := range s.each(func(g *distributed.Group) error { return g.Barrier(t.Context()) }) {
		named(t, err, 1)
	}
	s.end()
	s.works(s.form(2), 2)
	s.end()
}

// helper finds the process that has a device.
func (s *scene) helper(name string) int {
	s.t.Helper()
	pid := s.fabric.Count("pid:" + name)
	require.NotZero(s.t, pid)
	require.NotEqual(s.t, os.Getpid(), pid, "the device %s is open in this process", name)
	return pid
}

// TestPulledInChild: the child and its parent fail, and the next epoch uses the other
// cable.
func TestPulledInChild(t *testing.T) {
	s := newScene(t, "")
	s.works(s.form(1), 2)
	kids := make([]*distributed.Group, 2)
	s.all(t, func(g *distributed.Group) (err error) {
		kids[g.Rank()], err = g.Split(t.Context(), 0, g.Rank())
		return err
	})
	parents := s.groups
	s.groups = kids
	begun := make(chan struct{})
	go func() {
		<-begun
		s.pull(0)
	}()
	for _, err := range s.sumsUntilFailure(begun) {
		named(t, err, 0)
	}
	named(t, <-s.suspects, 0)
	s.groups = parents
	for _, err := range s.each(func(g *distributed.Group) error { return g.Barrier(t.Context()) }) {
		require.Error(t, err)
	}
	s.end()
	s.works(s.form(2), 1)
	s.end()
}

// TestPulledAtClose: a group without its helpers closes like any other.
func TestPulledAtClose(t *testing.T) {
	s := newScene(t, "")
	s.works(s.form(1), 2)
	s.pull(0)
	for _, pid := range []int{s.helper(device(0, 1, 0)), s.helper(device(1, 0, 0))} {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSEGV))
	}
	s.all(t, func(g *distributed.Group) error { return g.Close() })
	clear(s.groups)
	s.works(s.form(2), 1)
	s.end()
}

// TestHelperEnds: however a helper ends, the server learns that and the reason at
// once.
func TestHelperEnds(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		want   string
	}{
		{syscall.SIGKILL, "was ended by signal 9 (killed)"},
		{syscall.SIGBUS, "was ended by SIGBUS (bus error)"},
		{syscall.SIGTERM, "ended with status 0"}, // in order
	} {
		t.Run(c.signal.String(), func(t *testing.T) {
			s := newScene(t, "")
			s.works(s.form(1), 2)
			require.NoError(t, syscall.Kill(s.helper(device(0, 1, 0)), c.signal))
			err := <-s.suspects
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, device(0, 1, 0))
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			s.end()
		})
	}
}
