package bringup

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// connectEnds brings the queue pairs up to RTS and posts the receive of the
// token. What fails here is a rail that does not work, not a rank.
func (b *bringup) connectEnds(pairs []railPair, all [][]address, size int) {
	for _, e := range b.ends {
		for i, p := range pairs {
			if p != e.pair || e.bad != nil {
				continue
			}
			far, ok := find(all[e.Peer], i)
			if !ok {
				e.bad = fmt.Errorf("%w: rank %d has no queue pair for it", distributed.ErrBootstrap, e.Peer)
				continue
			}
			e.bad = b.connectEnd(e, far, size)
		}
	}
}

// find finds the address of a rail's end among those of its rank.
func find(list []address, rail int) (address, bool) {
	for _, a := range list {
		if a.Rail == rail {
			return a, true
		}
	}
	return address{}, false
}

func (b *bringup) connectEnd(e *end, far address, size int) error {
	route := verbs.Route{PeerQPN: far.QPN, PeerPSN: far.PSN, PeerLID: far.LID, Global: e.dev.global, PathMTU: min(e.dev.port.ActiveMTU, far.MTU)}
	if route.Global {
		own, gid, err := verbs.MatchGIDs(e.dev.gids, far.GIDs)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Device, err)
		}
		route.SGIDIndex, route.PeerGID = own.Index, gid
	}
	if err := e.QP.RTR(route); err != nil {
		return err
	}
	if err := e.QP.RTS(e.psn, e.dev.retries()); err != nil {
		return err
	}
	l := b.layout(e.dev, size)
	if err := e.Open(b.Link.Epoch, l); err != nil {
		return err
	}
	if l.Credits {
		if far.Credits == 0 {
			return fmt.Errorf("%w: rank %d %s does not announce its receives, and this side loses messages without one: both need the same type of queue pairs",
				distributed.ErrConfig, e.Peer, far.Device)
		}
		e.UseCredits(far.Credits, far.CreditKey)
	}
	// First the token, then the header of the first operation.
	if _, err := e.QP.PostRecv(e.MR.Request(tokenRecv, e.offset()+l.RecvOffset(), l.SlotBytes)); err != nil {
		return err
	}
	if errno := e.PostHeader(); errno != 0 {
		return fmt.Errorf("%w: posting the first receive: errno %d", distributed.ErrBootstrap, errno)
	}
	// No rank sends before all have posted their receives.
	return e.QP.Settle()
}

// offset is where the memory of the end begins in its region.
func (e *end) offset() int { return cap(e.MR.Bytes()) - cap(e.Mem) }

// The wr_ids of tokens: of kinds (bits 16 to 23) that the engine does not use.
const (
	tokenSend = 0x70000
	tokenRecv = 0x80000
)

// token is the message that proves a rail, at the beginning and at the end of a
// slot of size bytes: who sends it to whom over which rail of which group.
func (b *bringup) token(from, to, rail, size int) []byte {
	t := make([]byte, 40)
	binary.LittleEndian.PutUint64(t, 0x4e454b4f54524d52)
	binary.LittleEndian.PutUint64(t[8:], b.group)
	binary.LittleEndian.PutUint32(t[16:], uint32(from))
	binary.LittleEndian.PutUint32(t[20:], uint32(to))
	binary.LittleEndian.PutUint32(t[24:], uint32(rail))
	binary.LittleEndian.PutUint32(t[28:], b.proofs)
	binary.LittleEndian.PutUint64(t[32:], uint64(size))
	return t
}

// proof is which tokens of an end have arrived.
type proof struct{ sent, received bool }

// complete: both directions carry messages, and, with credits, writes arrive.
func (p proof) complete(e *end) bool { return p.sent && p.received && e.HasCredit() }

