package plan

import (
	"fmt"
	"math"
	"slices"

	"ringmaster/distributed"
)

// Plan says how one operation is done. It depends only on its Config and Request.
type Plan struct {
	Config  Config  // with its defaults
	Request Request // as requested
	// Algorithm, Directions, Class, and Cost, the estimate in nanoseconds.
	Choice
	Rails      int   // in use, by the block that has the most
	ChunkElems int64 // elements of a full chunk
	Elem       int   // bytes of an element
	Programs   []*Program
	most       int // rails that a block may use
}

// New plans an operation. Errors wrap distributed.ErrArgument,
// distributed.ErrConfig or ErrNoWire. An operation without any bytes has no
// programs, but a barrier has.
func New(cfg Config, req Request) (*Plan, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	return newPlan(cfg, req, func(_ int, _ Request, choose func() Choice) Choice { return choose() })
}

// newPlan is New for a configuration with its defaults. remember receives what a
// choice depends on, and returns the remembered choice or calls choose.
func newPlan(cfg Config, req Request, remember func(most int, typical Request, choose func() Choice) Choice) (*Plan, error) {
	if err := req.check(cfg.Topology.N); err != nil {
		return nil, err
	}
	ways, err := algorithmsFor(cfg, req)
	if err != nil {
		return nil, err
	}
	total := req.Bytes
	for _, s := range req.Sizes {
		total += s
	}
	if req.Op == AllGather || req.Op == ReduceScatter && req.Sizes == nil {
		total *= int64(cfg.Topology.N)
	}
	p := &Plan{Config: cfg, Request: req, Elem: req.elem(), most: math.MaxInt}
	if total <= cfg.OneRail || req.Op == Barrier {
		p.most = 1
	}
	typical := p.typical()
	p.Choice = remember(p.most, typical, func() Choice { return p.choose(ways, typical) })
	p.Rails = slices.Max(p.blocks())
	p.Class = min(p.Class, p.topClass())
	if total == 0 && req.Op != Barrier {
		return p, nil
	}
	for rail := range p.Rails {
		p.build(rail)
	}
	return p, nil
}

// part returns the place of a rank's part among all, in bytes. Without Sizes all
// parts have the same length.
func (r *Request) part(rank int) (start, n int64) {
	if r.Sizes == nil {
		return int64(rank) * r.Bytes, r.Bytes
	}
	for _, s := range r.Sizes[:rank] {
		start += s
	}
	return start, r.Sizes[rank]
}

// Choice is what the estimate decides.
type Choice struct {
	Algorithm  Algorithm
	Directions int // 2 if an even ring uses both ways to the farthest rank
	Class      int // of the greatest message
	Cost       int64
}

// typical returns the request whose estimate decides for this one. Its length is
// rounded up to one of eight in each octave, and all parts are as long as the
// longest, so that few typical requests exist and choices can be remembered.
func (p *Plan) typical() Request {
	r := p.Request
	if r.Op == AllGatherV {
		r.Op = AllGather
	}
	for _, s := range r.Sizes {
		r.Bytes = max(r.Bytes, s)
	}
	r.Sizes = nil
	r.Bytes = bucket(r.Bytes, int64(p.Elem))
	return r
}

// choose finds the cheapest algorithm for the typical request.
func (p *Plan) choose(ways []Algorithm, typical Request) Choice {
	model := *p
	model.Request = typical
	var best Choice
	var least int64
	for _, way := range ways {
		for _, directions := range directionsFor(p.Config.Topology, p.Request.Op, way) {
			q := model
			q.Algorithm, q.Directions = way, directions
			top := q.topClass()
			for k := top; k >= max(0, top-finer); k-- {
				q.Class, q.Programs = k, nil
				q.build(0)
				cost, wire := q.estimate()
				q.Cost = cost
				if score := cost + wire/8; best.Algorithm == Auto || score < least {
					best, least = q.Choice, score
				}
				if way == Direct || p.Request.Op == Barrier {
					break // the length alone decides the class
				}
			}
		}
	}
	return best
}

// finer is how many classes below the greatest a message may have. Smaller
// messages let forwarding and reducing begin sooner.
const finer = 4

// bucket rounds n up to a multiple of an eighth of its power of two, and of
// whole elements.
func bucket(n, elem int64) int64 {
	step := max(elem, 8)
	for step<<4 <= n {
		step <<= 1
	}
	return ceil(n, step) * step
}

