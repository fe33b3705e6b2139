// Package rdma is the data plane over RDMA: a distributed.Transport over the
// verbs library of the system, with as many cables between two ranks as there
// are, after plans that both ends of every wire share. It stands on
//
//   - verbs: the verbs library, loaded at run time,
//   - matrix: which devices lead to which rank; pairing cables, ring or mesh,
//   - plan: which bytes travel over which wire in which order,
//   - engine: plans executed over queue pairs,
//   - liveness: the connections that report a rank's end,
//   - bringup: devices opened, rails proved, by votes.
//
// A group is brought up over TCP: the side transport makes a group of the same
// ranks, which carries the votes of the bring-up and later what RDMA cannot do
// (messages between ranks without a cable).
//
// # Failure
//
// A completion is used only after the statuses of its whole batch were checked.
// The first cause stays; flushed requests are never the cause if another can be
// found. A queue pair without acknowledgements does not report that its peer is
// dead, so every two ranks also have a liveness connection: its end, or the
// notice in which a rank says why it has given up, is a suspicion like the error
// of a completion (distributed.Link.Suspect).
package rdma

import (
	"context"
	"runtime"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/bringup"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/network"
)

// Options are the choices of the transport. Side and Matrix must be given. What
// concerns the whole group is decided by rank 0.
type Options struct {
	// Side makes the group that the bring-up goes over: tcp.New(…). It belongs
	// to the transport from then on.
	Side distributed.Transport
	// Encrypt has the liveness connections travel over TLS 1.3; Side is told on its
	// own. What goes over the rails is never encrypted.
	Encrypt bool
	// Ports are those to listen on for liveness connections; Side is told on its own.
	Ports network.Ports
	// OrSide runs the group over the side transport where the bring-up over
	// RDMA fails; it fails on all ranks alike, so all do the same, and Report
	// is told.
	OrSide bool
	// Matrix says which devices of which rank lead to which other rank; all
	// ranks give the same one. MatrixFile is its name, for errors.
	Matrix     matrix.Matrix
	MatrixFile string
	Rules      matrix.Rules
	// Ring prefers a ring where a mesh is possible too.
	Ring bool
	// Ask is asked at each Connect what this host's tools say of its devices:
	// domains and addresses by which cables are recognised without trying.
	// Cables may have been moved since the last one. May be nil.
	Ask func(ctx context.Context) matrix.Host
	// Report gets lines for people: what was put right or left out, and how
	// the ranks are joined. May be nil.
	Report func(line string)
	// Verbs says in which process the calls of the verbs library are made.
	Verbs Process
	// Tuning is for tests and benchmarks.
	Tuning Tuning
}

// Process is where the calls of the verbs library are made.
type Process int

// The places. A helper process for each device keeps the server alive where the
// library ends its process, as Apple's does when the link of a cable is lost; a
// combine takes a little longer. Auto is Helper on macOS and InProcess elsewhere.
const (
	Auto Process = iota
	InProcess
	Helper
)

func (p Process) helper() bool { return p == Helper || p == Auto && runtime.GOOS == "darwin" }

// Tuning are values that production leaves at their defaults, the zero values.
type Tuning struct {
	// Library is the file of the verbs library; "" for the system's.
	Library string
	// Type of the queue pairs; 0 for UC on Thunderbolt and RC elsewhere.
	Type verbs.QPType
	// Cap is the greatest size class of messages (package plan), less where
	// queues are short; 0 for the greatest there is, < 0 for one frame.
	Cap int
	// OneRail is up to how many bytes one rail of several is used; 0 for
	// plan.DefaultOneRail, < 0 for none.
	OneRail int64
	// Model of the wires; the zero Model is measured.
	Model plan.Model
	// Force makes all-reduces use an algorithm.
	Force plan.Algorithm
	// Mesh prefers a mesh where a ring is faster.
	Mesh bool
	// Strict fails where cables would be paired otherwise than in the matrix.
	Strict bool
	// Spin is how long an operation polls before its thread yields; 0 for
	// 50 µs.
	Spin time.Duration
	// TokenTimeout bounds the proof of a rail; 0 for 5 s.
	TokenTimeout time.Duration
}

func (t Tuning) withDefaults() Tuning {
	if t.Cap == 0 {
		t.Cap = plan.MaxClass
	}
	t.Cap = min(max(t.Cap, 0), plan.MaxClass)
	if t.Spin == 0 {
		t.Spin = 50 * time.Microsecond
	}
	if t.TokenTimeout == 0 {
		t.TokenTimeout = 5 * time.Second
	}
	return t
}

// The limits of waits.
const (
	stepTimeout = 30 * time.Second       // of an operation of the side channel during the bring-up
	drainLimit  = 200 * time.Millisecond // for sends under way when a group closes in good order
)

// rules are what this rank decides if it is rank 0.
func (o *Options) rules() bringup.Rules {
	r := bringup.Rules{Cap: o.Tuning.Cap, OneRail: o.Tuning.OneRail, Model: o.Tuning.Model, Force: o.Tuning.Force, Ring: o.Ring, Mesh: o.Tuning.Mesh,
		Strict: o.Tuning.Strict, Pairing: o.Rules}
	r.Pairing.Normalize = true
	return r
}
