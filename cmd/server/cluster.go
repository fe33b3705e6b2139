package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/control"
	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/network"
	"ringmaster/internal/usage"
	"ringmaster/node"
)

// clusterOptions are the flags of a group of hosts.
type clusterOptions struct {
	node.Group
	on      bool
	serves  bool // the command is serve
	keyFile string
	verify  bool
	onLoss  lossPolicy
	devices string // file of the device matrix
}

// nodeGroup is the place of this host in the group, once the flags have been checked; nil
// without --distributed.
func (o *clusterOptions) nodeGroup() *node.Group {
	if !o.on {
		return nil
	}
	g := o.Group
	g.OnLoss, g.MinRanks, g.RejoinAfter = o.policy(), max(1, o.onLoss.least), o.onLoss.rejoin
	return &g
}

func (o *clusterOptions) registerEncrypt(f *pflag.FlagSet) {
	flags.WordOf(f, &o.Encrypt, "cluster-encrypt", "off", encryptWords, node.ParseEncryption, "encrypt what the ranks exchange by TLS 1.3 (give it to every rank, with --cluster-key-file): on refuses RDMA and MPI because their data cannot be encrypted; tcp-only leaves that data in clear; off")
	f.Lookup("cluster-encrypt").NoOptDefVal = "on"
}

// checkEncrypt validates --cluster-encrypt.
func (o *clusterOptions) checkEncrypt() error {
	switch {
	case o.Encrypt.TCP() && o.keyFile == "":
		return fmt.Errorf("--cluster-encrypt needs --cluster-key-file, the secret by which ranks know each other; give both to every rank")
	case o.Encrypt == node.FullEncryption && (o.Transport == node.RDMA || o.Transport == node.MPI):
		return fmt.Errorf("--cluster-encrypt cannot encrypt the data of --transport %v: use --transport tcp, or --cluster-encrypt=tcp-only on every rank, which leaves activations and results between ranks in clear", o.Transport)
	}
	return nil
}

func (o *clusterOptions) register(f *pflag.FlagSet) {
	flags.Bool(f, &o.on, "distributed", false, "run one model on several hosts; start the program on each of them")
	flags.Int(f, &o.Rank, "rank", 0, flags.Within(0, groupplan.MaxRanks-1), "rank of this host, less than --world-size; rank 0 leads the group and serves HTTP")
	flags.Int(f, &o.Size, "world-size", 0, flags.Within(1, groupplan.MaxRanks), "number of ranks")
	flags.Address(f, &o.Coordinator, "coordinator", "", "`HOST:PORT` where rank 0 listens for the other ranks")
	flags.Typed(f, &o.Ports, "data-port", "", portsForm, network.ParsePorts, "`port` on which this rank listens for the data connections of the others, as a firewall must allow it beside the coordinator's; a range such as 7701-7708 takes the first that is free, for several groups on a host, and with RDMA two are needed; empty leaves the choice to the system")
	flags.File(f, &o.keyFile, "cluster-key-file", "`file` with the secret that all ranks share; without it a rank listens only on loopback or on an explicit address")
	o.registerEncrypt(f)
	flags.Propose(flags.Typed(f, &o.Share, "share", groupplan.AutoShare, shareForm, groupplan.ParseShare, "what is divided: the experts, or all: also attention, the shared expert and the output head, for one more exchange a layer; or auto: what is expected to be faster, measured for two seconds when a group forms, also with --stages of one rank each, and the experts if that is not possible; or helper: rank 0 has everything, and rank 1, a faster host, computes the last layers of prompts (helper:1,3 gives the speeds of both in place of measuring them). Shares follow after a colon: all:2,1,1 by rank, or all:memory in proportion to the free memory; without them all ranks get equal shares (rank 0 decides)"), shareWords...)
	flags.Typed(f, &o.Stages, "stages", "", stagesForm, groupplan.ParseStages, "divide the layers into `stages`, each on ranks of its own that have the weights and KV caches of its layers alone; inside a stage --share decides. Rows pass from stage to stage, so little travels (a long prompt is computed in all stages at once, a single answer takes a little longer than on one host): for slow links, and models and contexts that need the memory of all ranks. A number, such as 2, or the layers of each stage, 0-21,22-42, also with how many ranks each has, 0-21:2,22-42:1 (rank 0 decides)")
	flags.Bool(f, &o.verify, "verify-model", false, "before loading, check that no weight is NaN or infinite, and compare a hash of the whole model file across the ranks (reads the whole file); the small tensors that every token needs are always checked")
	flags.Duration(f, &o.ConnectTimeout, "connect-timeout", time.Minute, flags.AnyDuration(), "how long to wait for the other ranks at startup, and how long a follower that lost its leader keeps the model loaded and looks for it")
	flags.Duration(f, &o.PeerTimeout, "peer-timeout", 4*time.Second, flags.AnyDuration(), "time without a heartbeat after which a rank is considered lost")
	flags.Duration(f, &o.WorkTimeout, "work-timeout", 5*time.Minute, flags.AnyDuration(), "longest time for one step; a rank that still responds after it is considered stuck, and /readyz reports it after a fifth of this time")
	flags.Propose(flags.Typed(f, &o.onLoss, "on-loss", "", onLossForm, parseOnLoss, "what rank 0 does when a rank is lost: continue with the others at once, if the model fits them; continue:N, the same with at least N ranks, rank 0 included, and continue:N,TIME says how long a rank stays out that was lost three times in ten minutes (10m); wait until it is back; or fail (default continue; wait with --transport mpi and for commands other than serve)"), "continue", "wait", "fail")
	flags.WordOf(f, &o.Transport, "transport", "auto", node.TransportNames, node.ParseTransport, "transport of the exchanges between ranks: tcp, rdma, mpi (for a job started by mpirun or srun), or auto: rdma if there is a device matrix and all ranks can use it, else tcp")
	flags.File(f, &o.devices, "rdma-devices", "JSON `file` with the RDMA devices that connect each pair of ranks, in the format of JACCL and MLX")
	f.VarPF((*verbsProcess)(&o.Verbs), "rdma-in-process", "", "make the calls of the verbs library in the server itself (=true) or in a helper process for each RDMA device (=false), which keeps the server alive when the library crashes, as Apple's does when a cable is pulled; without it a helper on macOS, the server itself elsewhere").NoOptDefVal = "true"
	flags.Under(f, headingCluster)
}

