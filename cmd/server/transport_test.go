package main

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/distributed/mpi"
)

// fakeWorld is an MPI job as adopt sees it.
type fakeWorld struct {
	rank, size int
	at         string
	err        error
}

func (w fakeWorld) Rank() int { return w.rank }
func (w fakeWorld) Size() int { return w.size }
func (w fakeWorld) Coordinator(_ context.Context, mine string) (string, error) {
	if mine != "" {
		return mine, w.err
	}
	return w.at, w.err
}

func TestTransportFlags(t *testing.T) {
	_, err := command(t, "bench", "--distributed", "--transport", "carrier-pigeon")
	require.ErrorContains(t, err, `--transport is "carrier-pigeon"; expected auto, tcp, rdma or mpi`)
	t.Setenv(mpi.LibraryVariable, "libno-such-mpi.so")
	_, err = command(t, "bench", "--distributed", "--transport", "mpi")
	require.ErrorContains(t, err, "libno-such-mpi.so")
	require.ErrorContains(t, err, "Install Open MPI")
	if runtime.GOOS == "linux" {
		t.Setenv(mpi.LibraryVariable, "libc.so.6")
		_, err = command(t, "bench", "--distributed", "--transport", "mpi")
		require.ErrorContains(t, err, "only Open MPI")
	}
	_, err = command(t, "bench", "--distributed", "--transport", "mpi", "--connect-timeout", "0s")
	require.ErrorContains(t, err, "--connect-timeout")
}

func TestAdopt(t *testing.T) {
	adopt := func(w fakeWorld, args ...string) (clusterOptions, error) {
		var o clusterOptions
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.register(f)
		require.NoError(t, f.Parse(append(args, "--distributed", "--transport", "mpi")))
		return o, o.adopt(t.Context(), f, w)
	}
	o, err := adopt(fakeWorld{2, 4, "10.0.0.1:4000", nil})
	require.NoError(t, err)
	require.Equal(t, []any{2, 4, "10.0.0.1:4000"}, []any{o.Rank, o.Size, o.Coordinator})
	require.NoError(t, o.check())
	o, err = adopt(fakeWorld{1, 2, "10.0.0.1:4000", nil}, "--rank", "1", "--world-size", "2", "--coordinator", "h:5")
	require.NoError(t, err)
	require.Equal(t, []any{1, 2, "h:5"}, []any{o.Rank, o.Size, o.Coordinator})
	o, err = adopt(fakeWorld{0, 1, "127.0.0.1:4000", nil}, "--world-size", "1")
	require.NoError(t, err)
	require.Equal(t, 1, o.Size)
	for _, c := range []struct {
		world fakeWorld
		args  []string
		want  string
	}{
		{fakeWorld{0, 1, "", nil}, nil, "mpirun -n N"},
		{fakeWorld{1, 2, "", nil}, []string{"--rank", "0"}, "--rank is 0 but MPI reports 1"},
		{fakeWorld{1, 2, "", nil}, []string{"--world-size", "3"}, "--world-size is 3 but MPI reports 2"},
		{fakeWorld{0, 9, "", nil}, nil, "9 processes; a group has at most 8"},
		{fakeWorld{1, 2, "", errors.New("no way")}, nil, "no way"},
	} {
		_, err := adopt(c.world, c.args...)
		require.ErrorContains(t, err, c.want)
	}
}
