// Package bringup makes the rails of a group: it opens the devices of this rank,
// finds which cable joins which ports, makes a queue pair on every rail, proves
// each rail by a token in both directions, and joins every two ranks by a
// liveness connection.
//
// It uses a group of another transport (the side channel) and proceeds in stages.
// Each stage ends with a vote: every rank gets what all ranks say, or all get the
// error of the first rank that has one. Votes are needed because no rank may decide
// for itself. Run does all of it and returns the Rails.
package bringup

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/engine"
	"ringmaster/distributed/rdma/internal/liveness"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/network"
)

// version is the version of the wire. Ranks with different versions form no group.
const version = 6

// Config is a rank's input to the bring-up. All ranks must have the same Matrix; the
// Rules of rank 0 apply to all.
type Config struct {
	Link    distributed.Link
	Side    *distributed.Group // carries the votes
	Host    string             // address on which to accept liveness connections
	Ports   network.Ports      // and on which ports
	Devices *Devices
	// Tools is what this host's tools report about its devices; it may be empty.
	Tools matrix.Host
	// Matrix says which devices lead to which rank; MatrixFile is its name, for
	// errors.
	Matrix     matrix.Matrix
	MatrixFile string
	Rules      Rules
	// Patience is how long a rank waits for the tokens of the rails.
	Patience time.Duration
	// Child: the parent has proved the cables of the matrix, and the members vote
	// whether their devices have the resources for more.
	Child bool
	// Encrypt makes the liveness connections travel over TLS.
	Encrypt bool
}

// Rules are decisions of rank 0 for all ranks. A child has those of its parent.
type Rules struct {
	Cap int `json:"cap"` // greatest size class of messages; less where queues are short
	// Inside: the cables carry no messages longer than the class, tag included.
	Inside  bool           `json:"inside"`
	OneRail int64          `json:"one_rail"`
	Model   plan.Model     `json:"model"` // zero: to be measured
	Force   plan.Algorithm `json:"force"`
	Ring    bool           `json:"ring"`   // prefer a ring
	Mesh    bool           `json:"mesh"`   // prefer a mesh
	Strict  bool           `json:"strict"` // fail if cables are not as in the matrix
	Pairing matrix.Rules   `json:"rules"`
}

// Rails is the result of a bring-up on a rank.
type Rails struct {
	Plan     plan.Config // the same on all ranks, except the model
	Group    uint64      // hash that names the group and its epoch
	Rules    Rules       // of rank 0
	Topology matrix.Topology
	Cables   matrix.Matrix // in use
	Known    matrix.Matrix // paired, also those that the topology leaves out
	Notes    []string      // what was corrected or left out
	Type     verbs.QPType  // of the queue pairs of this rank
	Verbs    string        // in which process this rank makes the calls of verbs
	Conns    []*engine.Conn
	Liveness *liveness.Connections

	b *bringup
}

// Vote ends a further stage: all ranks get the error of the first rank that has one.
func (r *Rails) Vote(ctx context.Context, stage string, err error) error {
	_, err = vote(ctx, r.b, stage, struct{}{}, err)
	return err
}

// WatchDevices calls lost for each lost device, with a rank that its rails lead to
// and the reason, until stop is closed. Without helper processes it returns at once,
// because no device can be lost.
func (r *Rails) WatchDevices(stop <-chan struct{}, lost func(peer int, err error)) {
	var watching sync.WaitGroup
	seen := map[*device]bool{}
	for _, e := range r.b.ends {
		if seen[e.dev] || e.dev.ctx.Lost() == nil {
			continue
		}
		seen[e.dev] = true
		watching.Go(func() {
			select {
			case <-e.dev.ctx.Lost():
				lost(e.Peer, fmt.Errorf("rail %d (%s) to %s of rank %d: %w", e.Rail, e.Device, e.far, e.Peer, e.dev.ctx.Err()))
			case <-stop:
			}
		})
	}
	watching.Wait()
}

