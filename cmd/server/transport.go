package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/mpi"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/rails"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/doctor"
	"ringmaster/internal/flags"
	"ringmaster/internal/subprocess"
	"ringmaster/internal/usage"
)

// fromMPI initialises MPI with --transport mpi and sets the flags that it
// determines: the rank, the number of ranks, and where rank 0 listens. Flags on
// the command line must agree.
func (o *clusterOptions) fromMPI(ctx context.Context, flags *pflag.FlagSet) error {
	if !o.on || o.transport != "mpi" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.connect)
	defer cancel()
	w, err := mpi.Open(ctx, mpi.Options{Library: strings.TrimSpace(os.Getenv(mpi.LibraryVariable))})
	if err != nil {
		return fmt.Errorf("--transport mpi: %w", err)
	}
	if err := o.adopt(ctx, flags, w); err != nil {
		return fmt.Errorf("--transport mpi: %w", err)
	}
	o.world = w
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
	if w.Size() == 1 && o.size != 1 {
		return fmt.Errorf("the MPI job has one process; start it with mpirun -n N or srun, or use --world-size 1 for a single rank")
	}
	if w.Size() > mostRanks {
		return usage.Errorf("the MPI job has %d processes; a group has at most %d ranks", w.Size(), mostRanks)
	}
	for _, f := range []struct {
		flag        string
		given, real int
	}{{"world-size", o.size, w.Size()}, {"rank", o.rank, w.Rank()}} {
		if flags.Changed(f.flag) && f.given != f.real {
			return fmt.Errorf("--%s is %d but MPI reports %d; omit the flag", f.flag, f.given, f.real)
		}
		if err := flags.Set(f.flag, strconv.Itoa(f.real)); err != nil {
			return err
		}
	}
	coordinator, err := w.Coordinator(ctx, o.coordinator)
	if err != nil {
		return err
	}
	return flags.Set("coordinator", coordinator)
}

// mpiFollower reports whether this is a rank other than 0 of an MPI job. The
// launcher starts the same command on all ranks; whatever it is, these follow.
func (o *clusterOptions) mpiFollower() bool { return o.world != nil && o.rank > 0 }

// setTransport sets the transport of a group.
func (o *clusterOptions) setTransport(cfg *cluster.Config) error {
	if o.world == nil {
		return o.setNetworkTransport(cfg)
	}
	slog.Info("MPI", "library", o.world.Version(), "rank", o.rank, "ranks", o.size, "host", o.world.Host())
	if runtime.NumCPU() == 1 {
		slog.Warn("the launcher has bound this process to one CPU; use mpirun --bind-to none or srun --cpu-bind=none")
	}
	if o.encrypts() {
		slog.Warn("the control connections are encrypted; the data of MPI is NOT: whoever reads that network reads activations and results (--cluster-encrypt=tcp-only)")
	}
	cfg.Transport = mpi.New(o.world, mpi.Options{})
	cfg.Irreplaceable = "restart the job (mpirun, srun): MPI cannot add a process to a running job"
	return nil
}

// switched reports whether one port may reach several ranks. On InfiniBand and
// RoCE it may; a Thunderbolt port has one cable, and its device is named rdma_
// followed by the name of the interface.
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

// deviceMatrix reads the device matrix; the path is empty if none is used.
func (o *clusterOptions) deviceMatrix() (path string, m matrix.Matrix, err error) {
	if o.transport == "tcp" || o.transport == "mpi" || o.size == 1 {
		return "", nil, nil
	}
	if path = o.devices; path == "" {
		path = matrix.Path(os.LookupEnv)
	}
	switch {
	case path == "" && o.transport == "rdma":
		return "", nil, usage.Errorf("--transport rdma needs a device matrix: --rdma-devices FILE, or JACCL_IBV_DEVICES or MLX_IBV_DEVICES (scripts/launch.sh --transport rdma writes one)")
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

// setNetworkTransport sets the transport to TCP, or to RDMA if there is a device
// matrix. With auto all ranks fall back to TCP together if RDMA fails.
func (o *clusterOptions) setNetworkTransport(cfg *cluster.Config) error {
	cfg.Transport = tcp.New(tcp.Options{Encrypt: o.encrypts(), Ports: o.ports()})
	if host, _, err := net.SplitHostPort(o.coordinator); err == nil && o.size > 1 && !loopbackHost(host) {
		go sayNetwork(o)
	}
	if o.encrypts() && o.size > 1 {
		slog.Info("connections between ranks are encrypted: TLS 1.3, proved by the cluster's key")
	}
	path, m, err := o.deviceMatrix()
	if err != nil || path == "" {
		return err
	}
	if o.encrypt == encryptOn { // with auto; check has refused rdma
		slog.Warn("RDMA is not used, because its data cannot be encrypted; --cluster-encrypt=tcp-only on every rank uses it, with the data in clear", "devices", path)
		return nil
	}
	opts := o.rails(m, path)
	opts.Side, opts.Encrypt, opts.Ports = cfg.Transport, o.encrypts(), o.ports()
	if o.encrypts() {
		slog.Warn("data over RDMA is NOT encrypted, only what goes over TCP: whoever reads those cables reads activations and results (--cluster-encrypt=tcp-only)")
	}
	cfg.Transport = rdma.New(opts)
	return nil
}

// loopbackHost reports whether a host is this one by its name or address.
func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// sayNetwork logs what doctor finds on the network of this host, before a connection that
// does not come about makes somebody ask.
func sayNetwork(o *clusterOptions) {
	s := &doctor.Source{System: runtime.GOOS, Limit: 5 * time.Second, Hostname: os.Hostname, Resolve: doctor.Resolve,
		Interfaces: doctor.SystemInterfaces, Run: subprocess.Run}
	for _, f := range doctor.Network(context.Background(), s) {
		level := slog.LevelInfo
		if f.Severity == doctor.Warning || f.Severity == doctor.Error {
			level = slog.LevelWarn
		}
		slog.Log(context.Background(), level, f.Evidence, "rank", o.rank, "remedy", f.Cure)
	}
}

// rails returns the RDMA options for a device matrix. Before each group is formed
// the devices of this host are probed again, to find the cables.
func (o *clusterOptions) rails(m matrix.Matrix, path string) rdma.Options {
	return rdma.Options{
		Rules:  matrix.Rules{Switched: switched(m)},
		OrSide: o.transport == "auto", Matrix: m, MatrixFile: path, Ring: matrix.RingWanted(os.LookupEnv),
		Verbs:  rdma.Process(o.inProcess),
		Report: func(line string) { slog.Info("rdma", "rank", o.rank, "note", line) },
		Ask: func(ctx context.Context) matrix.Host {
			r := rails.Here(ctx, "")
			for _, n := range r.Notes {
				slog.Debug("rdma", "rank", o.rank, "host", r.Name, "note", n)
			}
			return r.Host
		},
	}
}
