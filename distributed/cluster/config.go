package cluster

import (
	"cmp"
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
	// Encrypt makes the control connections use TLS 1.3; it needs a Key. The Transport has a
	// setting of its own.
	Encrypt   bool
	Transport distributed.Transport

	// ConnectTimeout is how long the leader waits for all ranks to join, and how long a
	// follower looks for its leader: at first, and after it lost it, with the model
	// loaded. Default 60 s.
	ConnectTimeout time.Duration
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
	// Open makes Size the most ranks of the group and not its number: the leader forms an
	// epoch as soon as the ranks that are there can run the model, itself included, and takes
	// in others as they come. It needs Continue.
	Open bool
	// RecoverTimeout is how long after a loss the group counts as recovering: see
	// Leader.Recovering. Default 2 min.
	RecoverTimeout time.Duration
	// RejoinAfter is how long a rank stays out after three losses within ten minutes. Default 10
	// min.
	RejoinAfter time.Duration
	// DrainTimeout is how long a follower that leaves, or that a person drains, waits for an epoch
	// without it to run. Default 30 s.
	DrainTimeout time.Duration

	// Examine answers requests that an Examiner makes with the cluster's key. Only the leader uses
	// it; nil refuses all requests. Up to four calls may run at once, because a call continues
	// after the connection of its request has ended. ctx ends with the leader.
	Examine func(ctx context.Context, request []byte) []byte

	Log *slog.Logger // default slog.Default()

	// Formed, if set, is called on the leader when an epoch that replaces another begins to run. It
	// must not block.
	Formed func(Formation)

	// Irreplaceable, if not empty, says why no new process can replace a lost rank, and what to do
	// instead. The group then ends when a lost rank has not returned within ConnectTimeout.
	Irreplaceable string
}

// withDefaults replaces zero values with their defaults.
func (c Config) withDefaults() Config {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 60*time.Second)
	c.PeerTimeout = cmp.Or(c.PeerTimeout, 4*time.Second)
	c.FormTimeout = cmp.Or(c.FormTimeout, 10*time.Minute)
	c.WorkTimeout = cmp.Or(c.WorkTimeout, 5*time.Minute)
	c.RecoverTimeout = cmp.Or(c.RecoverTimeout, 2*time.Minute)
	c.RejoinAfter = cmp.Or(c.RejoinAfter, 10*time.Minute)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// heartbeat is the interval between two heartbeats.
func (c Config) heartbeat() time.Duration { return c.PeerTimeout / 16 }

// tick is the interval at which timeouts are checked.
func (c Config) tick() time.Duration { return c.PeerTimeout / 40 }

// connectLimit bounds connecting the data plane. It can be short because connecting starts when
// every rank is ready.
func (c Config) connectLimit() time.Duration { return max(c.PeerTimeout, 20*time.Second) }

// connectVerdict is when the leader gives up an epoch that does not connect. That is later than the
// ranks themselves give up, so that their reports, which say why, have arrived.
func (c Config) connectVerdict() time.Duration {
	return c.connectLimit() + max(c.PeerTimeout, 2*linkGrace)
}

// link returns the link of one rank to the group of the given ranks, without the fields that name
// the epoch. All ranks, those passed to suspect too, are ranks of the world.
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
