package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
)

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
	Rail   int       `json:"rail"` // place in the list of rails
	QPN    uint32    `json:"qpn"`
	PSN    uint32    `json:"psn"`
	LID    uint16    `json:"lid"`
	GID    verbs.GID `json:"gid"`
	Global bool      `json:"global"`
	MTU    verbs.MTU `json:"mtu"`
	Cap    int       `json:"cap"`
	Device string    `json:"device"`
	// Where room for messages is told by writing (end.told): the word that is
	// written to, and the key.
	Room    uint64 `json:"room,omitempty"`
	RoomKey uint32 `json:"room_key,omitempty"`
}

// prove makes a queue pair on every rail, connects it and sends a full-size
// token each way. It returns the rails that did not carry both, with the reason,
// the same on all ranks. The ends stay if keep and all is well; errors are those
// of a whole stage.
func (b *bootstrap) prove(rails []railPair, keep bool) (map[matrix.Attempt]string, error) {
	b.dropEnds()
	b.proofs++
	mine, err := b.makeEnds(rails)
	all, err := vote(b, "make queue pairs", mine, err)
	if err != nil {
		return nil, err
	}
	size := b.cap
	for _, list := range all {
		for _, a := range list {
			size = min(size, a.Cap)
		}
	}
	b.connectEnds(rails, all, size)
	// No rank sends before all have posted their receives.
	if _, err := vote(b, "post receives", struct{}{}, nil); err != nil {
		return nil, err
	}
	b.tokens(size)
	var failed []verdictOnRail
	for _, e := range b.ends {
		if e.bad != nil {
			failed = append(failed, verdictOnRail{e.pair.Attempt, e.bad.Error()})
		}
	}
	sort.SliceStable(failed, func(i, j int) bool { return failed[i].Attempt.String() < failed[j].Attempt.String() })
	votes, err := vote(b, "prove the rails", failed, nil)
	if err != nil {
		return nil, err
	}
	dead := map[matrix.Attempt]string{}
	for r, list := range votes {
		for _, f := range list {
			if dead[f.Attempt] == "" {
				dead[f.Attempt] = fmt.Sprintf("rank %d: %s", r, f.Why)
			}
		}
	}
	if !keep || len(dead) > 0 {
		b.dropEnds()
		return dead, nil
	}
	b.cap = size
	return dead, nil
}

// tag is how many bytes a message with data has behind it.
func (b *bootstrap) tag() int {
	if b.loses {
		return 8
	}
	return 0
}

// slot is the room of a message of class k, with its tag.
func (b *bootstrap) slot(k int) int {
	n := plan.Frame << k
	if b.loses {
		n += plan.Frame
	}
	return n
}

// drops tells whether a message without a receive is lost on the device's queue
// pairs: those of Thunderbolt hold it, reliable ones ask for it again.
func (d *device) drops() bool { return d.kind == verbs.UC && !d.frames }

// endBytes is the registered memory of an end whose messages have class k.
func (b *bootstrap) endBytes(d *device, k int) int {
	n := 2*b.rule.Slots*b.slot(k) + (sendHeads+1)*b.head
	if d.drops() {
		n += plan.Frame // the words of struct rm_conn
	}
	return n
}

// makeEnds makes this rank's queue pairs, up to INIT.
func (b *bootstrap) makeEnds(rails []railPair) ([]address, error) {
	count := map[string]int{}
	for _, p := range rails {
		if r, ok := p.of(b.link.Rank); ok {
			count[r.device]++
		}
	}
	slabs := map[string]*slab{}
	var out []address
	for i, p := range rails {
		r, ok := p.of(b.link.Rank)
		if !ok {
			continue
		}
		d := b.t.open[r.device]
		s := slabs[r.device]
		if s == nil {
			var err error
			if s, err = b.makeSlab(d, count[r.device]*b.endBytes(d, b.cap)); err != nil {
				return nil, err
			}
			slabs[r.device] = s
		}
		e := &end{rail: r, dev: d, mr: s.mr, mem: s.mem.Bytes()[s.next : s.next+b.endBytes(d, b.cap)]}
		s.next += len(e.mem)
		size, err := b.makeQP(e)
		if err != nil {
			return nil, fmt.Errorf("rail %d to rank %d: %w", r.index, r.peer, err)
		}
		var psn [4]byte
		if _, err := io.ReadFull(b.t.opts.Rand, psn[:]); err != nil {
			return nil, err
		}
		e.psn = binary.LittleEndian.Uint32(psn[:]) & 0xffffff
		a := address{Rail: i, QPN: e.qp.Num(), PSN: e.psn, LID: d.port.LID, GID: d.gid.GID, Global: d.global,
			MTU: d.port.ActiveMTU, Cap: size, Device: d.name}
		if d.drops() {
			a.Room, a.RoomKey = e.roomAddress(), e.mr.RKey()
		}
		out = append(out, a)
	}
	return out, nil
}

