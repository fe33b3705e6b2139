package bringup

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
)

// end is this rank's end of a rail, with its queue pair.
type end struct {
	engine.Conn
	rail
	dev *device
	psn uint32
	cfg verbs.QPConfig // what its queue pair was made with
	bad error          // why it cannot be used, nil if it works
}

// slab is the registered memory of a device for one set of ends.
type slab struct {
	mem  *verbs.Slab
	mr   *verbs.MR
	next int
}

func (s *slab) free() error {
	if err := s.mr.Close(); err != nil {
		return err // the device may still write there: leave it mapped
	}
	return s.mem.Free()
}

// address is what a rank says of its end of a rail.
type address struct {
	Rail   int         `json:"rail"` // place in the list of rails
	QPN    uint32      `json:"qpn"`
	PSN    uint32      `json:"psn"`
	LID    uint16      `json:"lid"`
	GIDs   []verbs.GID `json:"gids,omitempty"` // best first
	Global bool        `json:"global"`
	MTU    verbs.MTU   `json:"mtu"`
	Cap    int         `json:"cap"`
	Device string      `json:"device"`
	// Where receives are announced by credits: the word to write to, and the
	// key of its region.
	Credits   uint64 `json:"credits,omitempty"`
	CreditKey uint32 `json:"credit_key,omitempty"`
}

// tagBytes is how many bytes a message with data ends in so that lost messages
// are noticed.
func (b *bringup) tagBytes() int {
	if b.tagged {
		return 8
	}
	return 0
}

// layout divides the memory of an end whose messages have size class k.
func (b *bringup) layout(d *device, k int) engine.Layout {
	slot := plan.Frame << k
	if b.tagged {
		slot += plan.Frame // a full chunk and its tag
	}
	return engine.Layout{Slots: plan.DefaultSlots, SlotBytes: slot, HeaderBytes: b.header, Credits: d.drops()}
}

// makeEnds makes this rank's queue pairs, up to INIT.
func (b *bringup) makeEnds(pairs []railPair) ([]address, error) {
	count := b.endsOf(pairs)
	slabs := map[string]*slab{}
	var out []address
	for i, p := range pairs {
		r, ok := p.of(b.Link.Rank)
		if !ok {
			continue
		}
		d := b.Devices.open[r.device]
		size := b.layout(d, b.cap).Bytes()
		s := slabs[r.device]
		if s == nil {
			var err error
			if s, err = b.makeSlab(d, count[r.device]*size); err != nil {
				if b.lostEnd(d, r) {
					continue
				}
				return nil, err
			}
			slabs[r.device] = s
		}
		e := &end{rail: r, dev: d, Conn: engine.Conn{Peer: r.peer, Rail: p.index, Device: r.device, MR: s.mr, Mem: s.mem.Bytes()[s.next : s.next+size]}}
		s.next += size
		class, err := b.makeQP(e)
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
		out = append(out, e.address(i, class))
	}
	return out, nil
}

// address is what the peer must know of an end: i is the rail's place in the list,
// class the greatest size class of its messages.
func (e *end) address(i, class int) address {
	d := e.dev
	a := address{Rail: i, QPN: e.QP.Num(), PSN: e.psn, LID: d.port.LID, GIDs: d.addresses(), Global: d.global,
		MTU: d.port.ActiveMTU, Cap: class, Device: d.name}
	if d.drops() {
		a.Credits, a.CreditKey = e.CreditAddress(), e.MR.RKey()
	}
	return a
}

// lostEnd notes an end whose device is lost: its rail is dead, and the other rails
// go on without it. false: the device is not lost.
func (b *bringup) lostEnd(d *device, r rail) bool {
	err := d.ctx.Err()
	if err != nil {
		b.ends = append(b.ends, &end{rail: r, dev: d, bad: err, Conn: engine.Conn{Peer: r.peer, Rail: r.pair.index, Device: r.device}})
	}
	return err != nil
}

