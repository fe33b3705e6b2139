package rdma

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"strings"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
)

// version of the wire: ranks of another one form no group.
const version = 2

// bootstrap is a group that is being formed. All ranks go through the same
// stages with the same votes.
type bootstrap struct {
	t     *Transport
	ctx   context.Context
	link  distributed.Link
	side  distributed.Group
	child *distributed.Child // that is formed, nil for the group of an epoch
	watch *watch
	ends  []*end // those alive
	slabs []*slab

	given    matrix.Matrix           // of devices
	own      rule                    // what this rank would decide
	probed   map[matrix.Attempt]bool // what is known of cables
	patience time.Duration           // with the tokens

	matrix  matrix.Matrix // paired, without what the topology leaves out
	known   matrix.Matrix // paired
	hosts   []matrix.Host
	topo    matrix.Topology
	rule    card // of rank 0
	cap     int  // negotiated
	head    int  // bytes of the first message
	loses   bool // queue pairs are unreliable
	notes   []string
	proofs  uint32 // made so far, the same on all ranks
	session uint64 // hash of group and epoch
}

// card is what a rank says of itself first.
type card struct {
	Version int           `json:"version"`
	Matrix  matrix.Matrix `json:"matrix"`
	Host    matrix.Host   `json:"host"`
	Watch   string        `json:"watch"`
	Frames  bool          `json:"frames"`
	Loses   bool          `json:"loses"` // its queue pairs are unreliable
	rule
}

// rule is what rank 0 decides for all. A child has that of its parent.
type rule struct {
	Cap     int            `json:"cap"`
	Slots   int            `json:"slots"`
	OneRail int64          `json:"one_rail"`
	Model   plan.Model     `json:"model"`
	Force   plan.Algorithm `json:"force"`
	Head    int            `json:"head"`
	Ring    bool           `json:"ring"`
	Mesh    bool           `json:"mesh"`
	Strict  bool           `json:"strict"`
	Rules   matrix.Rules   `json:"rules"`
}

// rule is what this rank wishes for.
func (o *Options) rule() rule {
	r := rule{Cap: o.Cap, Slots: o.Slots, OneRail: o.OneRail, Model: o.Model, Force: o.Force, Head: o.Head, Ring: o.Ring, Mesh: o.Mesh,
		Strict: o.Strict, Rules: o.Rules}
	r.Rules.Normalize = true
	return r
}

func (b *bootstrap) run() (*group, error) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", b.link.GroupID, b.link.Epoch)
	b.session = h.Sum64()
	if err := b.introduce(); err != nil {
		return nil, err
	}
	if err := b.join(); err != nil {
		return nil, err
	}
	g, err := newGroup(b)
	if _, err = vote(b, "make the group", struct{}{}, err); err == nil {
		err = g.calibrate(b.ctx, b.rule.Model)
	}
	if err != nil {
		if g != nil {
			_ = g.Close() // and the side group with it
			err = fmt.Errorf("%w: %v", distributed.ErrBootstrap, err)
		}
		return nil, err
	}
	b.notes = append(b.notes, g.Topology())
	return g, nil
}

// report tells what was put right or left out, and how the ranks are joined.
func (b *bootstrap) report(who string) {
	for _, n := range b.notes {
		b.t.opts.Report(who + n)
	}
}

// introduce: every rank opens its devices, all learn of all devices, and each
// two ranks are joined by the watch.
func (b *bootstrap) introduce() error {
	o, l := &b.t.opts, &b.link
	mine := card{Version: version, Matrix: b.given, rule: b.own}
	var ln net.Listener
	err := func() error {
		if err := b.given.Check(o.MatrixFile, b.own.Rules); err != nil {
			return err
		}
		if len(b.given) != l.Size {
			return fmt.Errorf("%w: the device matrix has %d rows for %d ranks; write a row for each rank", distributed.ErrConfig, len(b.given), l.Size)
		}
		names := b.given.Devices(l.Rank)
		if err := b.t.devices(names); err != nil {
			return err
		}
		mine.Host = b.t.host(names)
		for _, n := range names {
			mine.Frames = mine.Frames || b.t.open[n].frames
			mine.Loses = mine.Loses || b.t.open[n].kind == verbs.UC
		}
		var err error
		if ln, err = listenWatch(b.ctx, b.t.listensOn()); err == nil {
			mine.Watch = ln.Addr().String()
		}
		return err
	}()
	if ln != nil {
		defer func() { _ = ln.Close() }() // also when newWatch has done it
	}
	cards, err := vote(b, "open the RDMA devices", mine, err)
	if err != nil {
		return err
	}
	b.rule = cards[0]
	addrs := make([]string, len(cards))
	frames := false
	for r, c := range cards {
		if c.Version != version {
			return b.unlike(r, "speaks version %d, rank 0 version %d: run the same build everywhere", c.Version, b.rule.Version)
		}
		if string(c.Matrix.Format()) != string(b.rule.Matrix.Format()) {
			return b.unlike(r, "has another device matrix than rank 0; give all ranks the same file")
		}
		b.hosts = append(b.hosts, c.Host)
		addrs[r] = c.Watch
		frames = frames || c.Frames
		b.loses = b.loses || c.Loses
	}
	b.head = b.rule.Head
	if b.head == 0 {
		b.head = plan.Frame
		if !frames {
			b.head = 9 * plan.Frame
		}
	}
	b.head = (max(b.head, 1) + plan.Frame - 1) / plan.Frame * plan.Frame
	if frames {
		b.head = plan.Frame // both sides must have as many frames
	}
	b.cap = b.rule.Cap
	for _, c := range cards {
		b.cap = min(b.cap, c.Cap)
	}
	b.watch, err = newWatch(b.ctx, l, ln, addrs, o.Rand)
	_, err = vote(b, "connect the watch", struct{}{}, err)
	return err
}

