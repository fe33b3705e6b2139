package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/control"
	"ringmaster/distributed/mpi"
	"ringmaster/moe"
)

// clusterOptions are the flags of a group of machines.
type clusterOptions struct {
	on          bool
	rank        int
	size        int
	coordinator string
	keyFile     string
	shares      string
	wire        string
	memory      string
	verify      bool
	connect     time.Duration
	peer        time.Duration
	work        time.Duration
	transport   string
	devices     string // file of the device matrix
	mpiLibrary  string
	world       *mpi.World // with --transport mpi
}

func (o *clusterOptions) register(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "distributed", false, "run one model on several machines; start the same program on each")
	f.IntVar(&o.rank, "rank", 0, "number of this machine, 0 to world-size - 1; rank 0 leads and serves HTTP")
	f.IntVar(&o.size, "world-size", 0, "number of machines, 1 to 8")
	f.StringVar(&o.coordinator, "coordinator", "", "`HOST:PORT` of rank 0, where it listens and the others find it")
	f.StringVar(&o.keyFile, "cluster-key-file", "", "`file` with a secret that all ranks must have; without it only loopback or the given address is listened on")
	f.StringVar(&o.shares, "shares", "", "how the experts are shared out: `2,1,1` by rank, or memory for what each rank offers; empty shares evenly (rank 0 decides)")
	f.StringVar(&o.wire, "wire", "f16", "type of the sums on the wire: f16, or f32 for comparison (rank 0 decides)")
	f.StringVar(&o.memory, "offer-memory", "", "memory this rank offers, like `24GiB`; empty is what is free")
	f.BoolVar(&o.verify, "verify-model", false, "hash the whole model file and compare it with the others' (reads it all)")
	f.DurationVar(&o.connect, "connect-timeout", time.Minute, "how long to wait for the other ranks at the start, and to look for a lost leader")
	f.DurationVar(&o.peer, "peer-timeout", 4*time.Second, "silence after which a rank counts as lost")
	f.DurationVar(&o.work, "work-timeout", 5*time.Minute, "the longest one step may take before a rank that answers counts as stuck")
	f.StringVar(&o.transport, "transport", "auto", "what carries the sums: tcp, rdma, mpi for a job started by mpirun or srun, or auto: rdma where there is a device matrix and all ranks can use it, else tcp")
	f.StringVar(&o.devices, "rdma-devices", "", "JSON `file` that says which RDMA devices join which ranks, as of JACCL and MLX")
	f.StringVar(&o.mpiLibrary, "mpi-library", "", "`file` of Open MPI's library, if it is not found by its usual names")
}

// check says what is wrong with the flags of a group.
func (o *clusterOptions) check() error {
	if !o.on {
		return nil
	}
	switch {
	case !slices.Contains([]string{"auto", "tcp", "rdma", "mpi"}, o.transport):
		return fmt.Errorf("--transport is %q; expected auto, tcp, rdma or mpi", o.transport)
	case o.size < 1 || o.size > 8:
		return fmt.Errorf("--world-size is %d; expected the number of machines, 1 to 8", o.size)
	case o.rank < 0 || o.rank >= o.size:
		return fmt.Errorf("--rank is %d; expected 0 to %d with --world-size %d", o.rank, o.size-1, o.size)
	case o.coordinator == "":
		return fmt.Errorf("--distributed needs --coordinator HOST:PORT, the address of rank 0")
	case o.connect <= 0 || o.peer <= 0 || o.work <= 0:
		return fmt.Errorf("--connect-timeout %v, --peer-timeout %v and --work-timeout %v must be above 0", o.connect, o.peer, o.work)
	}
	if _, _, err := net.SplitHostPort(o.coordinator); err != nil {
		return fmt.Errorf("--coordinator: %w", err)
	}
	if _, err := moe.ParseWire(o.wire); err != nil {
		return fmt.Errorf("--wire: %w", err)
	}
	if _, err := parseBytes(o.memory); err != nil {
		return fmt.Errorf("--offer-memory: %w", err)
	}
	if _, err := o.weights(nil); err != nil {
		return err
	}
	return nil
}

// weights are the shares of the ranks [size], given the memory that each has
// for experts; nil memory checks the flag only.
func (o *clusterOptions) weights(memory []int64) ([]float64, error) {
	out := make([]float64, o.size)
	switch o.shares {
	case "":
		for i := range out {
			out[i] = 1
		}
		return out, nil
	case "memory":
		for i, m := range memory {
			out[i] = float64(max(m, 0))
		}
		return out, nil
	}
	parts := strings.Split(o.shares, ",")
	if len(parts) != o.size {
		return nil, fmt.Errorf("--shares %s has %d numbers for %d ranks", o.shares, len(parts), o.size)
	}
	for i, p := range parts {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || !(v > 0) || v > 1e9 {
			return nil, fmt.Errorf("--shares %s: %q is not a positive number", o.shares, p)
		}
		out[i] = v
	}
	return out, nil
}

// key reads the cluster's key, nil if there is none.
func (o *clusterOptions) key() ([]byte, error) {
	if o.keyFile == "" {
		return nil, nil
	}
	key, err := control.ReadKey(o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--cluster-key-file: %w", err)
	}
	return key, nil
}

// config is what both sides of the cluster need.
func (o *clusterOptions) config(hello cluster.Hello) (cluster.Config, error) {
	key, err := o.key()
	return cluster.Config{
		Hello: hello, Coordinator: o.coordinator, Key: key,
		ConnectTimeout: o.connect, PeerTimeout: o.peer, WorkTimeout: o.work,
	}, err
}

// parseBytes reads a size like 24GiB, 512MiB or 1000000; 0 for "".
func parseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := s, int64(1)
	for suffix, n := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = rest, n
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v > 0) || v*float64(unit) > 1<<60 {
		return 0, fmt.Errorf("%q is not a size like 24GiB", s)
	}
	return int64(v * float64(unit)), nil
}
