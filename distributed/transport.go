package distributed

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Transport makes the data plane of a group: one Group for each epoch.
type Transport interface {
	// Name returns the transport's kind, such as "tcp".
	Name() string
	// Listen makes this rank reachable at host (an address of this host
	// without a port) and returns the address that other ranks are to dial.
	// A listener that an earlier call opened at another host is closed.
	Listen(host string) (addr string, err error)
	// Probe finds out whether this rank reaches the address that Listen returned on
	// another rank, before a group depends on it. ctx bounds the wait, and the error
	// says why the rank is not reached. A transport that cannot find out returns nil.
	Probe(ctx context.Context, addr string) error
	// Connect joins the group of a link: it returns when this rank is
	// connected to all others and they to it. All ranks call it at about
	// the same time; ctx bounds the wait. Errors wrap ErrBootstrap and name
	// the peer and its address. See Form.
	Connect(ctx context.Context, l Link) (*Group, error)
	// Close stops listening. It does not close the groups made by Connect;
	// their owners do.
	Close() error
}

// Link is what a rank must know to join the group of an epoch.
type Link struct {
	Rank, Size int
	GroupID    string   // of the leader's run, the same on all ranks
	Epoch      uint32   // connections of other epochs are rejected
	Token      []byte   // [32] the epoch token: proves that a connection belongs to the epoch
	Addrs      []string // [Size] what Listen returned on each rank
	Hosts      []string // [Size] names of the ranks' hosts, for people; nil if unknown
	// World holds the world rank of each rank of this group [Size], which
	// verdicts and the owner of the group use; nil if they are the ranks of
	// this group: all ranks of the world are members.
	World []int
	// Child: the group is a child of a split, so its parent, not the group, notices
	// the end of a rank.
	Child bool
	// OpTimeout bounds each operation.
	OpTimeout time.Duration
	// Suspect, if set, is called once when a peer seems lost, with the reason; it must
	// not block. The current operation then waits up to VerdictTimeout for Fail with
	// the verdict of the whole group, because a closed connection is often only a
	// consequence of another rank's death. Without a verdict the suspicion becomes the
	// cause. Peer is -1 when no particular rank is suspected.
	Suspect        func(peer int, cause error)
	VerdictTimeout time.Duration
}

// check returns an error for a link that describes no valid group.
func (l *Link) check() error {
	switch {
	case l.Size < 1 || l.Size > 255 || l.Rank < 0 || l.Rank >= l.Size:
		return fmt.Errorf("%w: rank %d in a group of %d ranks; a group has 1 to 255", ErrConfig, l.Rank, l.Size)
	case l.Size > 1 && len(l.Addrs) != l.Size:
		return fmt.Errorf("%w: %d addresses for %d ranks", ErrConfig, len(l.Addrs), l.Size)
	case l.Size > 1 && len(l.Token) != 32:
		return fmt.Errorf("%w: the token has %d bytes; expected 32", ErrConfig, len(l.Token))
	case l.Size > 1 && l.OpTimeout <= 0:
		return fmt.Errorf("%w: the time limit of an operation is %v; it must be positive", ErrConfig, l.OpTimeout)
	}
	return nil
}

// Culprit returns the rank of this group that a cause of failure blames, -1 if
// it is unknown or not a member. Verdicts, and errors of the groups around this
// one, use world ranks.
func (l *Link) Culprit(cause error) int {
	world := culprit(cause)
	if world < 0 || l.World == nil {
		return world
	}
	return slices.Index(l.World, world)
}

// world returns the world rank of a rank of this group.
func (l *Link) world(rank int) int {
	if rank >= 0 && rank < len(l.World) {
		return l.World[rank]
	}
	return rank
}