func (b *bootstrap) unlike(rank int, format string, args ...any) error {
	return &distributed.OpError{Op: "connect", Rank: b.link.Rank, Peer: rank, Addr: b.link.Addrs[rank], World: b.link.World,
		Err: fmt.Errorf("%w: %w: rank %d %s", distributed.ErrBootstrap, distributed.ErrConfig, rank, fmt.Sprintf(format, args...))}
}

// join pairs the rails, decides for the ring or the mesh, and proves every rail.
// A rail that does not carry its token is left out, and the rest is decided
// anew: each time there is a rail less, so it ends.
func (b *bootstrap) join() error {
	for {
		p, err := b.pair(b.probed)
		if err != nil {
			return err
		}
		topo, err := p.Matrix.Choose(matrix.Wish{Ring: b.rule.Ring, Cost: b.cost()})
		if err != nil {
			if len(p.Notes) > 0 {
				err = fmt.Errorf("%w (%s)", err, strings.Join(p.Notes, "; "))
			}
			return err // the same on all ranks
		}
		trimmed := p.Matrix.Trim(topo)
		rails := railsOf(trimmed)
		if b.child != nil {
			if _, err := vote(b, "have room for a child", struct{}{}, b.room(rails)); err != nil {
				return err
			}
		}
		dead, err := b.prove(rails, true)
		if err == nil && len(dead) > 0 {
			// A fresh pair sometimes works in one direction only; making it
			// anew has cured that.
			dead, err = b.prove(rails, true)
		}
		if err != nil {
			return err
		}
		if len(dead) == 0 {
			b.matrix, b.known, b.topo = trimmed, p.Matrix, topo
			b.notes = append(b.notes, p.Notes...)
			return nil
		}
		for a, why := range dead {
			b.probed[a] = false
			b.notes = append(b.notes, fmt.Sprintf("%v: %s", a, why))
		}
		if b.rule.Strict {
			return fmt.Errorf("%w: %s", distributed.ErrConfig, strings.Join(b.notes, "; "))
		}
	}
}

// pair finds the cables, trying where nothing else tells.
func (b *bootstrap) pair(probed map[matrix.Attempt]bool) (*matrix.Pairing, error) {
	for {
		p, err := matrix.Pair(b.rule.Matrix, b.hosts, matrix.Options{Strict: b.rule.Strict, Switched: b.rule.Rules.Switched, Probed: probed})
		if err != nil || len(p.Try) == 0 {
			return p, err
		}
		rails := make([]railPair, len(p.Try))
		for i, a := range p.Try {
			rails[i] = railPair{Attempt: a, index: i}
		}
		dead, err := b.prove(rails, false)
		if err != nil {
			return nil, err
		}
		for _, a := range p.Try {
			_, bad := dead[a]
			probed[a] = !bad
		}
	}
}

// cost compares a ring and a mesh by a sum of the size that a model's layers
// have.
func (b *bootstrap) cost() func(t matrix.Topology) int64 {
	if b.rule.Mesh {
		return nil
	}
	return func(t matrix.Topology) int64 {
		p, err := plan.New(plan.Config{Topology: topology(t, b.link.Size), Cap: b.cap, Slots: b.rule.Slots, OneRail: b.rule.OneRail},
			plan.Request{Op: plan.AllSum, Bytes: 16 << 10, DType: distributed.Float16})
		if err != nil {
			return 1 << 62
		}
		return p.Cost
	}
}

func topology(t matrix.Topology, n int) plan.Topology {
	return plan.Topology{Ring: t.Ring, N: n, Rails: t.Rails}
}

// railPair is a rail by both ends.
type railPair struct {
	matrix.Attempt
	index int // rail of the pair, or a number while trying
}

// rail is a rail as seen from this rank.
type rail struct {
	pair   railPair
	peer   int
	index  int
	device string
	far    string
}

// of gives this rank's view, false if it has no end of the rail.
func (p railPair) of(rank int) (rail, bool) {
	switch rank {
	case p.RankA:
		return rail{pair: p, peer: p.RankB, index: p.index, device: p.DeviceA, far: p.DeviceB}, true
	case p.RankB:
		return rail{pair: p, peer: p.RankA, index: p.index, device: p.DeviceB, far: p.DeviceA}, true
	}
	return rail{}, false
}

// railsOf lists the rails of a paired matrix, in the order of the ranks.
func railsOf(m matrix.Matrix) []railPair {
	var all []railPair
	for i := range m {
		for j := i + 1; j < len(m); j++ {
			for k, d := range m[i][j] {
				all = append(all, railPair{matrix.Attempt{RankA: i, DeviceA: d, RankB: j, DeviceB: m[j][i][k]}, k})
			}
		}
	}
	return all
}

// abandon frees what a bring-up that failed has made.
func (b *bootstrap) abandon() {
	b.dropEnds()
	if b.watch != nil {
		b.watch.close()
	}
}

// verdictOnRail is a rail that a rank found dead.
type verdictOnRail struct {
	Attempt matrix.Attempt `json:"attempt"`
	Why     string         `json:"why"`
}

// until is the time left of a wait.
func until(deadline time.Time) time.Duration { return max(0, time.Until(deadline)) }
