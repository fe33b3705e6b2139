// Package rdma is the data plane over RDMA: a distributed.Transport over the
// verbs library of the system (package verbs), with as many cables between two
// ranks as there are (package matrix), after plans that both ends of every wire
// share (package plan).
//
// A group is brought up over TCP: the side transport makes a group of the same
// ranks, which carries the addresses of queue pairs and the votes, and later
// what RDMA cannot do (messages between ranks without a cable). No rank decides
// for itself: each stage ends with a vote, and the first error of any rank is
// the error of all.
//
// # Failure
//
// A completion is used only after the statuses of its whole batch were looked
// at. The first cause stays; flushed requests are never the cause if another is
// to be found. A queue pair without acknowledgements says nothing when its peer
// is dead, so every two ranks also have a TCP connection that tells: its end, or
// the letter in which a rank says why it has given up, is a suspicion like an
// error of a completion (distributed.Link.Suspect).
package rdma

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
)

// Options are the choices of the transport. Side and Matrix must be given; the
// rest has defaults. What concerns the whole group is decided by rank 0.
type Options struct {
	// Side makes the group that the bring-up goes over: tcp.New(…). It belongs
	// to the transport from then on.
	Side distributed.Transport
	// OrSide runs the group over the side transport where the bring-up over
	// RDMA fails; it fails on all ranks alike, so all do the same, and Report
	// is told.
	OrSide bool
	// Matrix says which devices of which rank lead to which other rank; all
	// ranks give the same one. MatrixFile is its name, for errors.
	Matrix     matrix.Matrix
	MatrixFile string
	Rules      matrix.Rules
	// Strict fails where cables would be paired otherwise than in the matrix.
	Strict bool
	// Ring prefers a ring where there is a mesh too, Mesh a mesh.
	Ring, Mesh bool
	// Host is what this rank's tools say of its devices: domains and addresses
	// by which cables are known without trying. May be empty.
	Host matrix.Host
	// Ask is asked for Host at each Connect, for cables may have been moved
	// since. nil: Host stays.
	Ask func(ctx context.Context) matrix.Host
	// Library is the file of the verbs library; "" for the system's.
	Library string
	// Type of the queue pairs; 0 for UC on Thunderbolt and RC elsewhere.
	Type verbs.QPType
	// Cap is the greatest size class of messages (package plan), less where
	// queues are short; 0 for the greatest there is, < 0 for one frame.
	Cap int
	// Slots is how many messages are under way on a wire; 0 for 2.
	Slots int
	// OneRail is up to how many bytes one cable of several is used; 0 for
	// 32 KiB, < 0 for none.
	OneRail int64
	// Model of the wires; the zero Model is measured.
	Model plan.Model
	// Force makes reductions use an algorithm.
	Force plan.Algorithm
	// Head is the length in bytes of the first message of an operation, in
	// which a short operation fits; 0 for one frame on UC and nine on RC.
	Head int
	// Spin is how long an operation looks for completions before it lets
	// other threads run; 0 for 50 µs.
	Spin time.Duration
	// TokenTimeout bounds the proof of a cable; 0 for 5 s.
	TokenTimeout time.Duration
	// CallLimit bounds each call into the driver; 0 for 10 s.
	CallLimit time.Duration
	// Report is told in words what was put right or left out, and how the
	// ranks are joined. May be nil.
	Report func(line string)
	// Rand gives nonces; default crypto/rand.
	Rand io.Reader
}

// The waits that are not worth an option.
const (
	stepTimeout   = 30 * time.Second       // of an exchange while the group is formed
	scanLimit     = 10 * time.Millisecond  // of the search for the cause of a flush
	drainLimit    = 200 * time.Millisecond // for sends under way when a group closes well
	letterTimeout = 250 * time.Millisecond // to write why a rank gives up
)

func (o Options) withDefaults() Options {
	if o.Cap == 0 {
		o.Cap = plan.MaxClass
	}
	o.Cap = min(max(o.Cap, 0), plan.MaxClass)
	if o.Slots == 0 {
		o.Slots = plan.DefaultSlots
	}
	o.Slots = min(max(o.Slots, 1), maxSlots)
	if o.Spin == 0 {
		o.Spin = 50 * time.Microsecond
	}
	if o.TokenTimeout == 0 {
		o.TokenTimeout = 5 * time.Second
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	return o
}
