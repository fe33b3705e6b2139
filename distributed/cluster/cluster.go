// Package cluster forms groups of ranks, notices within seconds that one is
// gone, tells every rank which it was, and forms the next group when it is
// back. Each life of the group is an epoch.
//
// Rank 0, the leader, decides; the others follow. Every decision is taken by a
// machine without sockets and clocks (machine.go), which the transcripts in
// testdata drive by hand; leader.go and follower.go give it connections, time
// and a data plane.
//
// # An epoch
//
// All ranks have said Hello; the leader plans and sends Form with the settings
// of the plan; each rank runs Program.Form, connects the data plane and
// answers Formed; when all have, the leader sends Run and both sides call
// Program.Start. Then the leader hands out numbered pieces of work. The first
// failure ends the epoch: the leader gives its verdict, every rank fails its
// group with it, and those that are left wait for the missing one.
package cluster

import (
	"context"
	"log/slog"
	"time"

	"ringmaster/distributed"
)

// Hello is what a rank says of itself when it joins. Ranks whose Size, Build,
// ByteOrder, Fingerprint, Content or Kernels differ from the leader's are
// turned away; both sides are told the difference.
type Hello struct {
	Rank        int    `json:"rank"`
	Size        int    `json:"size"`
	Build       string `json:"build"`
	ByteOrder   string `json:"byte_order"` // "little" or "big"
	Model       string `json:"model"`      // path or name, for messages
	Fingerprint string `json:"fingerprint"`
	Content     string `json:"content,omitempty"` // hash of the weights, when asked for
	Kernels     string `json:"kernels"`           // backend and its instructions: their last bits differ
	Threads     int    `json:"threads"`
	Memory      int64  `json:"memory"` // bytes this rank offers, 0 for not known
	Data        string `json:"data"`   // where its data plane listens, from Transport.Listen
	// Process is drawn at random when a follower begins: by it the leader
	// knows one that has given up the connection that the leader still holds.
	Process string `json:"process,omitempty"`
}

// Config is what both sides need. Zero durations stand for the defaults.
type Config struct {
	Hello       Hello  // of this rank; Data and Process are filled in
	Coordinator string // host:port of rank 0
	Key         []byte // of the cluster; empty: no authentication
	Transport   distributed.Transport

	ConnectTimeout time.Duration // for all ranks to join, and for a follower to find its leader; default 60 s
	PeerTimeout    time.Duration // silence after which a rank counts as lost; default 4 s
	FormTimeout    time.Duration // for Program.Form, which loads the model; default 10 min
	WorkTimeout    time.Duration // for one piece of work, and one operation of the group; default 2 min
	Log            *slog.Logger

	// Irreplaceable, if not "", is why no new process can take the place of a
	// lost rank, and what to do. The group then ends when a lost rank is not
	// back within ConnectTimeout, or when some epochs in a row did not form.
	Irreplaceable string
}

// Epoch is one life of the group.
type Epoch struct {
	Number uint32
	Rank   int
	Group  distributed.Group
	// Done ends when the epoch does, with the verdict as its cause
	// (context.Cause).
	Done context.Context
}

// Digest sums up a piece of work: hashes that are equal on all ranks if they
// did the same. Position i means the same in every digest.
type Digest []uint32

// Program is what a rank does in a group.
type Program interface {
	// Form gets ready for an epoch with the settings of the leader's plan,
	// before the group is connected: loads the model, or keeps the one it
	// has. ctx ends when the epoch is given up.
	Form(ctx context.Context, settings []byte) error
	// Start begins the epoch: all state of the one before is forgotten. It
	// returns quickly. The group of the epoch is closed by the cluster after
	// the epoch, when no Work runs.
	Start(e Epoch) error
}

// Worker is the Program of a follower.
type Worker interface {
	Program
	// Work does a piece of work and returns its digest. It is called by one
	// goroutine, in the order of the leader's calls of Begin. It uses
	// Epoch.Group and ends soon after Epoch.Done has; its error ends the
	// epoch.
	Work(payload []byte) (Digest, error)
	// Report answers Leader.Reports: anything the leader's program reads.
	// It may be called at any time after Form, by another goroutine.
	Report() []byte
}

// Planner is what the leader's program decides.
type Planner interface {
	Program
	// Plan makes the settings of an epoch from what the ranks have said,
	// [Size] in the order of the ranks. An error ends the group if no epoch
	// has run yet, else only this epoch. Plan must not wait.
	Plan(members []Hello) (settings []byte, err error)
	// Describe names position i of a digest for a message: "layer 3, choice
	// of experts".
	Describe(i int) string
}
