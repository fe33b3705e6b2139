package cluster

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/control"
)

// Config is what both the leader and a follower need. A duration of zero stands
// for its default.
type Config struct {
	Hello       Hello  // of this rank; Data and Process are filled in
	Coordinator string // HOST:PORT of rank 0
	Key         []byte // shared secret of the cluster (control.ReadKey); empty: no authentication
	// Encrypt has the control connections travel over TLS 1.3; it needs a Key. The
	// Transport is told on its own.
	Encrypt   bool
	Transport distributed.Transport

	// ConnectTimeout is how long the leader waits for all ranks to join, and a
	// follower to reach its leader. Default 60 s.
	ConnectTimeout time.Duration
	// OrphanTimeout is how long a follower that has been admitted looks for its
	// leader, with the model loaded, after it has lost it. Default ConnectTimeout.
	OrphanTimeout time.Duration
	// PeerTimeout is how long a rank may be silent before it counts as lost.
	// Default 4 s.
	PeerTimeout time.Duration
	// FormTimeout bounds Program.Form, which loads the model. Default 10 min.
	FormTimeout time.Duration
	// WorkTimeout bounds one piece of work, and one operation of the group.
	// Default 5 min.
	WorkTimeout time.Duration

	// OnLoss is what the leader does when a rank is lost. Default Continue.
	OnLoss OnLoss
	// MinRanks is the fewest ranks with which Continue forms an epoch. Default 1.
	MinRanks int
	// RecoverTimeout is how long after a loss the group counts as recovering: see
	// Leader.Recovering. Default 2 min.
	RecoverTimeout time.Duration
	// RejoinAfter is how long a rank stays out that was lost three times in ten
	// minutes. Default 10 min.
	RejoinAfter time.Duration
	// DrainTimeout is how long a follower that leaves, or that a person drains,
	// waits until an epoch without it runs. Default 30 s.
	DrainTimeout time.Duration

	// Examine answers a request of somebody who has the cluster's key, made by Examiner:
	// of the leader only; nil: it examines nothing. When somebody has gone in the midst
	// of a request, the next may come before it has returned, four in all at most. ctx ends with the
	// leader.
	Examine func(ctx context.Context, request []byte) []byte

	Log *slog.Logger // default slog.Default()

	// Formed, if set, is told by the leader of each epoch that has taken the place of
	// another, when it begins to run. It must not block.
	Formed func(Formation)

	// Irreplaceable, if not empty, says why no new process can take the place
	// of a lost rank, and what to do instead. The group then ends when a lost
	// rank has not come back within ConnectTimeout.
	Irreplaceable string
}

// withDefaults replaces zero values with their defaults.
func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.ConnectTimeout, 60 * time.Second}, {&c.PeerTimeout, 4 * time.Second},
		{&c.FormTimeout, 10 * time.Minute}, {&c.WorkTimeout, 5 * time.Minute},
		{&c.RecoverTimeout, 2 * time.Minute}, {&c.RejoinAfter, 10 * time.Minute}, {&c.DrainTimeout, 30 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if c.OrphanTimeout == 0 {
		c.OrphanTimeout = c.ConnectTimeout
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// heartbeat is the interval between two heartbeats.
func (c Config) heartbeat() time.Duration { return c.PeerTimeout / 16 }

// tick is the interval at which timeouts are checked.
func (c Config) tick() time.Duration { return c.PeerTimeout / 40 }

// connectLimit bounds connecting the data plane. It starts when every rank is
// ready, so it normally takes moments.
func (c Config) connectLimit() time.Duration { return max(c.PeerTimeout, 20*time.Second) }

// connectVerdict is when the leader gives up an epoch that does not connect: after the
// ranks themselves, so that their reports, which say why, have arrived.
func (c Config) connectVerdict() time.Duration {
	return c.connectLimit() + max(c.PeerTimeout, 2*linkGrace)
}

// link is that of a rank of the world in the group of some ranks, without what names
// the epoch. suspect gets ranks of the world.
func (c Config) link(rank int, ranks []int, suspect func(peer int, cause error)) distributed.Link {
	l := distributed.Link{
		Rank: slices.Index(ranks, rank), Size: len(ranks), OpTimeout: c.WorkTimeout, VerdictTimeout: c.PeerTimeout,
		Suspect: func(peer int, cause error) {
			if peer >= 0 && peer < len(ranks) {
				peer = ranks[peer]
			}
			suspect(peer, cause)
		},
	}
	if len(ranks) < c.Hello.Size {
		l.World = ranks
	}
	return l
}

// control returns the options of the control connections.
func (c Config) control() control.Options {
	return control.Options{Key: c.Key, Encrypt: c.Encrypt, WriteTimeout: c.PeerTimeout / 4}
}
