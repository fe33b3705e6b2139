package plan

import (
	"errors"
	"fmt"

	"ringmaster/distributed"
)

// Constants of the wire (collectives specification, 4.1).
const (
	// Frame is the unit of messages in bytes.
	Frame = 4096
	// MaxClass is the greatest size class; a message of class k has Frame<<k
	// bytes.
	MaxClass = 7
	// DefaultSlots is how many messages are in flight on a wire.
	DefaultSlots = 2
	// MaxSlots is the maximum of Config.Slots.
	MaxSlots = 64
	// DefaultOneRail is the number of bytes up to which an operation uses only
	// one rail.
	DefaultOneRail = 32 << 10
)

// ErrNoWire says that no cable joins two ranks, so the operation needs another
// transport.
var ErrNoWire = errors.New("no cable between the ranks")

// Collective is an operation of a group.
type Collective uint8

// The collectives. Bytes of a Request means for
//   - AllSum, AllMax, AllMin: the vector,
//   - AllGather: the part of one rank,
//   - ReduceScatter: the same, if there are no Sizes,
//   - AllGatherV, Gather: nothing, see Sizes,
//   - Broadcast, Send: the buffer,
//   - Barrier: nothing.
const (
	AllSum Collective = iota
	AllMax
	AllMin
	ReduceScatter
	AllGather
	AllGatherV
	Gather // to Root
	Broadcast
	Send // of From to To; Recv is the other end of the same plan
	Barrier
)

var collectives = [...]string{"all_sum", "all_max", "all_min", "reduce_scatter", "all_gather", "all_gather_v",
	"gather", "broadcast", "send", "barrier"}

func (c Collective) String() string {
	if int(c) < len(collectives) {
		return collectives[c]
	}
	return fmt.Sprintf("collective %d", uint8(c))
}

// reduces reports whether elements are combined.
func (c Collective) reduces() bool { return c <= ReduceScatter }

// Algorithm is a way to do a collective; see the package comment.
type Algorithm uint8

// The algorithms. Auto lets the estimate decide.
const (
	Auto Algorithm = iota
	OneShot
	TwoShot
	Chain
	Spread
	Direct
)

var algorithms = [...]string{"auto", "one_shot", "two_shot", "chain", "spread", "direct"}

func (a Algorithm) String() string {
	if int(a) < len(algorithms) {
		return algorithms[a]
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// Topology is how the ranks are joined.
type Topology struct {
	// Ring lists the ranks in the order of the cables, each joined to the next
	// and the last to the first; it need not be the order of the ranks. nil
	// means a mesh, in which all are joined to all.
	Ring  []int
	N     int // ranks
	Rails int // cables that each joined pair has at least, W
	// Cables has the number of cables of each joined pair, [rank][rank]; nil if
	// each has Rails.
	Cables [][]int
}

// Mesh joins all of n ranks by rails cables each.
func Mesh(n, rails int) Topology { return Topology{N: n, Rails: rails} }

// Ring joins n ranks in their order by rails cables each.
func Ring(n, rails int) Topology {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return Topology{Ring: order, N: n, Rails: rails}
}

func (t Topology) check() error {
	if t.N < 2 || t.Rails < 1 {
		return fmt.Errorf("%w: %d ranks with %d rails; a group over cables has at least 2 ranks and 1 rail", distributed.ErrConfig, t.N, t.Rails)
	}
	seen := make([]bool, t.N)
	for _, r := range t.Ring {
		if len(t.Ring) != t.N || r < 0 || r >= t.N || seen[r] {
			return fmt.Errorf("%w: ring %v is not an order of %d ranks", distributed.ErrConfig, t.Ring, t.N)
		}
		seen[r] = true
	}
	return t.checkCables()
}

// direct reports whether every pair is joined, as in a mesh or a ring of 2 or
// 3.
func (t Topology) direct() bool { return t.Ring == nil || t.N <= 3 }

// Joined reports whether ranks a and b have a cable.
func (t Topology) Joined(a, b int) bool {
	if a == b {
		return false
	}
	return t.direct() || len(t.path(a, b, 0)) == 1
}

// path lists the ranks after a on the shorter way to b. Of two equally short
// ways direction 0 goes up the ring, direction 1 down.
func (t Topology) path(a, b, direction int) []int {
	if t.direct() {
		return []int{b}
	}
	at := make([]int, t.N)
	for i, r := range t.Ring {
		at[r] = i
	}
	up := (at[b] - at[a] + t.N) % t.N
	step, hops := 1, up
	if down := t.N - up; down < up || down == up && direction == 1 {
		step, hops = t.N-1, down
	}
	way := make([]int, 0, hops)
	for i := at[a]; len(way) < hops; {
		i = (i + step) % t.N
		way = append(way, t.Ring[i])
	}
	return way
}

// Model has the measured speed of a group's wires (specification, 11.2). All
// ranks have rank 0's numbers.
type Model struct {
	Latency int64 // ns of a small message, one way, posting and polling included (a)
	Rate    int64 // bytes/s of a rail in one direction (B)
	Memory  int64 // bytes/s that one core copies or reduces
}

// DefaultModel is Thunderbolt 5 by published measurements (specification, 8.3).
func DefaultModel() Model { return Model{Latency: 6000, Rate: 8e9, Memory: 20e9} }

// Config is what a group agrees on when it is formed.
type Config struct {
	Topology Topology
	Cap      int   // greatest class that all ranks can use, 0 to MaxClass
	Slots    int   // messages in flight on a wire, 0 for DefaultSlots
	OneRail  int64 // bytes up to which one rail is used; 0 for DefaultOneRail, negative for none
	Model    Model // the zero Model is DefaultModel
	// Tag is how many bytes the engine puts behind the data of a message, so
	// that lost messages are noticed. A full chunk then has one more frame.
	Tag int64
	// Inside keeps the tag within the message of a class: a full chunk has Tag
	// bytes less, and no message is longer than Frame<<Cap. Otherwise chunks
	// have Frame<<class bytes, and a full one with its tag has one more frame.
	Inside bool
}

// Request is one operation.
type Request struct {
	Op    Collective
	Bytes int64             // see Collective
	DType distributed.DType // of a reduction; others count bytes
	Sizes []int64           // AllGatherV, Gather, ReduceScatter: bytes of each rank's part
	Root  int               // Broadcast, Gather
	From  int               // Send
	To    int               // Send
	// Force uses an algorithm whatever it costs; Auto chooses the cheapest.
	Force Algorithm
}

// elem is the length in bytes of an element.
func (r Request) elem() int {
	if r.Op.reduces() {
		return r.DType.Size()
	}
	return 1
}

// widens reports whether partial results are float32 although elements are not.
func (r Request) widens() bool {
	return (r.Op == AllSum || r.Op == ReduceScatter) &&
		(r.DType == distributed.Float16 || r.DType == distributed.BFloat16)
}
