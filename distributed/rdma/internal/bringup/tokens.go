package bringup

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// connectEnds brings the queue pairs up to RTS and posts the receive of the first
// token. A failure here means that the rail does not work, not that the rank fails.
func (b *bringup) connectEnds(pairs []railPair, all [][]address) {
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
			e.bad = b.connectEnd(e, far)
		}
	}
}

// find returns the address of a rail's end among those of its rank.
func find(list []address, rail int) (address, bool) {
	for _, a := range list {
		if a.Rail == rail {
			return a, true
		}
	}
	return address{}, false
}

func (b *bringup) connectEnd(e *end, far address) error {
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
	l := b.layout(e.dev, b.format)
	if err := e.Open(b.Link.Epoch, l); err != nil {
		return err
	}
	if l.Credits {
		if far.Credits == 0 {
			return fmt.Errorf("%w: rank %d %s does not announce its receives, so this side would lose messages: both need the same type of queue pairs",
				distributed.ErrConfig, e.Peer, far.Device)
		}
		e.UseCredits(far.Credits, far.CreditKey)
	}
	e.sent, e.received = 0, 0
	return b.expect(e, 0)
}

// expect posts the receive of a token, and behind the last token that of the first
// operation's header.
func (b *bringup) expect(e *end, rung int) error {
	l := b.layout(e.dev, b.format)
	if _, err := e.QP.PostRecv(e.MR.Request(tokenRecv, e.offset()+l.RecvOffset(), b.rungs[rung])); err != nil {
		return err
	}
	if rung == len(b.rungs)-1 {
		if errno := e.PostHeader(); errno != 0 {
			return fmt.Errorf("%w: posting the first receive: errno %d", distributed.ErrBootstrap, errno)
		}
	}
	// Settle waits until the device has what was posted here. The vote that follows
	// ensures that no rank sends before all have posted their receives.
	return e.QP.Settle()
}

// offset returns where the memory of the end begins in its region.
func (e *end) offset() int { return cap(e.MR.Bytes()) - cap(e.Mem) }

// The wr_ids of tokens. Their kinds (bits 16 to 23) are not used by the engine.
const (
	tokenSend = 0x70000
	tokenRecv = 0x80000
)

// token returns the message of size bytes that proves a rail. Its beginning and its
// end name the sender, the receiver, the rail and the group.
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

// passed reports whether an end has done its part of a step.
func (b *bringup) passed(e *end, s step) bool {
	return (!s.sends(e) || e.posted) && (!s.receives(e) || e.received > s.rung) && (!s.drain || e.sent == len(b.rungs) && e.HasCredit())
}

// tokens sends the tokens of a step and waits for those of the peers. An end that has
// received posts the receive of its next token. Ends that fail are marked bad.
func (b *bringup) tokens(ctx context.Context, s step) {
	deadline := time.Now().Add(b.Patience)
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for _, e := range b.ends {
		e.posted = false
	}
	for {
		waiting := false
		for _, e := range b.ends {
			if e.bad == nil && !b.passed(e, s) {
				e.bad = b.advance(e, s)
			}
			waiting = waiting || e.bad == nil && !b.passed(e, s)
		}
		if !waiting || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		<-tick.C
	}
	for _, e := range b.ends {
		switch {
		case e.bad != nil:
		case !b.passed(e, s):
			e.bad = b.unproved(e, s)
		case s.receives(e) && s.rung+1 < len(b.rungs):
			e.bad = b.expect(e, s.rung+1)
		}
	}
}

// advance takes completions, and sends the token of a step when the previous one has
// been sent.
func (b *bringup) advance(e *end, s step) error {
	if s.sends(e) && !e.posted && e.sent == s.rung {
		n := b.rungs[s.rung]
		t := b.token(b.Link.Rank, e.Peer, e.Rail, n)
		clear(e.Mem[:n])
		copy(e.Mem, t)
		copy(e.Mem[n-len(t):], t)
		if _, err := e.QP.PostSend(e.MR.Request(tokenSend, e.offset(), n)); err != nil {
			return err
		}
		e.posted = true
		if s.rung == len(b.rungs)-1 {
			if errno := e.SendCredit(); errno != 0 {
				return fmt.Errorf("%w: announcing the first receive: errno %d", distributed.ErrBootstrap, errno)
			}
		}
	}
	return b.pollTokens(e)
}

// pollTokens takes the completions of an end.
func (b *bringup) pollTokens(e *end) error {
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
			e.sent++
		case c.ID == tokenRecv:
			if err := b.checkToken(e, c.ByteLen); err != nil {
				return err
			}
			e.received++
		case !e.CreditSent(c.ID):
			return fmt.Errorf("%w: a completion has no request (wr_id %#x)", distributed.ErrDesync, c.ID)
		}
	}
	return nil
}

// unproved says what an end's step still lacks when the time is over.
func (b *bringup) unproved(e *end, s step) error {
	waits := s.receives(e) && e.received <= s.rung
	switch {
	case !waits && e.sent == len(b.rungs):
		return fmt.Errorf("%w: the peer's writes did not arrive within %v, so no receive is announced", distributed.ErrTimeout, b.Patience)
	case !waits:
		return fmt.Errorf("%w: sends did not complete within %v: this direction of the cable is dead", distributed.ErrTimeout, b.Patience)
	case s.rung > 0:
		return fmt.Errorf("%w: a message of %d bytes did not arrive within %v", distributed.ErrTimeout, b.rungs[s.rung], b.Patience)
	}
	return fmt.Errorf("%w: rail %d between rank %d %s and rank %d %s: no traffic within %v (crossed cable, dead direction or bridge)",
		distributed.ErrTimeout, e.Rail, b.Link.Rank, e.Device, e.Peer, e.far, b.Patience)
}

// checkToken compares the received bytes with the expected token. If the token is
// right, a completion that states another length is only noted.
func (b *bringup) checkToken(e *end, n uint32) error {
	if e.received >= len(b.rungs) {
		return fmt.Errorf("%w: received one token more than was sent", distributed.ErrDesync)
	}
	l, size := b.layout(e.dev, b.format), b.rungs[e.received]
	want := b.token(e.Peer, b.Link.Rank, e.Rail, size)
	got := e.Mem[l.RecvOffset() : l.RecvOffset()+size]
	if string(got[:len(want)]) == string(want) && string(got[size-len(want):]) == string(want) {
		if int(n) != size {
			b.oddToken = fmt.Sprintf("rail %d (%s) to rank %d: a completion stated %d bytes (byte_len) for a complete token of %d bytes",
				e.Rail, e.Device, e.Peer, n, size)
		}
		return nil
	}
	from, to, rail := binary.LittleEndian.Uint32(got[16:]), binary.LittleEndian.Uint32(got[20:]), binary.LittleEndian.Uint32(got[24:])
	return fmt.Errorf("%w: received in %d of %d bytes the token of rank %d to rank %d, rail %d: the cable leads elsewhere",
		distributed.ErrBootstrap, n, len(got), from, to, rail)
}
