package mpi

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// TestEpochs: the error of an epoch that does not form says why, and does no
// harm to the next epoch; ranks of different epochs or groups do not connect.
func TestEpochs(t *testing.T) {
	j := launch(t, 3)
	t.Cleanup(func() { j.end(t) })
	s := setup{OpTimeout: time.Minute, Spin: -1}
	works := func() {
		groups := j.connect(t, s)
		var all sync.WaitGroup
		for _, g := range groups {
			all.Go(func() {
				b := []byte{1, byte(g.Rank())}
				if err := g.AllSum(t.Context(), b, b, distributed.Uint8); err != nil || b[0] != 3 || b[1] != 3 {
					t.Errorf("rank %d: %v, %v", g.Rank(), b, err)
				}
			})
		}
		all.Wait()
		for _, g := range groups {
			require.NoError(t, g.Close())
		}
	}
	works()

	// A rank that does not take part, as if its process had died.
	short := s
	short.Limit = 300 * time.Millisecond
	for missing := range 3 {
		j.epoch++
		for r, err := range j.connectEach(short, func(r int, q *request) {
			if r == missing {
				q.Do = "" // not asked to connect
			}
		}) {
			if r == missing {
				continue
			}
			require.ErrorIs(t, err, distributed.ErrBootstrap, "rank %d", r)
			require.ErrorIs(t, err, distributed.ErrTimeout, "rank %d", r)
			require.ErrorContains(t, err, "restart the job", "rank %d", r)
			var op *distributed.OpError
			require.ErrorAs(t, err, &op)
			if r == 0 {
				require.Equal(t, missing, op.Peer)
				require.NotEmpty(t, op.Addr)
			}
		}
		works()
	}

	// Another token, another group, another epoch.
	for _, c := range []struct {
		name string
		edit func(q *request)
		want string
	}{
		{"token", func(q *request) { q.Token = bytes.Repeat([]byte{8}, 32) }, "another group"},
		{"pieces", func(q *request) { q.Setup.Piece = 128 }, "128 bytes"},
		{"an epoch to come", func(q *request) { q.Epoch++ }, "wants epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j.epoch++
			errs := j.connectEach(short, func(r int, q *request) {
				if r == 2 {
					c.edit(q)
				}
			})
			require.ErrorIs(t, errs[0], distributed.ErrBootstrap)
			require.ErrorContains(t, errs[0], c.want)
			require.ErrorContains(t, errs[0], "rank 2 at mpi:")
			require.ErrorContains(t, errs[2], c.want)
			require.ErrorContains(t, errs[2], "rejected this rank")
			require.Error(t, errs[1])
			j.epoch++
			works()
		})
	}
	t.Run("an epoch that has ended", func(t *testing.T) {
		j.epoch++
		for r, err := range j.connectEach(short, func(r int, q *request) {
			if r == 1 {
				q.Epoch--
			}
		}) {
			require.ErrorIs(t, err, distributed.ErrTimeout, "rank %d", r)
		}
		works()
	})
}

// TestCoordinator: all ranks learn the same address, on which rank 0 can
// listen.
func TestCoordinator(t *testing.T) {
	j := launch(t, 3)
	t.Cleanup(func() { j.end(t) })
	ask := func(told ...string) (addresses []string, errs []error) {
		addresses, errs = make([]string, 3), make([]error, 3)
		var all sync.WaitGroup
		for r, p := range j.ranks {
			all.Go(func() {
				a, err := p.call(request{Do: "coordinator", Address: told[r]})
				addresses[r], errs[r] = a.Text, err
			})
		}
		all.Wait()
		return addresses, errs
	}
	got, errs := ask("", "", "")
	for r, at := range got {
		require.NoError(t, errs[r])
		require.Equal(t, got[0], at)
		host, _, err := net.SplitHostPort(at)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", host, "all ranks are on this machine")
	}
	ln, err := net.Listen("tcp", got[0])
	require.NoError(t, err, "the port is free")
	ln.Close()
	for _, told := range [][]string{{"h:1", "h:1", "h:1"}, {"h:1", "", ""}, {"", "h:1", ""}} {
		got, errs = ask(told...)
		require.Equal(t, []error{nil, nil, nil}, errs)
		require.Equal(t, []string{"h:1", "h:1", "h:1"}, got)
	}
	_, errs = ask("h:1", "h:1", "h:2")
	for r, err := range errs {
		require.ErrorIs(t, err, distributed.ErrBootstrap, "rank %d", r)
		require.ErrorContains(t, err, "rank 2 at", "rank %d", r)
		require.ErrorContains(t, err, "has --coordinator h:2 and other ranks have h:1", "rank %d", r)
	}
}

// TestInterface compares what rm_mpi.c assumes with the header of the installed
// Open MPI.
func TestInterface(t *testing.T) {
	cc := testenv.NeedTool(t, "mpicc", "no mpicc here (Debian: libopenmpi-dev)")
	file := filepath.Join(t.TempDir(), "x.c")
	require.NoError(t, os.WriteFile(file, []byte(`
#include <mpi.h>
#include <stddef.h>
_Static_assert(MPI_SUCCESS == 0 && MPI_ANY_SOURCE == -1 && MPI_THREAD_SERIALIZED == 2, "constants");
_Static_assert(sizeof(MPI_Comm) == sizeof(void *) && sizeof(MPI_Request) == sizeof(void *), "handles");
_Static_assert(sizeof(MPI_Status) == 24 && offsetof(MPI_Status, MPI_SOURCE) == 0 && offsetof(MPI_Status, MPI_TAG) == 4 &&
               offsetof(MPI_Status, MPI_ERROR) == 8, "status");
_Static_assert(MPI_MAX_ERROR_STRING <= 256 && MPI_MAX_LIBRARY_VERSION_STRING <= 8192 && MPI_MAX_PROCESSOR_NAME <= 8192, "lengths");
void *objects[] = {MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN};
`), 0o644))
	out, err := exec.Command(cc, "-std=c11", "-c", "-o", filepath.Join(t.TempDir(), "x.o"), file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
