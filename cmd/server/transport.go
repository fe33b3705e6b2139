package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"ringmaster/distributed/mpi"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// fromMPI initialises MPI with --transport mpi and sets the flags that it
// determines: the rank, the number of ranks, and where rank 0 listens. Flags on
// the command line must agree.
func (o *clusterOptions) fromMPI(ctx context.Context, flags *pflag.FlagSet) error {
	if !o.on || o.Transport != node.MPI {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	w, err := mpi.Open(ctx, mpi.Options{Library: strings.TrimSpace(os.Getenv(mpi.LibraryVariable))})
	if err != nil {
		return fmt.Errorf("--transport mpi: %w", err)
	}
	if err := o.adopt(ctx, flags, w); err != nil {
		return fmt.Errorf("--transport mpi: %w", err)
	}
	o.World = w
	return nil
}

// mpiWorld is the part of an mpi.World that adopt uses.
type mpiWorld interface {
	Rank() int
	Size() int
	Coordinator(ctx context.Context, mine string) (string, error)
}

// adopt sets the flags of a group from an MPI job.
func (o *clusterOptions) adopt(ctx context.Context, flags *pflag.FlagSet, w mpiWorld) error {
	if w.Size() == 1 && o.Size != 1 {
		return fmt.Errorf("the MPI job has one process; start it with mpirun -n N or srun, or use --world-size 1 for a single rank")
	}
	if w.Size() > groupplan.MaxRanks {
		return usage.Errorf("the MPI job has %d processes; a group has at most %d ranks", w.Size(), groupplan.MaxRanks)
	}
	for _, f := range []struct {
		flag        string
		given, real int
	}{{"world-size", o.Size, w.Size()}, {"rank", o.Rank, w.Rank()}} {
		if flags.Changed(f.flag) && f.given != f.real {
			return fmt.Errorf("--%s is %d but MPI reports %d; omit the flag", f.flag, f.given, f.real)
		}
		if err := flags.Set(f.flag, strconv.Itoa(f.real)); err != nil {
			return err
		}
	}
	coordinator, err := w.Coordinator(ctx, o.Coordinator)
	if err != nil {
		return err
	}
	return flags.Set("coordinator", coordinator)
}

// mpiFollower reports whether this is a rank other than 0 of an MPI job. The
// launcher starts the same command on all ranks; whatever it is, these follow.
func (o *clusterOptions) mpiFollower() bool { return o.World != nil && o.Rank > 0 }

// deviceMatrix reads the device matrix; the path is empty if none is used.
func (o *clusterOptions) deviceMatrix() (path string, m matrix.Matrix, err error) {
	if o.Transport == node.TCP || o.Transport == node.MPI || o.Size == 1 {
		return "", nil, nil
	}
	if path = o.devices; path == "" {
		path = matrix.Path(os.LookupEnv)
	}
	switch {
	case path == "" && o.Transport == node.RDMA:
		return "", nil, usage.Errorf("--transport rdma needs a device matrix: --rdma-devices FILE, or JACCL_IBV_DEVICES or MLX_IBV_DEVICES (ringmaster launch --transport rdma writes one)")
	case path == "":
		return "", nil, nil
	}
	text, err := flags.ReadInput(path, 16<<20)
	if err == nil {
		m, err = matrix.Parse(path, text)
	}
	if err != nil {
		return "", nil, usage.Errorf("--rdma-devices: %w", err)
	}
	return path, m, nil
}
