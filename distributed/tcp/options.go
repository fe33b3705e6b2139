package tcp

import (
	"cmp"
	"crypto/rand"
	"io"
	"time"

	"ringmaster/distributed/accept"
	"ringmaster/internal/network"
)

// Options are the settings of the transport. The zero value is ready to use.
// All ranks must have the same Chunk; every other decision that concerns the
// whole group is made by rank 0.
type Options struct {
	// Threshold is the length in bytes from which reductions are done as a
	// reduce-scatter and an all-gather; shorter blocks are sent whole to
	// all ranks. 0 measures latency and bandwidth and chooses; < 0 never
	// scatters.
	Threshold int
	// Chunk is the maximum payload of a frame, and the unit in which large
	// operations are reduced while the rest is still in flight. A multiple
	// of 64; default 256 KiB.
	Chunk int
	// Direct is the longest part that the caller's own goroutine writes and
	// reads; default 128 KiB, at most Chunk.
	Direct int
	// Credit is how many bytes a rank may send to a peer that has not yet reached the
	// operation. It must fit the receive buffer of the kernel, because otherwise a
	// peer that computes for a long time looks like a cut link. Default: an eighth of
	// the smallest receive buffer in the group, at least 64 KiB.
	Credit int
	// Spin is how long a small operation polls for data before it sleeps;
	// below that the time adapts. Default 200 µs, which is longer than a
	// processor takes to wake up; < 0 sleeps at once.
	Spin time.Duration
	// Buffer is the requested size of the send and receive buffers; default
	// 4 MiB.
	Buffer int
	// UserTimeout is how long sent data may stay unacknowledged before the
	// connection counts as cut; default 4 s.
	UserTimeout time.Duration
	// ReachTimeout is how long Connect tries to reach a rank before it gives up. It
	// can be short because the kernel of a host answers even if its processes are
	// busy, and because the first packet of a connection is sent three times, after
	// 0, 1 and 3 s. Default 4 s.
	ReachTimeout time.Duration
	// HandshakeTimeout bounds the handshake of one connection; MaxHandshakes bounds
	// those in progress; one more ends the oldest of the address that has the most.
	// Defaults: 3 s, and 32 or what accept.DefaultLimit leaves to strangers.
	HandshakeTimeout time.Duration
	MaxHandshakes    int
	// Ports are the ports to listen on; the first free one is used. With the zero
	// value the system chooses.
	Ports network.Ports
	// Encrypt makes all data travel over TLS 1.3 (package secure). All ranks encrypt,
	// or none. The token must then be as secret as the data.
	Encrypt bool
	// Rand is the source of nonces; default crypto/rand. Several goroutines
	// use it.
	Rand io.Reader
}

func (o Options) withDefaults() Options {
	o.Chunk = cmp.Or(o.Chunk, 256<<10)
	o.Chunk = max(o.Chunk&^63, 64)
	o.Direct = min(cmp.Or(o.Direct, 128<<10), o.Chunk)
	o.Spin = cmp.Or(o.Spin, 200*time.Microsecond)
	o.Buffer = cmp.Or(o.Buffer, 4<<20)
	o.UserTimeout = cmp.Or(o.UserTimeout, 4*time.Second)
	o.ReachTimeout = cmp.Or(o.ReachTimeout, 4*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 3*time.Second)
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, min(32, accept.DefaultLimit()))
	o.Rand = cmp.Or(o.Rand, rand.Reader)
	return o
}
