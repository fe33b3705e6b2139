package bringup

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/engine"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
)

// end is this rank's end of a rail, with its queue pair.
type end struct {
	engine.Conn
	rail
	dev *device
	psn uint32
	cfg verbs.QPConfig // the configuration of its queue pair
	bad error          // why it cannot be used, nil if it works

	// Tokens of the ladder that were sent and received; posted: the token of this
	// rung was posted.
	sent, received int
	posted         bool
}

// slab is registered memory of a device. It is kept from one proof of the rails to
// the next, because on Macs each registration uses a pool that only a restart
// refills.
type slab struct {
	dev  *device
	mem  *verbs.Slab
	mr   *verbs.MR
	next int  // bytes given to ends
	held bool // a queue pair that could not be destroyed may still write to it
}

func (s *slab) free() error {
	if err := s.mr.Close(); err != nil {
		return err // left mapped, because the device may still write to it
	}
	return s.mem.Free()
}

// address is how a rank describes its end of a rail.
type address struct {
	Rail   int         `json:"rail"` // place in the list of rails
	QPN    uint32      `json:"qpn"`
	PSN    uint32      `json:"psn"`
	LID    uint16      `json:"lid"`
	GIDs   []verbs.GID `json:"gids,omitempty"` // best first
	Global bool        `json:"global"`
	MTU    verbs.MTU   `json:"mtu"`
	Cap    int         `json:"cap"`
	Slots  int         `json:"slots"` // messages in flight
	Device string      `json:"device"`
	// If credits announce receives: the word to write to, and the key of its
	// region.
	Credits   uint64 `json:"credits,omitempty"`
	CreditKey uint32 `json:"credit_key,omitempty"`
}

// tagBytes returns the length of the tag at the end of a message with data. The tag
// shows lost messages.
func (b *bringup) tagBytes() int {
	if b.tagged {
		return 8
	}
	return 0
}

// makeEnds makes this rank's queue pairs, up to INIT.
func (b *bringup) makeEnds(pairs []railPair) ([]address, error) {
	left := b.endsOf(pairs)
	for _, s := range b.slabs {
		s.next = 0
	}
	var out []address
	for i, p := range pairs {
		r, ok := p.of(b.Link.Rank)
		if !ok {
			continue
		}
		d := b.Devices.open[r.device]
		if b.lostEnd(d, r) {
			continue
		}
		e := &end{rail: r, dev: d, Conn: engine.Conn{Peer: r.peer, Rail: p.index, Device: r.device}}
		err := b.placeEnd(e, left[r.device])
		left[r.device]--
		if err != nil && b.lostEnd(d, r) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f, err := b.makeQP(e)
		if err != nil && d.ctx.Err() != nil {
			b.dropEnd(e)
			b.lostEnd(d, r)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("rail %d to rank %d: %w", e.Rail, e.Peer, err)
		}
		var psn [4]byte
		if _, err := rand.Read(psn[:]); err != nil {
			return nil, err
		}
		e.psn = binary.LittleEndian.Uint32(psn[:]) & 0xffffff
		out = append(out, e.address(i, f))
	}
	return out, nil
}

// placeEnd gives an end its memory from an existing slab, or from a new one for all
// remaining ends of the device.
func (b *bringup) placeEnd(e *end, left int) error {
	size := b.room(e.dev)
	for _, s := range b.slabs {
		if s.dev == e.dev && !s.held && s.next+size <= len(s.mem.Bytes()) {
			e.MR, e.Mem = s.mr, s.mem.Bytes()[s.next:s.next+size]
			s.next += size
			return nil
		}
	}
	mem, err := e.dev.ctx.NewSlab(left * size)
	if err != nil {
		return err
	}
	mr, err := e.dev.pd.RegMR(mem, verbs.AccessAuto)
	if err != nil {
		return errors.Join(err, mem.Free())
	}
	b.slabs = append(b.slabs, &slab{dev: e.dev, mem: mem, mr: mr})
	return b.placeEnd(e, left)
}

// address returns what the peer must know about an end: i is the rail's index in
// the list, f the greatest format that it can use.
func (e *end) address(i int, f format) address {
	d := e.dev
	a := address{Rail: i, QPN: e.QP.Num(), PSN: e.psn, LID: d.port.LID, GIDs: d.addresses(), Global: d.global,
		MTU: d.port.ActiveMTU, Cap: f.class, Slots: f.slots, Device: d.name}
	if d.drops() {
		a.Credits, a.CreditKey = e.CreditAddress(), e.MR.RKey()
	}
	return a
}

// lostEnd notes an end if its device is lost: its rail is dead, and the other rails
// continue without it. It returns false if the device is not lost.
func (b *bringup) lostEnd(d *device, r rail) bool {
	err := d.ctx.Err()
	if err != nil {
		b.ends = append(b.ends, &end{rail: r, dev: d, bad: err, Conn: engine.Conn{Peer: r.peer, Rail: r.pair.index, Device: r.device}})
	}
	return err != nil
}

