package distributed

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Transport makes the data plane of a group: one Group for each epoch.
type Transport interface {
	// Name is the transport's kind: "tcp".
	Name() string
	// Listen makes this rank reachable at the host (an address of this
	// host without port) and returns the address that others are to dial.
	// A listener opened by an earlier call is closed.
	Listen(host string) (addr string, err error)
	// Connect joins the group of a link: it returns when this rank is
	// connected to all others and they to it. All ranks call it at about the
	// same time; ctx bounds the wait. Errors wrap ErrBootstrap and name the
	// peer and its address. See Form.
	Connect(ctx context.Context, l Link) (*Group, error)
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
	// outermost group; nil otherwise.
	World []int
	// OpTimeout is how long an operation may take.
	OpTimeout time.Duration
	// Suspect, if set, is told once when a peer seems lost, and why; it must
	// not block. The operation under way then waits up to VerdictTimeout for
	// Fail with the verdict of the whole group: a closed connection is often
	// but the echo of another rank's death. Without a verdict the suspicion
	// is the cause. Peer is -1 when nobody in particular is suspected.
	Suspect        func(peer int, cause error)
	VerdictTimeout time.Duration
}

// check is an error for a link that no group can be made of.
func (l *Link) check() error {
	switch {
	case l.Size < 1 || l.Size > 255 || l.Rank < 0 || l.Rank >= l.Size:
		return fmt.Errorf("%w: rank %d of %d (1 to 255)", ErrConfig, l.Rank, l.Size)
	case l.Size > 1 && len(l.Addrs) != l.Size:
		return fmt.Errorf("%w: %d addresses for %d ranks", ErrConfig, len(l.Addrs), l.Size)
	case l.Size > 1 && len(l.Token) != 32:
		return fmt.Errorf("%w: a token of %d bytes, not 32", ErrConfig, len(l.Token))
	case l.Size > 1 && l.OpTimeout <= 0:
		return fmt.Errorf("%w: an operation needs a time limit, not %v", ErrConfig, l.OpTimeout)
	}
	return nil
}

// Culprit is the rank of the group that a cause of failure is about, -1 if that
// is not known or no member: verdicts, and errors of the groups around this one,
// have the numbers of the outermost group.
func (l *Link) Culprit(cause error) int {
	world := culprit(cause)
	if world < 0 || l.World == nil {
		return world
	}
	return slices.Index(l.World, world)
}

// world is the number of a rank in the outermost group.
func (l *Link) world(rank int) int {
	if rank >= 0 && rank < len(l.World) {
		return l.World[rank]
	}
	return rank
}
