package distributed

import (
	"context"
	"time"
)

// Transport makes the data plane of a group: one Group for each epoch.
type Transport interface {
	// Name is the transport's kind: "tcp".
	Name() string
	// Listen makes this rank reachable at the host (an address of this
	// machine without port) and returns the address that others are to dial.
	// Listening on another host before ends.
	Listen(host string) (addr string, err error)
	// Connect joins the group of a link: it returns when this rank is
	// connected to all others and they to it. All ranks call it at about the
	// same time; ctx bounds the wait. Errors wrap ErrBootstrap and name the
	// peer and its address.
	Connect(ctx context.Context, l Link) (Group, error)
	// Close stops listening. Groups made before are closed by their owners.
	Close() error
}

// Link is what a rank must know to join the group of an epoch.
type Link struct {
	Rank, Size int
	GroupID    string   // of the leader's run
	Epoch      uint32   // a connection of another epoch is turned away
	Token      []byte   // [32] secret of the epoch: proves that a connection belongs to it
	Addrs      []string // [Size] from Listen of each rank
	// World is, for a group that was split off, each rank's number in the
	// outermost group; nil else.
	World []int
	// OpTimeout is how long an operation may take.
	OpTimeout time.Duration
	// Suspect, if set, is told once when a peer seems lost, and why; it must
	// not block. The operation under way then waits up to VerdictTimeout for
	// Fail with the verdict of the whole group: a closed connection is often
	// but the echo of another rank's death. Without a verdict the suspicion
	// is the cause.
	Suspect        func(peer int, cause error)
	VerdictTimeout time.Duration
}
