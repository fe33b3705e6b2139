package node

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/distributed/mpi"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/groupplan"
	"ringmaster/internal/network"
	"ringmaster/internal/program"
)

// Group is the place of a node in a group.
type Group struct {
	Rank        int
	Size        int
	Coordinator string // HOST:PORT where rank 0 listens for the other ranks
	Key         []byte // that all ranks share; nil: none
	Encrypt     Encryption

	// Of rank 0, which decides for all.
	Share    groupplan.Share
	Stages   groupplan.Stages
	OnLoss   cluster.OnLoss
	MinRanks int                     // fewest ranks with which cluster.Continue continues
	Open     bool                    // Size is the most ranks, which may join at any time
	Examined bool                    // others may examine the group, because a process serves it: see Node.Serves
	Formed   func(cluster.Formation) // told of each epoch that takes the place of another; may be nil

	ConnectTimeout time.Duration
	PeerTimeout    time.Duration
	WorkTimeout    time.Duration
	RejoinAfter    time.Duration

	Transport  Transport
	Ports      network.Ports // on which this rank listens for the data connections of the others
	Matrix     matrix.Matrix // of RDMA devices; nil: none is used
	MatrixFile string
	Verbs      rdma.Process
	World      *mpi.World // with MPI
}

// Encryption is what of the exchanges between ranks is encrypted.
type Encryption uint8

// The kinds of Encryption.
const (
	NoEncryption      Encryption = iota
	FullEncryption               // everything; a transport that cannot is refused
	TCPOnlyEncryption            // what goes over TCP; the data of RDMA and MPI is in clear
)

// ParseEncryption reads off, on or tcp-only.
func ParseEncryption(s string) (Encryption, error) {
	i := slices.Index([]string{"off", "on", "tcp-only"}, s)
	if i < 0 {
		return 0, fmt.Errorf("encryption is %q; expected on, off or tcp-only", s)
	}
	return Encryption(i), nil
}

// TCP reports whether connections over TCP are encrypted.
func (e Encryption) TCP() bool { return e != NoEncryption }

// Hello is what a rank says of itself without a model.
func (g *Group) Hello() cluster.Hello {
	name, _ := os.Hostname() // for people: without one the address stands alone
	return cluster.Hello{Rank: g.Rank, Size: g.Size, Host: name, Build: program.Version(), ByteOrder: byteOrder()}
}

func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

// Config is the configuration of a rank that says hello, with its transport.
func (g *Group) Config(hello cluster.Hello) cluster.Config {
	cfg := cluster.Config{
		Hello: hello, Coordinator: g.Coordinator, Key: g.Key, Encrypt: g.Encrypt.TCP(),
		ConnectTimeout: g.ConnectTimeout, PeerTimeout: g.PeerTimeout, WorkTimeout: g.WorkTimeout,
		OnLoss: g.OnLoss, MinRanks: g.MinRanks, Open: g.Open, RejoinAfter: g.RejoinAfter, Formed: g.Formed,
	}
	g.setTransport(&cfg)
	return cfg
}
