package tcp

import (
	"crypto/rand"
	"io"
	"time"
)

// Options are the choices of the transport. The zero value is good for use.
// All ranks must have the same Chunk; what else is decided for the whole group
// is decided by rank 0.
type Options struct {
	// Threshold is the length in bytes from which reductions are scattered
	// over the ranks and gathered again; shorter ones are sent whole to all.
	// 0 measures latency and bandwidth and chooses; < 0 never scatters.
	Threshold int
	// Chunk is the most payload of a frame, and the step in which large
	// operations are reduced while the rest is still on its way. A multiple
	// of 64; default 256 KiB.
	Chunk int
	// Direct is the longest part that the caller's goroutine itself writes
	// and reads; default 128 KiB, at most Chunk.
	Direct int
	// Credit is how many bytes a rank may be ahead of a peer that has not
	// shown to take part. It must fit the receive buffer of the kernel: a
	// peer that computes for long must not look like a cut link. Default: an
	// eighth of the smallest receive buffer in the group, 64 KiB at least.
	Credit int
	// Spin is how long a small operation looks for data before it sleeps; it
	// adapts below that. Default 200 µs, which outlasts the waking of a
	// processor; < 0 sleeps at once.
	Spin time.Duration
	// Buffer is the size asked for send and receive buffers; default 4 MiB.
	Buffer int
	// UserTimeout is how long sent data may stay unacknowledged before a
	// connection counts as cut; default 4 s.
	UserTimeout time.Duration
	// HandshakeTimeout bounds the proof of one connection, MaxHandshakes how
	// many are under way: one more ends the oldest. Defaults 3 s and 32.
	HandshakeTimeout time.Duration
	MaxHandshakes    int
	// Rand gives nonces; default crypto/rand. It is used by several
	// goroutines.
	Rand io.Reader
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

func (o Options) withDefaults() Options {
	o.Chunk = orDefault(o.Chunk, 256<<10)
	o.Chunk = max(o.Chunk&^63, 64)
	o.Direct = min(orDefault(o.Direct, 128<<10), o.Chunk)
	o.Spin = orDefault(o.Spin, 200*time.Microsecond)
	o.Buffer = orDefault(o.Buffer, 4<<20)
	o.UserTimeout = orDefault(o.UserTimeout, 4*time.Second)
	o.HandshakeTimeout = orDefault(o.HandshakeTimeout, 3*time.Second)
	o.MaxHandshakes = orDefault(o.MaxHandshakes, 32)
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	return o
}