// WatchPorts queries the ports of the devices each time look is signalled, until stop
// is closed. It calls lost for a port that is down, with a rank that its rails lead
// to. This is needed because a rank that only waits posts nothing, so no completion
// shows that its cable was pulled. (An InfiniBand port that is being reconfigured is
// not down, and its queue pairs survive that.) The call may block in the provider
// until the limit of verbs.Library. If the call fails, WatchDevices and the
// operation's deadline handle the device.
func (r *Rails) WatchPorts(look, stop <-chan struct{}, lost func(peer int, err error)) {
	ends := map[*device]*end{} // the first end of each device that can be queried
	for _, e := range r.b.ends {
		if ends[e.dev] == nil {
			ends[e.dev] = e
		}
	}
	for {
		select {
		case <-stop:
			return
		case <-look:
		}
		for _, e := range r.b.ends {
			if ends[e.dev] != e {
				continue
			}
			port, err := e.dev.ctx.Port(1)
			if err != nil {
				delete(ends, e.dev)
				continue
			}
			if port.State == verbs.PortDown {
				lost(e.Peer, fmt.Errorf("%w: rail %d (%s) to %s of rank %d: its port is DOWN: check that the cable of %s is plugged in at both ends",
					distributed.ErrUnavailable, e.Rail, e.Device, e.far, e.Peer, e.Device))
				return
			}
		}
	}
}

// Destroy frees queue pairs, memory and completion queues by bounded calls of the
// driver, and closes the liveness connections.
func (r *Rails) Destroy() error {
	r.Liveness.Close()
	return r.b.drop()
}

// bringup is the state of a bring-up. All ranks have the same stages and the same
// votes.
type bringup struct {
	Config
	liveness *liveness.Connections
	ends     []*end
	slabs    []*slab

	known  map[matrix.Attempt]bool // whether cables work, for those that were tried
	hosts  []matrix.Host           // [ranks]
	rules  card                    // of rank 0
	frames bool                    // messages are frames on some device
	format format                  // the greatest proved format that all ranks can use
	// formatProved: this bring-up or the parent has proved the format.
	formatProved    bool
	ladderComplete  bool   // the ladder has all rungs
	rungs           []int  // lengths of the tokens of the current proof
	oddToken        string // describes a token whose completion stated another length
	header          int    // bytes of the first message of an operation
	tagged          bool   // queue pairs may lose messages
	notes           []string
	triedNeighbours map[string]bool // "rank device" pairs that have asked for their neighbours, the same on all ranks
	proofs          uint32          // rounds of tokens so far, the same on all ranks
	group           uint64
}

// card is how a rank first introduces itself.
type card struct {
	Version  int           `json:"version"`
	Matrix   matrix.Matrix `json:"matrix"`
	Host     matrix.Host   `json:"host"`
	Liveness string        `json:"liveness"` // address that higher ranks dial
	Frames   bool          `json:"frames"`   // queues count frames
	Lossy    bool          `json:"lossy"`    // queue pairs are unreliable
	Rules
}