// dropEnd frees an end of a lost device that was made in part.
func (b *bringup) dropEnd(e *end) {
	b.ends = slices.DeleteFunc(b.ends, func(x *end) bool { return x == e })
	_ = destroy([]*end{e}, nil) // its device is gone: only memory of this process is left
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

func (b *bringup) makeSlab(d *device, n int) (*slab, error) {
	mem, err := d.ctx.NewSlab(n)
	if err != nil {
		return nil, err
	}
	mr, err := d.pd.RegMR(mem, verbs.AccessAuto)
	if err != nil {
		return nil, errors.Join(err, mem.Free())
	}
	s := &slab{mem: mem, mr: mr}
	b.slabs = append(b.slabs, s)
	return s, nil
}

// makeQP makes the queues of an end and returns the size class that the granted
// depth allows.
func (b *bringup) makeQP(e *end) (int, error) {
	const slots = plan.DefaultSlots
	headers := b.header / plan.Frame
	tags := 0 // frames for them
	if b.tagged {
		tags = slots
	}
	credits := 0
	if e.dev.drops() {
		credits = engine.CreditWrites
	}
	most := slots*2 + engine.SendHeaders + 1 + credits // completions that can be there at once
	cq, err := e.dev.ctx.CreateCQ(max(2*most, 32))
	if err != nil {
		return 0, err
	}
	e.CQ = cq
	b.ends = append(b.ends, e) // from here on it is dropped with the others
	for k := b.cap; ; k-- {
		depth := plan.Depth(k, slots) + tags + engine.SendHeaders*headers
		if !e.dev.frames {
			depth = slots + engine.SendHeaders + credits
		}
		if depth > e.dev.attr.MaxQPWR && e.dev.attr.MaxQPWR > 0 && k > 0 {
			continue
		}
		e.cfg = verbs.QPConfig{Type: e.dev.kind, SendCQ: cq, RecvCQ: cq, Caps: verbs.Caps{SendWR: depth, RecvWR: depth}}
		e.QP, err = e.dev.pd.CreateQP(e.cfg)
		if err != nil {
			return 0, err
		}
		granted := e.QP.Granted()
		class := k
		if e.dev.frames {
			class, err = plan.CapFor(k, granted.SendWR-tags-engine.SendHeaders*headers, granted.RecvWR-tags-headers, slots)
		} else if min(granted.SendWR, granted.RecvWR) < depth {
			err = fmt.Errorf("%w: a queue of %d sends and %d receives was granted, %d are needed", distributed.ErrUnavailable,
				granted.SendWR, granted.RecvWR, depth)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", e.dev.name, err)
		}
		return class, e.QP.Init(1)
	}
}

// enough tells whether the devices have what a child's rails need, by what they
// say of themselves and what this process uses; whether other processes have left
// it, only trying shows.
func (b *bringup) enough(pairs []railPair) error {
	ends := b.endsOf(pairs)
	for _, name := range b.Matrix.Devices(b.Link.Rank) {
		d := b.Devices.open[name]
		qps, mrs, cqs := d.ctx.Used()
		bytes := ends[name] * b.layout(d, b.cap).Bytes()
		var short []string
		check := func(what string, used, need, most int) {
			if need > 0 && most > 0 && used+need > most {
				short = append(short, fmt.Sprintf("%d of %d %s are in use, %d more are needed", used, most, what, need))
			}
		}
		check("queue pairs", qps, ends[name], d.attr.MaxQP)
		check("completion queues", cqs, ends[name], d.attr.MaxCQ)
		check("memory regions", mrs, min(1, ends[name]), d.attr.MaxMR)
		if d.attr.MaxMRSize > 0 && uint64(bytes) > d.attr.MaxMRSize {
			short = append(short, fmt.Sprintf("a memory region has %d bytes at most, %d are needed", d.attr.MaxMRSize, bytes))
		}
		if len(short) > 0 {
			return fmt.Errorf("%w: %s: %s", distributed.ErrUnavailable, name, strings.Join(short, "; "))
		}
	}
	return nil
}

// dropEnds destroys all queue pairs, then their memory.
func (b *bringup) dropEnds() {
	_ = destroy(b.ends, b.slabs) // what cannot be freed is reported when the devices are closed
	b.ends, b.slabs = nil, nil
}

// destroy gives back what ends are made of: queue pairs, memory, completion
// queues. Memory that a queue pair may still use stays.
func destroy(ends []*end, slabs []*slab) error {
	var errs []error
	held := map[*verbs.MR]bool{}
	for _, e := range ends {
		if e.QP == nil {
			continue
		}
		if err := e.QP.Destroy(); err != nil {
			errs = append(errs, err)
			held[e.MR] = true
			continue
		}
		e.Free()
	}
	for _, s := range slabs {
		if !held[s.mr] {
			errs = append(errs, s.free())
		}
	}
	for _, e := range ends {
		if e.CQ != nil && !held[e.MR] {
			errs = append(errs, e.CQ.Destroy())
		}
	}
	return errors.Join(errs...)
}