func (b *bootstrap) makeSlab(d *device, n int) (*slab, error) {
	mem, err := verbs.NewSlab(n)
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
func (b *bootstrap) makeQP(e *end) (int, error) {
	slots, heads := b.rule.Slots, b.head/plan.Frame
	tags := 0 // frames for them
	if b.loses {
		tags = slots
	}
	grants := 0
	if e.dev.drops() {
		grants = maxGrants
	}
	most := slots*2 + sendHeads + 1 + grants // completions that can be there at once
	cq, err := e.dev.ctx.CreateCQ(max(2*most, 32))
	if err != nil {
		return 0, err
	}
	e.cq = cq
	b.ends = append(b.ends, e) // from here on it is dropped with the others
	for k := b.cap; ; k-- {
		depth := plan.Depth(k, slots) + tags + sendHeads*heads
		if !e.dev.frames {
			depth = slots + sendHeads + grants
		}
		if depth > e.dev.attr.MaxQPWR && e.dev.attr.MaxQPWR > 0 && k > 0 {
			continue
		}
		e.qp, err = e.dev.pd.CreateQP(verbs.QPConfig{Type: e.dev.kind, SendCQ: cq, RecvCQ: cq, Caps: verbs.Caps{SendWR: depth, RecvWR: depth}})
		if err != nil {
			return 0, err
		}
		granted := e.qp.Granted()
		size := k
		if e.dev.frames {
			size, err = plan.CapFor(k, granted.SendWR-tags-sendHeads*heads, granted.RecvWR-tags-heads, slots)
		} else if min(granted.SendWR, granted.RecvWR) < depth {
			err = fmt.Errorf("%w: a queue of %d sends and %d receives was granted, %d are needed", distributed.ErrUnavailable,
				granted.SendWR, granted.RecvWR, depth)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", e.dev.name, err)
		}
		return size, e.qp.Init(1)
	}
}

// connectEnds brings the queue pairs up to RTS and posts the receive of the
// token. What fails here is a rail that does not work, not a rank.
func (b *bootstrap) connectEnds(rails []railPair, all [][]address, size int) {
	find := func(rank, rail int) (address, bool) {
		for _, a := range all[rank] {
			if a.Rail == rail {
				return a, true
			}
		}
		return address{}, false
	}
	for _, e := range b.ends {
		for i, p := range rails {
			if p != e.pair {
				continue
			}
			far, ok := find(e.peer, i)
			if !ok {
				e.bad = fmt.Errorf("%w: rank %d has no queue pair for it", distributed.ErrBootstrap, e.peer)
				continue
			}
			e.bad = b.connectEnd(e, far, size)
		}
	}
}

func (b *bootstrap) connectEnd(e *end, far address, size int) error {
	err := e.qp.RTR(verbs.Route{PeerQPN: far.QPN, PeerPSN: far.PSN, PeerLID: far.LID, PeerGID: far.GID, SGIDIndex: e.dev.gid.Index,
		Global: e.dev.global, PathMTU: min(e.dev.port.ActiveMTU, far.MTU)})
	if err != nil {
		return err
	}
	if err := e.qp.RTS(e.psn, e.dev.retries()); err != nil {
		return err
	}
	slot := b.slot(size)
	if err := e.connect(b.link.Epoch, b.rule.Slots, slot, b.head); err != nil {
		return err
	}
	if e.dev.drops() {
		if far.Room == 0 {
			return fmt.Errorf("%w: rank %d %s does not tell what receives it posts, and this side loses messages without one: both need the same type of queue pairs",
				distributed.ErrConfig, e.peer, far.Device)
		}
		e.tell(far.Room, far.RoomKey)
	}
	// First the token, then the head of the first operation.
	if _, err := e.qp.PostRecv(e.mr.Request(tokenRecv, e.offset()+b.rule.Slots*slot, slot)); err != nil {
		return err
	}
	if errno := e.postHead(); errno != 0 {
		return fmt.Errorf("%w: posting the first receive: errno %d", distributed.ErrBootstrap, errno)
	}
	return nil
}

// The wr_ids of tokens; heads and data have a kind in bits 16 to 23.
const (
	tokenSend = 0x70000
	tokenRecv = 0x80000
)

// token is the message that proves a rail: who sends it to whom over which rail
// of which group, and the same at its end.
func (b *bootstrap) token(from, to, rail, size int) []byte {
	t := make([]byte, 40)
	binary.LittleEndian.PutUint64(t, 0x4e454b4f54524d52)
	binary.LittleEndian.PutUint64(t[8:], b.session)
	binary.LittleEndian.PutUint32(t[16:], uint32(from))
	binary.LittleEndian.PutUint32(t[20:], uint32(to))
	binary.LittleEndian.PutUint32(t[24:], uint32(rail))
	binary.LittleEndian.PutUint32(t[28:], b.proofs)
	binary.LittleEndian.PutUint64(t[32:], uint64(size))
	return t
}

// tokens sends one on every rail, full size, and waits for those of the peers;
// and, where it must be told, for word of the first receive.
func (b *bootstrap) tokens(size int) {
	slot := b.slot(size)
	type state struct{ sent, came bool }
	states := make([]state, len(b.ends))
	for _, e := range b.ends {
		if e.bad != nil {
			continue
		}
		t := b.token(b.link.Rank, e.peer, e.index, slot)
		clear(e.mem[:slot])
		copy(e.mem, t)
		copy(e.mem[slot-len(t):], t)
		if _, err := e.qp.PostSend(e.mr.Request(tokenSend, e.offset(), slot)); err != nil {
			e.bad = err
		} else if errno := e.grant(); errno != 0 {
			e.bad = fmt.Errorf("%w: telling of the first receive: errno %d", distributed.ErrBootstrap, errno)
		}
	}
	deadline := time.Now().Add(b.patience)
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	var wc [8]verbs.WC
	for {
		waiting := false
		for i, e := range b.ends {
			s := &states[i]
			if e.bad != nil || s.sent && s.came && e.roomy() {
				continue
			}
			n, err := e.cq.Poll(wc[:])
			if err != nil {
				e.bad = err
				continue
			}
			if cause, failed := verbs.Cause(wc[:n]); failed {
				e.bad = b.tokenError(e, cause)
				continue
			}
			for _, c := range wc[:n] {
				switch c.ID {
				case tokenSend:
					s.sent = true
				case tokenRecv:
					s.came = true
					e.bad = b.checkToken(e, slot, c.ByteLen)
				default:
					if e.granted(c.ID) {
						continue
					}
					e.bad = fmt.Errorf("%w: a completion of nothing that was asked for (wr_id %#x)", distributed.ErrDesync, c.ID)
				}
			}
			waiting = waiting || e.bad == nil && !(s.sent && s.came && e.roomy())
		}
		if !waiting {
			return
		}
		if time.Now().After(deadline) || b.ctx.Err() != nil {
			break
		}
		<-tick.C
	}
	for i, e := range b.ends {
		switch s := states[i]; {
		case e.bad != nil || s.sent && s.came && e.roomy():
		case s.sent && s.came:
			e.bad = fmt.Errorf("%w: the peer's writes do not arrive within %v: no room for messages is told", distributed.ErrTimeout, b.patience)
		case s.came:
			e.bad = fmt.Errorf("%w: what is sent does not leave within %v: dead direction", distributed.ErrTimeout, b.patience)
		default:
			e.bad = fmt.Errorf("%w: rail %d between rank %d %s and rank %d %s: no traffic within %v (crossed cable, dead direction or bridge)",
				distributed.ErrTimeout, e.index, b.link.Rank, e.device, e.peer, e.far, b.patience)
		}
	}
}

func (b *bootstrap) tokenError(e *end, wc verbs.WC) error {
	err := verbs.NewCompletionError(wc)
	err.Op, err.Rank, err.Peer, err.Rail, err.Device = "token", b.link.Rank, e.peer, e.index, e.device
	return err
}

func (b *bootstrap) checkToken(e *end, slot int, n uint32) error {
	want := b.token(e.peer, b.link.Rank, e.index, slot)
	at := e.mem[b.rule.Slots*slot : (b.rule.Slots+1)*slot]
	if int(n) == slot && string(at[:len(want)]) == string(want) && string(at[slot-len(want):]) == string(want) {
		return nil
	}
	from, to, rail := binary.LittleEndian.Uint32(at[16:]), binary.LittleEndian.Uint32(at[20:]), binary.LittleEndian.Uint32(at[24:])
	return fmt.Errorf("%w: the token that came in %d of %d bytes is of rank %d to rank %d, rail %d: the cable leads elsewhere",
		distributed.ErrBootstrap, n, slot, from, to, rail)
}

// offset is where the memory of the end begins in its region.
func (e *end) offset() int { return cap(e.mr.Bytes()) - cap(e.mem) }

// dropEnds destroys all queue pairs, then their memory.
func (b *bootstrap) dropEnds() {
	_ = destroy(b.ends, b.slabs) // what is left behind is told when the devices are closed
	b.ends, b.slabs = nil, nil
}

// destroy gives back what ends are made of: queue pairs, memory, completion
// queues. Memory that a queue pair may still use stays.
func destroy(ends []*end, slabs []*slab) error {
	var errs []error
	held := map[*verbs.MR]bool{}
	for _, e := range ends {
		if e.qp == nil {
			continue
		}
		if err := e.qp.Destroy(); err != nil {
			errs = append(errs, err)
			held[e.mr] = true
			continue
		}
		e.disconnect()
	}
	for _, s := range slabs {
		if !held[s.mr] {
			errs = append(errs, s.free())
		}
	}
	for _, e := range ends {
		if e.cq != nil && !held[e.mr] {
			errs = append(errs, e.cq.Destroy())
		}
	}
	return errors.Join(errs...)
}
