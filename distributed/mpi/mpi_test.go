package mpi

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// tests/mpi tests what needs a job of mpirun.

func TestLibraryThatIsNotThere(t *testing.T) {
	_, err := Open(t.Context(), Options{Library: "libno-such-mpi.so.40"})
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	if built {
		require.ErrorContains(t, err, "libno-such-mpi.so.40")
		require.ErrorContains(t, err, LibraryVariable)
	}
}

// TestForeignLibrary: a library with other handles than Open MPI's is rejected
// by its version string, before another of its functions is called.
func TestForeignLibrary(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil || !built || runtime.GOOS != "linux" {
		t.Skip("NOT CHECKED: no gcc here, or no cgo")
	}
	for _, c := range []struct{ name, source, want string }{
		{"mpich", `int MPI_Get_library_version(char *v, int *n) { const char *s = "MPICH Version:\t4.0.2\nmore"; *n = 0; while ((v[*n] = s[*n])) ++*n; return 0; }
int MPI_Init_thread(void) { __builtin_trap(); }`, "MPICH Version:\t4.0.2; only Open MPI"},
		{"none", `int nothing;`, "a library without MPI_Get_library_version"},
		{"old", `int MPI_Get_library_version(char *v, int *n) { const char *s = "Open MPI v1.6, package"; *n = 0; while ((v[*n] = s[*n])) ++*n; return 0; }
int MPI_Error_string, MPI_Init_thread;`, "Open MPI v1.6, without the symbol MPI_Initialized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			source, lib := filepath.Join(dir, "x.c"), filepath.Join(dir, "libmpi.so")
			require.NoError(t, os.WriteFile(source, []byte(c.source), 0o644))
			out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, source).CombinedOutput()
			require.NoError(t, err, "%s", out)
			_, err = Open(t.Context(), Options{Library: lib})
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.ErrorContains(t, err, lib)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestSpans(t *testing.T) {
	o := Options{First: 128, Piece: 64}.withDefaults()
	for n := range 700 {
		at := 0
		for k := range o.pieces(n) {
			from, to := o.span(n, k)
			require.Equal(t, at, from, "message %d of %d bytes", k, n)
			require.True(t, to > from || n == 0)
			at = to
		}
		require.Equal(t, n, at)
		from, to := o.span(n, o.pieces(n))
		require.Equal(t, from, to, "nothing after the last")
	}
}

func TestDefaults(t *testing.T) {
	o := Options{First: 1 << 40, Piece: 100}.withDefaults()
	require.Equal(t, []int{1 << 30, 64}, []int{o.First, o.Piece}, "counts fit an int of C, elements are whole")
	require.True(t, o.scatters(o.Threshold))
	require.False(t, o.scatters(o.Threshold-1))
	o = Options{Threshold: -1}.withDefaults()
	require.False(t, o.scatters(1<<40))
}

func TestHeader(t *testing.T) {
	want := header{kind: distributed.Broadcast, dtype: distributed.NoDType, root: 3, phase: 0, epoch: 7, seq: 9, total: 100}
	b := make([]byte, headerSize)
	want.put(b)
	h, err := parseHeader(b, 1)
	require.NoError(t, err)
	require.Equal(t, want, h)
	require.NoError(t, h.check(&want, 1, 64, 64))
	require.ErrorContains(t, h.check(&want, 1, 63, 64), "sent 63 bytes of broadcast #9 of 100 bytes at root 3; expected 64")
	other := want
	other.kind, other.dtype, other.phase = distributed.AllSum, distributed.Float16, 1
	err = h.check(&other, 1, 64, 64)
	require.ErrorIs(t, err, distributed.ErrDesync)
	require.ErrorContains(t, err, "this rank runs all_sum #9 of 100 bytes of float16, gathering, rank 1 runs broadcast #9")
	for _, bad := range [][]byte{nil, b[:headerSize-1], make([]byte, headerSize)} {
		_, err = parseHeader(bad, 2)
		require.ErrorIs(t, err, distributed.ErrDesync)
		require.ErrorContains(t, err, "rank 2")
	}
}

func TestGroupsThatDiffer(t *testing.T) {
	o := Options{}.withDefaults()
	link := distributed.Link{Rank: 1, Size: 2, GroupID: "a", Epoch: 3, Token: []byte("secret")}
	mine := wanted(&link, &o)
	require.Empty(t, mine.differs(mine))
	change := func(edit func(l *distributed.Link)) controlMessage {
		l := link
		edit(&l)
		return wanted(&l, &o)
	}
	other := change(func(l *distributed.Link) { l.Epoch = 4 })
	require.Contains(t, other.differs(mine), "epoch 4, rank 0 epoch 3")
	for _, l := range []controlMessage{change(func(l *distributed.Link) { l.GroupID = "b" }), change(func(l *distributed.Link) { l.Token = []byte("guess") })} {
		require.Contains(t, l.differs(mine), "another group")
	}
	p := Options{Piece: 128}.withDefaults()
	other = wanted(&link, &p)
	require.Contains(t, other.differs(mine), "128 bytes")
	same := change(func(l *distributed.Link) { l.Rank = 0 })
	require.Empty(t, same.differs(mine), "the proof does not depend on the rank")
}

// TestProbe: an address counts as reached only if rank 0 itself answers there.
func TestProbe(t *testing.T) {
	listen := func(nonce string) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan struct{})
		go func() { answer(ln, []byte(nonce)); close(done) }()
		t.Cleanup(func() { ln.Close(); <-done })
		return ln.Addr().String()
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.Equal(t, []bool{true, false, false, false},
		probe(ctx, []string{listen("0123456789abcdef"), listen("another"), listen("0123456789abcdef and more"), silent.Addr().String()}, []byte("0123456789abcdef")))
	c := candidates()
	require.Equal(t, "127.0.0.1", c[0])
	require.LessOrEqual(t, len(c), mostCandidates)
	for _, a := range c {
		require.NotNil(t, net.ParseIP(a))
		require.False(t, net.ParseIP(a).IsLinkLocalUnicast(), a)
	}
}

func TestLinkThatDoesNotFit(t *testing.T) {
	tr := &Transport{world: &World{rank: 1, size: 2, host: "here"}}
	at, err := tr.Listen("10.0.0.9")
	require.NoError(t, err)
	require.Equal(t, "mpi:here/1", at)
	good := distributed.Link{Rank: 1, Size: 2, Token: make([]byte, 32), Addrs: []string{"mpi:there/0", at}, OpTimeout: time.Second}
	require.NoError(t, tr.check(&good))
	for _, c := range []struct {
		edit func(l *distributed.Link)
		kind error
		want string
	}{
		{func(l *distributed.Link) { l.Rank = 0 }, distributed.ErrConfig, "rank 0 of 2; MPI says 1 of 2"},
		{func(l *distributed.Link) { l.Size = 3 }, distributed.ErrConfig, "MPI says 1 of 2"},
		{func(l *distributed.Link) { l.Addrs = l.Addrs[:1] }, distributed.ErrConfig, "1 addresses"},
		{func(l *distributed.Link) { l.OpTimeout = 0 }, distributed.ErrConfig, "time limit"},
		{func(l *distributed.Link) { l.Addrs = []string{"10.0.0.1:7000", at} }, distributed.ErrBootstrap, "rank 0 at 10.0.0.1:7000 does not use MPI"},
	} {
		l := good
		c.edit(&l)
		_, err := tr.Connect(t.Context(), l)
		require.ErrorIs(t, err, c.kind)
		require.ErrorContains(t, err, c.want)
	}
}

// flaky fails to accept some connections first.
type flaky struct {
	net.Listener
	errs []syscall.Errno
}

func (l *flaky) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	return l.Listener.Accept()
}

// TestAnswerOutlivesErrorsOfAccept: an address of rank 0 survives a full table
// of files.
func TestAnswerOutlivesErrorsOfAccept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		answer(&flaky{ln, []syscall.Errno{syscall.ECONNABORTED, syscall.EMFILE, syscall.EMFILE}}, []byte("0123456789abcdef"))
		close(done)
	}()
	require.Equal(t, []bool{true}, probe(t.Context(), []string{ln.Addr().String()}, []byte("0123456789abcdef")))
	require.NoError(t, ln.Close())
	<-done
}
