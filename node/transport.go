package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/mpi"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/rails"
	"ringmaster/distributed/tcp"
	"ringmaster/internal/doctor"
	"ringmaster/internal/subprocess"
)

// Transport is what the exchanges between ranks use.
type Transport uint8

// The transports. AutoTransport is RDMA if there is a device matrix and all ranks can use
// it, else TCP.
const (
	AutoTransport Transport = iota
	TCP
	RDMA
	MPI
)

// TransportNames are what ParseTransport reads, by Transport.
var TransportNames = []string{"auto", "tcp", "rdma", "mpi"}

// ParseTransport reads one of TransportNames.
func ParseTransport(s string) (Transport, error) {
	i := slices.Index(TransportNames, s)
	if i < 0 {
		return 0, fmt.Errorf("transport is %q; expected %s", s, strings.Join(TransportNames, ", "))
	}
	return Transport(i), nil
}

// String is what ParseTransport reads.
func (t Transport) String() string { return TransportNames[t] }

// setTransport sets the transport of a group.
func (g *Group) setTransport(cfg *cluster.Config) {
	if g.World == nil {
		g.setNetworkTransport(cfg)
		return
	}
	slog.Info("MPI", "library", g.World.Version(), "rank", g.Rank, "ranks", g.Size, "host", g.World.Host())
	if runtime.NumCPU() == 1 {
		slog.Warn("the launcher has bound this process to one CPU; use mpirun --bind-to none or srun --cpu-bind=none")
	}
	if g.Encrypt.TCP() {
		slog.Warn("the control connections are encrypted; the data of MPI is NOT: whoever reads that network reads activations and results (--cluster-encrypt=tcp-only)")
	}
	cfg.Transport = mpi.New(g.World, mpi.Options{})
	cfg.Irreplaceable = "restart the job (mpirun, srun): MPI cannot add a process to a running job"
}

// setNetworkTransport sets the transport to TCP, or to RDMA if there is a device
// matrix. With AutoTransport all ranks fall back to TCP together if RDMA fails.
func (g *Group) setNetworkTransport(cfg *cluster.Config) {
	cfg.Transport = tcp.New(tcp.Options{Encrypt: g.Encrypt.TCP(), Ports: g.Ports})
	if host, _, err := net.SplitHostPort(g.Coordinator); err == nil && g.Size > 1 && !loopbackHost(host) {
		go logNetwork(g.Rank)
	}
	if g.Encrypt.TCP() && g.Size > 1 {
		slog.Info("connections between ranks are encrypted: TLS 1.3, proved by the cluster's key")
	}
	if g.Matrix == nil {
		return
	}
	if g.Encrypt == FullEncryption { // with auto; rdma is refused
		slog.Warn("RDMA is not used, because its data cannot be encrypted; --cluster-encrypt=tcp-only on every rank uses it, with the data in clear", "devices", g.MatrixFile)
		return
	}
	opts := g.rails()
	opts.Side, opts.Encrypt, opts.Ports = cfg.Transport, g.Encrypt.TCP(), g.Ports
	if g.Encrypt.TCP() {
		slog.Warn("data over RDMA is NOT encrypted, only what goes over TCP: whoever reads those cables reads activations and results (--cluster-encrypt=tcp-only)")
	}
	cfg.Transport = rdma.New(opts)
}

// loopbackHost reports whether a host is this one by its name or address.
func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// logNetwork logs what doctor finds on the network of this host, so that the cause of a
// connection that fails later is in the log already.
func logNetwork(rank int) {
	s := &doctor.Source{System: runtime.GOOS, Limit: 5 * time.Second, Hostname: os.Hostname, Resolve: doctor.Resolve,
		Interfaces: doctor.SystemInterfaces, Run: subprocess.Run}
	for _, f := range doctor.Network(context.Background(), s) {
		level := slog.LevelInfo
		if f.Severity == doctor.Warning || f.Severity == doctor.Error {
			level = slog.LevelWarn
		}
		slog.Log(context.Background(), level, f.Evidence, "rank", rank, "remedy", f.Cure)
	}
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

// rails returns the RDMA options for the device matrix. Before each group is formed
// the devices of this host are probed again, to find the cables.
func (g *Group) rails() rdma.Options {
	return rdma.Options{
		Rules:  matrix.Rules{Switched: switched(g.Matrix)},
		OrSide: g.Transport == AutoTransport, Matrix: g.Matrix, MatrixFile: g.MatrixFile, Ring: matrix.RingWanted(os.LookupEnv),
		Verbs:  g.Verbs,
		Report: func(line string) { slog.Info("rdma", "rank", g.Rank, "note", line) },
		Ask: func(ctx context.Context) matrix.Host {
			r := rails.Here(ctx, "")
			for _, n := range r.Notes {
				slog.Debug("rdma", "rank", g.Rank, "host", r.Name, "note", n)
			}
			return r.Host
		},
	}
}