// algorithmsFor lists the algorithms for the operation, the preferred first.
func algorithmsFor(cfg Config, req Request) ([]Algorithm, error) {
	t := cfg.Topology
	var ways []Algorithm
	switch req.Op {
	case AllSum, AllMax, AllMin:
		ways = []Algorithm{OneShot, TwoShot}
		if t.chained() {
			ways = append(ways, Chain)
		}
	case ReduceScatter:
		ways = []Algorithm{OneShot}
	case Send:
		if !t.Joined(req.From, req.To) {
			return nil, fmt.Errorf("%w: send from rank %d to rank %d in a ring %v", ErrNoWire, req.From, req.To, t.Ring)
		}
		ways = []Algorithm{Direct}
	default:
		ways = []Algorithm{Spread}
	}
	if req.Force == Auto {
		return ways, nil
	}
	for _, w := range ways {
		if w == req.Force {
			return []Algorithm{w}, nil
		}
	}
	return nil, fmt.Errorf("%w: %v is not possible by %v here, only by %v", distributed.ErrArgument, req.Op, req.Force, ways)
}

// directionsFor lists into how many parts a rail's piece may be cut.
func directionsFor(t Topology, op Collective, way Algorithm) []int {
	if t.direct() || t.N%2 == 1 || way == Chain || way == Direct || op == Barrier {
		return []int{1}
	}
	return []int{1, 2}
}

// width returns the most bytes that an element has on a wire.
func (p *Plan) width() int64 {
	if p.Algorithm == Chain && p.Request.widens() && p.Config.Topology.N > 2 {
		return 4
	}
	return int64(p.Elem)
}

// topClass returns the greatest class to consider. By the specification's rule it
// is the class of a rail's longest piece, which then fits one or two messages;
// the next class, in which it fits one message, is considered too. A send follows
// the rule.
func (p *Plan) topClass() int {
	bytes := p.longestPiece()
	k := p.Config.class(bytes)
	if p.Algorithm != Direct && k < p.Config.Cap && bytes > p.Config.payload(k) {
		k++
	}
	return k
}

// longestPiece returns the most bytes of a block that a stripe carries.
func (p *Plan) longestPiece() int64 {
	var longest int64
	for r, rails := range p.blocks() {
		bytes := p.Request.Bytes
		if p.Request.Sizes != nil {
			bytes = max(bytes, p.Request.Sizes[r])
		}
		elems := bytes / int64(p.Elem)
		if p.Algorithm == TwoShot {
			elems = ceil(elems, int64(p.Config.Topology.N))
		}
		longest = max(longest, ceil(elems, int64(rails*p.Directions)))
	}
	return longest * p.width()
}

// build adds the program of a rail.
func (p *Plan) build(rail int) {
	p.ChunkElems = p.Config.payload(p.Class) / p.width()
	b := &builder{cfg: p.Config, req: p.Request, rail: rail, blocks: p.blocks(), directions: p.Directions,
		chunk: p.ChunkElems, elem: int64(p.Elem), hop: p.Config.hop(),
		prog: &Program{Rail: rail, ChunkElems: p.ChunkElems, Elem: p.Elem, ranks: p.Config.Topology.N}}
	count := p.Request.Bytes / b.elem
	switch p.Algorithm {
	case OneShot:
		if p.Request.Op == ReduceScatter {
			b.scatter(func(q int) (int64, int64) {
				start, n := p.Request.part(q)
				return start / b.elem, n / b.elem
			}, func(int) int64 { return 0 }, false)
			break
		}
		b.reduceAll()
	case Chain:
		b.chain()
	case TwoShot:
		n := p.Config.Topology.N
		slice := func(q int) (int64, int64) { return Slice(count, q, n) }
		b.scatter(slice, func(q int) int64 { start, _ := slice(q); return start }, true)
	case Direct:
		b.direct()
	case Auto, Spread:
		switch p.Request.Op {
		case Barrier:
			b.barrier()
		case Gather:
			b.gather()
		default:
			b.spreadAll()
		}
	}
	p.Programs = append(p.Programs, b.finish())
}

// MessageBytes returns how many bytes a message with a chunk of n elements has on
// the wire, in whole frames. Both the send and the receive are posted with this
// length.
func (p *Plan) MessageBytes(n int64, wide bool) int64 {
	width := int64(p.Elem)
	if wide {
		width = 4
	}
	return ceil(max(n*width, 1)+p.Config.Tag, Frame) * Frame
}
