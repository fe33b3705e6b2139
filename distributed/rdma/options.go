// Package rdma is the data plane over RDMA: a distributed.Transport over the verbs
// library of the system. It uses all cables between two ranks, by plans that both
// ends of every wire share. New takes Options with the side transport and the device
// matrix. It uses the packages
//
//   - verbs: the verbs library, loaded at run time,
//   - matrix: which devices lead to which rank; pairing cables, ring or mesh,
//   - plan: which bytes travel over which wire in which order,
//   - engine: plans executed over queue pairs,
//   - liveness: the connections that report a rank's end,
//   - bringup: devices opened, rails proved, by votes.
//
// A group is brought up over TCP: the side transport makes a group of the same ranks.
// That group carries the votes of the bring-up and later the messages between ranks
// without a cable.
//
// # Failure
//
// A completion is used only after the statuses of its whole batch were checked. The
// first cause stays; a flushed request is the cause only if no other can be found.
// Every two ranks also have a liveness connection, because a queue pair without
// acknowledgements does not report that its peer is dead. The end of that connection,
// or the notice in which a rank says why it gave up, is a suspicion like the error of
// a completion (distributed.Link.Suspect).
package rdma

import (
	"cmp"
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

// Options are the settings of the transport. Side and Matrix are required. Rank 0
// decides everything that concerns the whole group.
type Options struct {
	// Side makes the group that the bring-up uses, for example tcp.New(…). The
	// transport then owns it.
	Side distributed.Transport
	// Encrypt makes the liveness connections travel over TLS 1.3; Side has its own
	// setting. Data on the rails is never encrypted.
	Encrypt bool
	// Ports are the ports to listen on for liveness connections; Side has its own
	// setting.
	Ports network.Ports
	// OrSide runs the group over the side transport if the bring-up over RDMA fails,
	// and tells Report. All ranks do the same, because a bring-up fails on all of
	// them.
	OrSide bool
	// Matrix says which devices of which rank lead to which other rank; all
	// ranks give the same one. MatrixFile is its name, for errors.
	Matrix     matrix.Matrix
	MatrixFile string
	Rules      matrix.Rules
	// Ring prefers a ring where a mesh is possible too.
	Ring bool
	// Ask returns what this host's tools report about its devices: domains and
	// addresses that identify cables without a trial. Each Connect calls it, because
	// cables may have been moved. It may be nil.
	Ask func(ctx context.Context) matrix.Host
	// Report receives lines for people: what was corrected or left out, and how the
	// ranks are joined. It may be nil.
	Report func(line string)
	// Verbs chooses the process that calls the verbs library.
	Verbs Process
	// Tuning is for tests and benchmarks.
	Tuning Tuning
}

// Process is the process that calls the verbs library.
type Process int

// The processes. A helper process for each device keeps the server alive if the
// library ends its process, as Apple's does when the link of a cable is lost; a
// combine then takes a little longer. Auto is Helper on macOS and InProcess
// elsewhere.
const (
	Auto Process = iota
	InProcess
	Helper
)

func (p Process) helper() bool { return p == Helper || p == Auto && runtime.GOOS == "darwin" }

// Tuning has values that production leaves at their defaults, the zero values.
type Tuning struct {
	// Library is the file of the verbs library; "" for the system's.
	Library string
	// Type of the queue pairs; 0 for UC on Thunderbolt and RC elsewhere.
	Type verbs.QPType
	// Cap is the greatest size class of messages (package plan), reduced by
	// short queues; 0 for the greatest possible, < 0 for one frame.
	Cap int
	// OneRail is the number of bytes up to which only one of several rails is used; 0
	// for plan.DefaultOneRail, < 0 for none.
	OneRail int64
	// Model of the wires; the zero Model is measured.
	Model plan.Model
	// Force makes all-reduces use an algorithm.
	Force plan.Algorithm
	// Mesh prefers a mesh where a ring is faster.
	Mesh bool
	// Strict makes Connect fail if cables would be paired differently from the
	// matrix.
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
	t.Spin = cmp.Or(t.Spin, 50*time.Microsecond)
	t.TokenTimeout = cmp.Or(t.TokenTimeout, 5*time.Second)
	return t
}

// The limits of waits.
const (
	stepTimeout = 30 * time.Second       // of an operation of the side channel during the bring-up
	drainLimit  = 200 * time.Millisecond // for sends under way when a group closes in good order
)

// rules returns what this rank decides if it is rank 0.
func (o *Options) rules() bringup.Rules {
	r := bringup.Rules{Cap: o.Tuning.Cap, OneRail: o.Tuning.OneRail, Model: o.Tuning.Model, Force: o.Tuning.Force, Ring: o.Ring, Mesh: o.Tuning.Mesh,
		Strict: o.Tuning.Strict, Pairing: o.Rules}
	r.Pairing.Normalize = true
	return r
}