// dropEnd frees a partly made end of a lost device.
func (b *bringup) dropEnd(e *end) {
	b.ends = slices.DeleteFunc(b.ends, func(x *end) bool { return x == e })
	_ = destroyEnds([]*end{e}) // its device is gone, so only memory of this process is left
}

// endsOf counts this rank's ends by device.
func (b *bringup) endsOf(pairs []railPair) map[string]int {
	count := map[string]int{}
	for _, p := range pairs {
		if r, ok := p.of(b.Link.Rank); ok {
			count[r.device]++
		}
	}
	return count
}

// enough reports whether the devices have what a child's rails need, by their
// limits and what this process uses. Only an attempt shows what other processes
// have left.
func (b *bringup) enough(pairs []railPair) error {
	ends := b.endsOf(pairs)
	for _, name := range b.Matrix.Devices(b.Link.Rank) {
		d := b.Devices.open[name]
		qps, mrs, cqs := d.ctx.Used()
		bytes := ends[name] * b.room(d)
		var short []string
		check := func(what string, used, need, most int) {
			if need > 0 && most > 0 && used+need > most {
				short = append(short, fmt.Sprintf("%d of %d %s are in use, and %d more are needed", used, most, what, need))
			}
		}
		check("queue pairs", qps, ends[name], d.attr.MaxQP)
		check("completion queues", cqs, ends[name], d.attr.MaxCQ)
		check("memory regions", mrs, min(1, ends[name]), d.attr.MaxMR)
		if d.attr.MaxMRSize > 0 && uint64(bytes) > d.attr.MaxMRSize {
			short = append(short, fmt.Sprintf("a memory region has at most %d bytes, and %d are needed", d.attr.MaxMRSize, bytes))
		}
		if len(short) > 0 {
			return fmt.Errorf("%w: %s: %s", distributed.ErrUnavailable, name, strings.Join(short, "; "))
		}
	}
	return nil
}

// makeQP makes the queues of an end and returns the format that the granted depth
// allows.
func (b *bringup) makeQP(e *end) (format, error) {
	d, f, headers := e.dev, b.format, b.header/plan.Frame
	most := f.slots*2 + engine.SendHeaders + 1 + creditWrites(d) // completions that can be queued at once
	cq, err := d.ctx.CreateCQ(max(2*most, 32))
	if err != nil {
		return f, err
	}
	e.CQ = cq
	b.ends = append(b.ends, e) // from now on dropEnds frees it with the others
	if d.frames && d.attr.MaxQPWR > 0 {
		f, _ = b.within(f, d.attr.MaxQPWR-engine.SendHeaders*headers)
	}
	depth := b.depth(d, f)
	e.cfg = verbs.QPConfig{Type: d.kind, SendCQ: cq, RecvCQ: cq, Caps: verbs.Caps{SendWR: depth, RecvWR: depth}}
	if e.QP, err = d.pd.CreateQP(e.cfg); err != nil {
		return f, err
	}
	granted := e.QP.Granted()
	fits := min(granted.SendWR, granted.RecvWR) >= depth
	if d.frames {
		f, fits = b.within(f, min(granted.SendWR-engine.SendHeaders*headers, granted.RecvWR-headers))
	}
	if !fits {
		return f, noRoom(d, granted.SendWR, granted.RecvWR, b.depth(d, f))
	}
	return f, e.QP.Init(1)
}

// dropEnds destroys all queue pairs. Closing the devices reports what cannot be
// freed.
func (b *bringup) dropEnds() {
	_ = destroyEnds(b.ends)
	for _, s := range b.slabs {
		s.held = s.held || holds(b.ends, s)
	}
	b.ends = nil
}

// drop destroys all queue pairs and their memory.
func (b *bringup) drop() error {
	err := destroyEnds(b.ends)
	for _, s := range b.slabs {
		if !s.held && !holds(b.ends, s) {
			err = errors.Join(err, s.free())
		}
	}
	b.ends, b.slabs = nil, nil
	return err
}

// holds reports whether a queue pair that could not be destroyed may still use a
// slab.
func holds(ends []*end, s *slab) bool {
	return slices.ContainsFunc(ends, func(e *end) bool { return e.QP != nil && e.MR == s.mr })
}

// destroyEnds destroys queue pairs, then completion queues; the caller frees the
// memory after them. A queue pair that cannot be destroyed keeps its completion
// queue.
func destroyEnds(ends []*end) error {
	var errs []error
	for _, e := range ends {
		if e.QP == nil {
			continue
		}
		if err := e.QP.Destroy(); err != nil {
			errs = append(errs, err)
			continue
		}
		e.QP = nil
		e.Free()
	}
	for _, e := range ends {
		if e.CQ != nil && e.QP == nil {
			errs = append(errs, e.CQ.Destroy())
		}
	}
	return errors.Join(errs...)
}