// tokens sends a full-size token on every rail and waits for those of the peers
// and, with credits, for the announcement of the first receive. Ends that fail
// are marked bad.
func (b *bringup) tokens(ctx context.Context, size int) {
	proofs := make([]proof, len(b.ends))
	for _, e := range b.ends {
		if e.bad != nil {
			continue
		}
		slot := b.layout(e.dev, size).SlotBytes
		t := b.token(b.Link.Rank, e.Peer, e.Rail, slot)
		clear(e.Mem[:slot])
		copy(e.Mem, t)
		copy(e.Mem[slot-len(t):], t)
		if _, err := e.QP.PostSend(e.MR.Request(tokenSend, e.offset(), slot)); err != nil {
			e.bad = err
		} else if errno := e.SendCredit(); errno != 0 {
			e.bad = fmt.Errorf("%w: announcing the first receive: errno %d", distributed.ErrBootstrap, errno)
		}
	}
	deadline := time.Now().Add(b.Patience)
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for {
		waiting := false
		for i, e := range b.ends {
			if e.bad == nil && !proofs[i].complete(e) {
				e.bad = b.pollTokens(e, &proofs[i], size)
			}
			waiting = waiting || e.bad == nil && !proofs[i].complete(e)
		}
		if !waiting {
			return
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		<-tick.C
	}
	for i, e := range b.ends {
		if e.bad == nil && !proofs[i].complete(e) {
			e.bad = b.unproved(e, proofs[i])
		}
	}
}

// pollTokens takes the completions of an end.
func (b *bringup) pollTokens(e *end, p *proof, size int) error {
	var wc [8]verbs.WC
	n, err := e.CQ.Poll(wc[:])
	if err != nil {
		return err
	}
	if cause, failed := verbs.Cause(wc[:n]); failed {
		err := verbs.NewCompletionError(cause)
		err.Op, err.Rank, err.Peer, err.Rail, err.Device = "token", b.Link.Rank, e.Peer, e.Rail, e.Device
		return err
	}
	for _, c := range wc[:n] {
		switch {
		case c.ID == tokenSend:
			p.sent = true
		case c.ID == tokenRecv:
			p.received = true
			if err := b.checkToken(e, size, c.ByteLen); err != nil {
				return err
			}
		case !e.CreditSent(c.ID):
			return fmt.Errorf("%w: a completion without a request (wr_id %#x)", distributed.ErrDesync, c.ID)
		}
	}
	return nil
}

// unproved says what is missing of an end's proof when the time is over.
func (b *bringup) unproved(e *end, p proof) error {
	switch {
	case p.sent && p.received:
		return fmt.Errorf("%w: the peer's writes do not arrive within %v: no receive is announced", distributed.ErrTimeout, b.Patience)
	case p.received:
		return fmt.Errorf("%w: what is sent does not leave within %v: dead direction", distributed.ErrTimeout, b.Patience)
	}
	return fmt.Errorf("%w: rail %d between rank %d %s and rank %d %s: no traffic within %v (crossed cable, dead direction or bridge)",
		distributed.ErrTimeout, e.Rail, b.Link.Rank, e.Device, e.Peer, e.far, b.Patience)
}

func (b *bringup) checkToken(e *end, size int, n uint32) error {
	l := b.layout(e.dev, size)
	want := b.token(e.Peer, b.Link.Rank, e.Rail, l.SlotBytes)
	got := e.Mem[l.RecvOffset() : l.RecvOffset()+l.SlotBytes]
	if int(n) == len(got) && string(got[:len(want)]) == string(want) && string(got[len(got)-len(want):]) == string(want) {
		return nil
	}
	from, to, rail := binary.LittleEndian.Uint32(got[16:]), binary.LittleEndian.Uint32(got[20:]), binary.LittleEndian.Uint32(got[24:])
	return fmt.Errorf("%w: received in %d of %d bytes the token of rank %d to rank %d, rail %d: the cable leads elsewhere",
		distributed.ErrBootstrap, n, len(got), from, to, rail)
}