// Run brings the rails up. After an error only the devices stay open.
func Run(ctx context.Context, c Config) (*Rails, error) {
	b := &bringup{Config: c, known: map[matrix.Attempt]bool{}, triedNeighbours: map[string]bool{}}
	if c.Child {
		for _, p := range railsOf(c.Matrix) {
			b.known[p.Attempt] = true
		}
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", c.Link.GroupID, c.Link.Epoch)
	b.group = h.Sum64()
	err := b.introduce(ctx)
	var r *Rails
	if err == nil {
		r, err = b.join(ctx)
	}
	if err != nil {
		_ = b.drop() // closing the devices reports what cannot be freed
		if b.liveness != nil {
			b.liveness.Close()
		}
		return nil, err
	}
	return r, nil
}

// introduce opens the devices of every rank, exchanges the ranks' cards, and joins
// every two ranks by a liveness connection.
func (b *bringup) introduce(ctx context.Context) error {
	mine, ln, err := b.card(ctx)
	if ln != nil {
		defer func() { _ = ln.Close() }() // liveness.Connect may already have closed it
	}
	cards, err := vote(ctx, b, "open the RDMA devices", mine, err)
	if err != nil {
		return err
	}
	b.rules = cards[0]
	addrs := make([]string, len(cards))
	class := b.rules.Cap
	for r, c := range cards {
		if c.Version != version {
			return b.mismatch(r, "uses version %d of the bring-up and rank 0 version %d: run the same build everywhere", c.Version, b.rules.Version)
		}
		if string(c.Matrix.Format()) != string(b.rules.Matrix.Format()) {
			return b.mismatch(r, "has another device matrix than rank 0; give all ranks the same file")
		}
		b.hosts = append(b.hosts, c.Host)
		addrs[r] = c.Liveness
		b.frames = b.frames || c.Frames
		b.tagged = b.tagged || c.Lossy
		class = min(class, c.Cap)
	}
	b.format, b.formatProved = wide(class), b.Child
	if b.rules.Inside {
		b.format = b.tight(class)
	}
	b.header = longHeader
	if b.frames {
		b.header = plan.Frame // both sides must have as many frames
	}
	b.liveness, err = liveness.Connect(ctx, &b.Link, ln, addrs, b.Encrypt)
	_, err = vote(ctx, b, "make the liveness connections", struct{}{}, err)
	return err
}

// longHeader is the length of an operation's first message where queues count
// messages. It is long enough for a whole short operation.
const longHeader = 9 * plan.Frame

// card opens the devices and returns this rank's card.
func (b *bringup) card(ctx context.Context) (card, net.Listener, error) {
	mine := card{Version: version, Matrix: b.Matrix, Rules: b.Rules}
	if err := b.Matrix.Check(b.MatrixFile, b.Rules.Pairing); err != nil {
		return mine, nil, err
	}
	if len(b.Matrix) != b.Link.Size {
		return mine, nil, fmt.Errorf("%w: the device matrix has %d rows for %d ranks; write a row for each rank", distributed.ErrConfig, len(b.Matrix), b.Link.Size)
	}
	names := b.Matrix.Devices(b.Link.Rank)
	if err := b.Devices.use(ctx, names); err != nil {
		return mine, nil, err
	}
	mine.Host = b.Devices.host(names, b.Tools)
	for _, n := range names {
		mine.Frames = mine.Frames || b.Devices.open[n].frames
		mine.Lossy = mine.Lossy || b.Devices.open[n].kind == verbs.UC
	}
	ln, err := liveness.Listen(ctx, b.Host, b.Ports)
	if err == nil {
		mine.Liveness = ln.Addr().String()
	}
	return mine, ln, err
}

func (b *bringup) mismatch(rank int, format string, args ...any) error {
	return &distributed.OpError{Op: "connect", Rank: b.Link.Rank, Peer: rank, Addr: b.Link.Addrs[rank], World: b.Link.World, Hosts: b.Link.Hosts,
		Err: fmt.Errorf("%w: %w: rank %d %s", distributed.ErrBootstrap, distributed.ErrConfig, rank, fmt.Sprintf(format, args...))}
}

// rails returns what the bring-up made, with the connections to one peer in the order
// of the rails.
func (b *bringup) rails(known, cables matrix.Matrix, topo matrix.Topology) *Rails {
	r := &Rails{Group: b.group, Rules: b.rules.Rules, Topology: topo, Cables: cables, Known: known, Notes: b.notes, Liveness: b.liveness, Verbs: b.Devices.lib.Where(), b: b,
		Plan: b.planned(topo)}
	b.slabs = slices.DeleteFunc(b.slabs, func(s *slab) bool { return s.next == 0 && !s.held && s.free() == nil })
	if b.oddToken != "" {
		r.Notes = append(slices.Clip(r.Notes), b.oddToken)
	}
	for _, e := range b.ends {
		r.Type = e.dev.kind
		r.Conns = append(r.Conns, &e.Conn)
	}
	slices.SortStableFunc(r.Conns, func(a, b *engine.Conn) int { return a.Rail - b.Rail })
	return r
}

// planned returns the configuration of the plans.
func (b *bringup) planned(t matrix.Topology) plan.Config {
	return plan.Config{Topology: plan.Topology{Ring: t.Ring, N: b.Link.Size, Rails: t.Rails, Cables: t.Cables}, Cap: b.format.class, Slots: b.format.slots,
		Inside: b.format.inside, Tag: int64(b.tagBytes()), OneRail: b.rules.OneRail, Model: b.rules.Model}
}

// IsVote reports whether an error of Run is the same on all ranks, because it is the
// result of a vote or follows from data that all ranks have.
func IsVote(err error) bool {
	var stage *stageError
	return errors.As(err, &stage) || errors.Is(err, distributed.ErrConfig)
}