// check validates the flags of a group.
func (o *clusterOptions) check() error {
	if !o.on {
		return nil
	}
	switch {
	case o.Size == 0:
		return fmt.Errorf("--world-size is missing; expected the number of ranks, 1 to %d", groupplan.MaxRanks)
	case o.Rank >= o.Size:
		return fmt.Errorf("--rank is %d; expected 0 to %d with --world-size %d", o.Rank, o.Size-1, o.Size)
	case o.Coordinator == "":
		return fmt.Errorf("--distributed needs --coordinator HOST:PORT, the address of rank 0")
	case o.onLoss.least > o.Size:
		return fmt.Errorf("--on-loss %v: expected 1 to %d ranks with --world-size %d", o.onLoss, o.Size, o.Size)
	}
	// An interface may come up later; an address without one never works.
	if host, _, err := net.SplitHostPort(o.Coordinator); err == nil && !strings.Contains(host, "%") {
		if err := network.CheckZone(host); err != nil {
			return fmt.Errorf("--coordinator: %w", err)
		}
	}
	if err := o.checkEncrypt(); err != nil {
		return err
	}
	if o.onLoss.given && o.onLoss.policy == cluster.Continue && o.Transport == node.MPI {
		return fmt.Errorf("--on-loss continue: MPI cannot continue without a process of its job; use --transport tcp or rdma, or --on-loss wait")
	}
	if err := o.Share.Check(o.Size); err != nil {
		return err
	}
	if err := o.Stages.Check(o.Size, o.Share); err != nil {
		return err
	}
	var err error
	if o.Key, err = o.key(); err != nil { // now, and not when the model is open
		return err
	}
	o.MatrixFile, o.Matrix, err = o.deviceMatrix()
	return err
}

// lossPolicy is what --on-loss says.
type lossPolicy struct {
	given  bool // else it depends on the command and the transport
	policy cluster.OnLoss
	least  int // ranks of an epoch; 0 is 1
	// rejoin is how long a rank stays out after three losses; 0 is ten minutes.
	rejoin time.Duration
}

// parseOnLoss reads continue, continue:N, continue:N,TIME, wait or fail.
func parseOnLoss(s string) (lossPolicy, error) {
	name, number, counted := strings.Cut(s, ":")
	p, err := cluster.ParseOnLoss(name)
	if err != nil || !counted {
		return lossPolicy{given: true, policy: p}, err
	}
	number, rejoin, timed := strings.Cut(number, ",")
	out := lossPolicy{given: true, policy: p}
	out.least, err = strconv.Atoi(number)
	if err != nil || p != cluster.Continue || out.least < 1 || out.least > groupplan.MaxRanks {
		return lossPolicy{}, flags.Formed(false)
	}
	if timed {
		if out.rejoin, err = time.ParseDuration(rejoin); err != nil || out.rejoin <= 0 {
			return lossPolicy{}, flags.Formed(false)
		}
	}
	return out, nil
}

// String is what parseOnLoss reads.
func (l lossPolicy) String() string {
	s := l.policy.String()
	if l.least > 0 {
		s += fmt.Sprintf(":%d", l.least)
	}
	if l.rejoin > 0 {
		s += fmt.Sprintf(",%v", l.rejoin)
	}
	return s
}

// policy is what --on-loss stands for. MPI has no groups of the survivors of a job.
func (o *clusterOptions) policy() cluster.OnLoss {
	switch {
	case o.onLoss.given:
		return o.onLoss.policy
	case o.Transport == node.MPI || !o.serves: // others measure or print what all ranks do
		return cluster.Await
	}
	return cluster.Continue
}

// key reads the cluster's key; nil if there is none.
func (o *clusterOptions) key() ([]byte, error) {
	if o.keyFile == "" {
		return nil, nil
	}
	key, err := control.ReadKey(o.keyFile)
	if err != nil {
		return nil, usage.Errorf("--cluster-key-file: %w", err)
	}
	return key, nil
}
