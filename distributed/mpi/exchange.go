package mpi

import (
	"fmt"
	"math"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// The tags in a group's communicator. A child has two tags of its own; see
// Child.
const (
	tagData    = 1
	tagGoodbye = 2 // always the data tag plus one
)

// partingGrace is how long after a peer's goodbye its last bytes may still be
// in flight. It is needed because over several networks MPI preserves only the
// order in which messages begin.
const partingGrace = 50 * time.Millisecond

// exchange is what one operation, or one phase of it, sends and receives.
// Received parts are either copied or reduced.
type exchange struct {
	header header
	shared []byte   // sent to every receiving peer; nil: see out
	out    [][]byte // [Size] nil for nothing
	in     []int    // [Size] bytes to receive, 0 for nothing
	always bool     // every rank sends every other a message, even for a part of no bytes

	into [][]byte // [Size] where received parts are copied, or nil to reduce them:

	with   reduce.Op // the received parts and own are reduced into target
	own    []byte
	target []byte
}

// part returns what is sent to a peer.
func (x *exchange) part(peer int) []byte {
	if x.shared != nil {
		return x.shared
	}
	if x.out == nil {
		return nil
	}
	return x.out[peer]
}

// round is a set of messages that are in flight together, one from and one to
// each peer, and the memory behind them. Memory that MPI may still write to is
// never freed or reused, so a group that failed in the middle of a transfer
// keeps it.
type round struct {
	msgs   []message // [2*Size] receives, then sends, by peer
	shared box
	out    []box    // [Size] made when needed
	in     []box    // [Size]
	blocks [][]byte // [Size]
	ranks  []int32  // [Size] in the communicator
	tag    int32
}

func newRound(ranks []int32, tag int32) round {
	size := len(ranks)
	return round{ranks: ranks, tag: tag, msgs: messages(2 * size), out: make([]box, size), in: make([]box, size), blocks: make([][]byte, size)}
}

// waitsFor reports whether a receive from a peer, or a send to it, is in
// flight.
func (r *round) waitsFor(peer int) (in, out bool) {
	n := len(r.msgs) / 2
	return r.msgs[peer].state == msgPosted, r.msgs[n+peer].state == msgPosted
}

// room makes b hold at least n bytes and replaces it if necessary; b must not
// be in use.
func room(b *box, n int) {
	if b.n < n {
		if b.p != nil {
			free(b.p)
		}
		*b = newBox(n)
	}
}

// receive adds a receive of up to n bytes to the round.
func (r *round) receive(peer, n int) {
	room(&r.in[peer], n)
	r.msgs[peer] = message{data: r.in[peer].p, count: int32(n), peer: r.ranks[peer], tag: r.tag, state: msgPost}
}

// send adds a send of n bytes of a box to the round. A first message, which has
// a header, may be buffered by MPI until the peer looks at it. Further pieces
// complete only once the peer receives them, because otherwise they would pile
// up in MPI at a peer that does not.
func (r *round) send(peer int, b box, n int, first bool) {
	how := int32(msgSendMatched)
	if first {
		how = msgSend
	}
	r.msgs[len(r.msgs)/2+peer] = message{data: b.p, count: int32(n), peer: r.ranks[peer], tag: r.tag, state: msgPost, send: how}
}

// clear makes all messages idle; none may be in flight.
func (r *round) clear() {
	clear(r.msgs)
}

// pieces returns the number of messages for a part of n bytes, the first one
// included.
func (o *Options) pieces(n int) int {
	if n <= o.First {
		return 1
	}
	return 1 + (n-o.First+o.Piece-1)/o.Piece
}

// span returns the range [from, to) of a part of n bytes that message k holds.
func (o *Options) span(n, k int) (from, to int) {
	if k == 0 {
		return 0, min(n, o.First)
	}
	from = o.First + (k-1)*o.Piece
	return min(n, from), min(n, from+o.Piece)
}

// rounds returns the number of rounds of an exchange.
func (d *driver) rounds(x *exchange) int {
	n := 1
	for p := range d.size {
		if p != d.rank {
			n = max(n, d.opts.pieces(len(x.part(p))), d.opts.pieces(x.in[p]))
		}
	}
	return n
}

// run performs an exchange; the owner calls it. If it fails, messages may still
// be in flight.
func (d *driver) run(x *exchange) error {
	rounds := d.rounds(x)
	d.load(x, 0)
	if err := d.await(&d.sets[0], x); err != nil {
		return err
	}
	d.heard = time.Now()
	d.consume(x, 0)
	if rounds > 1 {
		d.load(x, 1)
		d.post(&d.sets[1])
	}
	for k := 1; k < rounds; k++ {
		if k+1 < rounds {
			d.load(x, k+1)
			d.post(&d.sets[(k+1)%2])
		}
		if err := d.await(&d.sets[k%2], nil); err != nil {
			return err
		}
		d.consume(x, k)
	}
	return nil
}

// load prepares the messages of round k and copies the data that they send.
func (d *driver) load(x *exchange, k int) {
	set := &d.sets[k%2]
	set.clear()
	head := 0
	if k == 0 {
		head = headerSize
	}
	fill := func(b *box, part []byte) int {
		from, to := d.opts.span(len(part), k)
		n := head + to - from
		room(b, n)
		if k == 0 {
			h := x.header
			h.total = uint64(len(part))
			h.put(b.bytes())
		}
		copy(b.bytes()[head:n], part[from:to])
		return n
	}
	common := 0
	for i := 1; i < d.size; i++ {
		p := (d.rank + i) % d.size
		part := x.part(p)
		if from, to := d.opts.span(len(part), k); to > from || k == 0 && x.always {
			if x.shared == nil {
				n := fill(&set.out[p], part)
				set.send(p, set.out[p], n, k == 0)
			} else {
				if common == 0 {
					common = fill(&set.shared, part)
				}
				set.send(p, set.shared, common, k == 0)
			}
		}
		if from, to := d.opts.span(x.in[p], k); k == 0 && (to > 0 || x.always) {
			set.receive(p, headerSize+d.opts.First)
		} else if to > from {
			set.receive(p, to-from)
		}
	}
}

// post starts the messages of a round without waiting. Messages that MPI could
// not start are retried by await, which reports the error.
func (d *driver) post(set *round) {
	libProgress(d.comm, set.msgs, nil, d.stop.pointer(), true, 0, 0)
}

// await waits until all messages of a round have ended. If x is not nil, they
// are first messages, whose headers are checked as soon as they are received.
func (d *driver) await(set *round, x *exchange) error {
	checked := uint64(0)
	for {
		limit, parted := d.patience(set)
		code := libProgress(d.comm, set.msgs, &d.goodbye[0], d.stop.pointer(), x != nil, int64(d.opts.Spin), int64(limit))
		if x != nil {
			for p := range d.size {
				m := &set.msgs[p]
				if m.state != msgDone || checked&(1<<p) != 0 || code == progressError {
					continue
				}
				checked |= 1 << p
				h, err := parseHeader(m.bytes(int(m.got)), p)
				if err == nil {
					want := x.header
					want.total = uint64(x.in[p])
					err = h.check(&want, p, int(m.got)-headerSize, d.opts.First)
				}
				if err != nil {
					return &distributed.Suspicion{Peer: p, Err: err}
				}
			}
		}
		switch code {
		case progressDone:
			if !slices.ContainsFunc(set.msgs, func(m message) bool { return m.state == msgPosted }) {
				return d.count(set)
			}
		case progressStopped:
			return d.standing()
		case progressWatched:
			d.peerLeft()
		case progressLate:
			if parted >= 0 && time.Now().Before(d.op.Deadline) {
				return &distributed.Suspicion{Peer: parted, Err: fmt.Errorf("%w: it left the group: %s", distributed.ErrPeerGone, d.gone[parted].why)}
			}
			return d.late(set)
		default:
			return d.broken(set)
		}
	}
}

// count adds the messages of a round to the statistics.
func (d *driver) count(set *round) error {
	for i := range set.msgs {
		if m := &set.msgs[i]; m.state == msgDone {
			if m.send != msgReceive {
				d.op.Sent(int64(m.count))
			} else {
				d.op.Received(int64(m.got))
			}
		}
	}
	return nil
}

// patience returns how long to wait for a round at most. If the limit is due to
// a peer that has left and is still waited for, parted is that peer, else -1.
func (d *driver) patience(set *round) (limit time.Duration, parted int) {
	now := time.Now()
	limit, parted = max(d.op.Deadline.Sub(now), 0), -1
	for i := 1; i < d.size; i++ {
		p := (d.rank + i) % d.size
		if d.gone[p] == nil {
			continue
		}
		if in, out := set.msgs[p].state, set.msgs[d.size+p].state; in != msgPost && in != msgPosted && out != msgPost && out != msgPosted {
			continue
		}
		if rest := max(d.gone[p].at.Add(partingGrace).Sub(now), time.Millisecond); rest < limit {
			limit, parted = rest, p
		}
	}
	return limit, parted
}

// broken returns the error after a failure of MPI. It blames the peer of the
// message that failed, if one did.
func (d *driver) broken(set *round) error {
	err := fmt.Errorf("%w: %w", distributed.ErrPeerGone, lastError())
	for i := range set.msgs {
		if m := &set.msgs[i]; m.state == msgDone && m.got == 0 && m.send == msgReceive {
			return &distributed.Suspicion{Peer: i, Err: err}
		}
	}
	return err
}

// consume copies or reduces the data received in round k.
func (d *driver) consume(x *exchange, k int) {
	set := &d.sets[k%2]
	head := 0
	if k == 0 {
		head = headerSize
	}
	if x.into == nil {
		if x.target == nil {
			return
		}
		from, to := d.opts.span(len(x.target), k)
		if from == to {
			return
		}
		for p := range d.size {
			if p == d.rank {
				set.blocks[p] = x.own[from:to]
			} else {
				set.blocks[p] = set.in[p].bytes()[head : head+to-from]
			}
		}
		reduce.Reduce(x.with, x.header.dtype, x.target[from:to], set.blocks...)
		clear(set.blocks)
		return
	}
	for p, place := range x.into {
		if p == d.rank || x.in[p] == 0 {
			continue
		}
		if from, to := d.opts.span(len(place), k); to > from {
			copy(place[from:to], set.in[p].bytes()[head:])
		}
	}
}

// goodbyeSize is the maximum length of a goodbye: the reason, as text.
const goodbyeSize = 256

// peerLeft records the goodbye of a peer.
func (d *driver) peerLeft() {
	m := &d.goodbye[0]
	if p := slices.Index(d.ranks, m.peer); p >= 0 && d.gone[p] == nil {
		d.gone[p] = &parting{why: string(m.bytes(int(m.got))), at: time.Now()}
	}
	d.expectGoodbye()
}

// expectGoodbye prepares the watched message for the next goodbye.
func (d *driver) expectGoodbye() {
	d.goodbye[0] = message{data: d.goodbye[0].data, count: goodbyeSize, peer: -1, tag: d.tag + tagGoodbye - tagData, state: msgPost}
}

// goodbyeLimit bounds the sending of goodbyes. The limit can be short because a
// network sends such short messages eagerly.
const goodbyeLimit = 200 * time.Millisecond

// depart is the owner's last job for the group: it sends the goodbyes, cancels
// the receives that are still posted, and frees the memory that MPI has
// released.
func (d *driver) depart() {
	defer close(d.parted)
	if d.comm == nil || d.left {
		return
	}
	d.left = true
	why := d.standing().Error()
	if len(why) > goodbyeSize {
		why = why[:goodbyeSize]
	}
	never := newFlag()
	text := newBox(goodbyeSize)
	copy(text.bytes(), why)
	say := messages(d.size)
	for p := range d.size {
		if p != d.rank {
			say[p] = message{data: text.p, count: int32(len(why)), peer: d.ranks[p], tag: d.tag + tagGoodbye - tagData, state: msgPost, send: msgSend}
		}
	}
	code := libProgress(d.comm, say, nil, never.pointer(), false, math.MaxInt64, int64(goodbyeLimit))
	if code == progressDone {
		free(text.p)
		freeMessages(say)
	}
	all := [][]message{d.sets[0].msgs, d.sets[1].msgs, d.goodbye}
	for _, msgs := range all {
		for i := range msgs {
			if m := &msgs[i]; m.state == msgPosted && m.send == msgReceive {
				_ = libCancel(m) // a receive that was matched meanwhile completes by itself or never
			}
		}
	}
	for _, msgs := range all {
		for i := range msgs {
			if msgs[i].state == msgPost {
				msgs[i].state = msgIdle // was never started
			}
		}
	}
	for i := range d.sets {
		if libProgress(d.comm, d.sets[i].msgs, nil, never.pointer(), false, 0, int64(time.Millisecond)) == progressDone {
			d.sets[i].release()
		}
	}
	if libProgress(d.comm, d.goodbye, nil, never.pointer(), false, 0, int64(time.Millisecond)) == progressDone {
		free(d.goodbye[0].data)
		freeMessages(d.goodbye)
	}
	d.goodbye = nil
}

// release frees the memory of a round; none of its messages may be in flight.
func (r *round) release() {
	for _, b := range append(append([]box{r.shared}, r.out...), r.in...) {
		if b.p != nil {
			free(b.p)
		}
	}
	freeMessages(r.msgs)
	*r = round{}
}
