package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/mpi"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/tcp"
)

// fromMPI starts MPI with --transport mpi and sets what it knows: the rank, the
// number of ranks, and where rank 0 listens. What the flags say must agree.
func (o *clusterOptions) fromMPI(ctx context.Context, flags *pflag.FlagSet) error {
	if !o.on || o.transport != "mpi" {
		return nil
	}
	if o.connect <= 0 {
		return fmt.Errorf("--connect-timeout is %v; expected more than 0", o.connect)
	}
	ctx, cancel := context.WithTimeout(ctx, o.connect)
	defer cancel()
	w, err := mpi.Open(ctx, mpi.Options{Library: o.mpiLibrary})
	if err != nil {
		return fmt.Errorf("--transport mpi: %w", err)
	}
	if err := o.adopt(ctx, flags, w); err != nil {
		return fmt.Errorf("--transport mpi: %w", err)
	}
	o.world = w
	return nil
}

// job is what fromMPI asks of a world.
type job interface {
	Rank() int
	Size() int
	Coordinator(ctx context.Context, mine string) (string, error)
}

// adopt sets the flags of a group from an MPI job.
func (o *clusterOptions) adopt(ctx context.Context, flags *pflag.FlagSet, w job) error {
	if w.Size() == 1 && o.size != 1 {
		return fmt.Errorf("this is a job of one process; start it with mpirun -n N or srun (--world-size 1 if one is meant)")
	}
	for _, f := range []struct {
		flag       string
		told, says int
	}{{"world-size", o.size, w.Size()}, {"rank", o.rank, w.Rank()}} {
		if flags.Changed(f.flag) && f.told != f.says {
			return fmt.Errorf("--%s is %d and MPI says %d; leave it out", f.flag, f.told, f.says)
		}
		if err := flags.Set(f.flag, strconv.Itoa(f.says)); err != nil {
			return err
		}
	}
	at, err := w.Coordinator(ctx, o.coordinator)
	if err != nil {
		return err
	}
	return flags.Set("coordinator", at)
}

// inJob tells that this is a rank but 0 of an MPI job: the launcher starts the
// same command on all, and all but rank 0 follow, whatever the command.
func (o *clusterOptions) inJob() bool { return o.world != nil && o.rank > 0 }

// connectBy sets the transport of a group.
func (o *clusterOptions) connectBy(cfg *cluster.Config) error {
	if o.world == nil {
		return o.connectByCable(cfg)
	}
	slog.Info("MPI", "library", o.world.Version(), "rank", o.rank, "ranks", o.size, "host", o.world.Host())
	if runtime.NumCPU() == 1 {
		slog.Warn("the launcher has bound this process to one processor; free it with mpirun --bind-to none or srun --cpu-bind=none")
	}
	cfg.Transport = mpi.New(o.world, mpi.Options{})
	cfg.Irreplaceable = "restart the job (mpirun, srun): MPI takes no new process into a running one"
	return nil
}

// switched tells whether one port may reach several ranks: on InfiniBand and
// RoCE it may. A Thunderbolt port has one cable; its device is called rdma_ and
// the name of its interface.
func switched(m matrix.Matrix) bool {
	for r := range m {
		for _, name := range m.Devices(r) {
			if strings.HasPrefix(name, "rdma_") {
				return false
			}
		}
	}
	return true
}

// connectByCable sets the transport to TCP, or to RDMA where there is a device
// matrix: with auto the group falls back to TCP, together, if RDMA fails.
func (o *clusterOptions) connectByCable(cfg *cluster.Config) error {
	cfg.Transport = tcp.New(tcp.Options{})
	if o.transport == "tcp" || o.size == 1 {
		return nil
	}
	path := matrix.Path(os.LookupEnv)
	if o.devices != "" {
		path = o.devices
	}
	switch {
	case path == "" && o.transport == "rdma":
		return fmt.Errorf("--transport rdma needs a device matrix: --rdma-devices FILE, or JACCL_IBV_DEVICES or MLX_IBV_DEVICES (scripts/launch.sh --transport rdma writes one)")
	case path == "":
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--rdma-devices: %w", err)
	}
	m, err := matrix.Parse(path, text)
	if err != nil {
		return fmt.Errorf("--rdma-devices: %w", err)
	}
	opts := o.rails(m, path)
	opts.Side = cfg.Transport
	cfg.Transport = rdma.New(opts)
	return nil
}

// rails are the options of RDMA after a device matrix. Before each group is formed
// this host's tools are asked for its devices, by which cables are known.
func (o *clusterOptions) rails(m matrix.Matrix, path string) rdma.Options {
	return rdma.Options{
		Rules:  matrix.Rules{Switched: switched(m)},
		OrSide: o.transport == "auto", Matrix: m, MatrixFile: path, Ring: matrix.RingWanted(os.LookupEnv),
		Report: func(line string) { slog.Info("rdma", "rank", o.rank, "note", line) },
		Ask: func(ctx context.Context) matrix.Host {
			r := hostProbe().report(ctx)
			for _, n := range r.Notes {
				slog.Debug("rdma", "rank", o.rank, "host", r.Name, "note", n)
			}
			return r.Host
		},
	}
}
