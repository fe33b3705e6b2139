package plan

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// The simulator executes the local programs of all ranks as an engine would,
// with slots, messages and completions, one event after the other in an order
// that a seed decides. It stops when no event is possible; everything must then
// be done.

type message struct {
	op    int
	chunk int64
	data  []byte
}

// simWire is one direction between two ranks on a rail.
type simWire struct {
	send, recv     Cursor
	posted         int64 // receives posted by the receiver
	total          int64
	sent, consumed int64
	landed         int64     // messages that met a receive
	finished       int64     // send completions
	flight         []message // sent, with completion and arrival outstanding
	slots          []message // arrived, in order
	nextSend       *message  // the next message of the cursor
	nextRecv       *message
}

type simRank struct {
	l    *Local
	done []int64
	// arrived counts the messages of a held receive that have come.
	arrived  []int64
	src, dst []byte
	scratch  []byte
}

type sim struct {
	t     *testing.T
	p     *Plan
	rng   *rand.Rand
	slots int
	ranks []*simRank
	wires map[[2]int]*simWire
	order []*[2]int
}

// simulate runs the plan on all rails; src and dst are by rank.
func simulate(t *testing.T, p *Plan, src, dst [][]byte, seed uint64) {
	t.Helper()
	n := p.Config.Topology.N
	for _, prog := range p.Programs {
		locals := make([]*Local, n)
		for r := range n {
			locals[r] = prog.Local(r)
		}
		simulateRail(t, p, locals, src, dst, seed+uint64(prog.Rail))
	}
}

func simulateRail(t *testing.T, p *Plan, locals []*Local, src, dst [][]byte, seed uint64) {
	t.Helper()
	s := &sim{t: t, p: p, rng: rand.New(rand.NewPCG(seed, 7)), slots: p.Config.Slots, wires: map[[2]int]*simWire{}}
	for r, l := range locals {
		x := &simRank{l: l, done: make([]int64, len(l.Ops)), arrived: make([]int64, len(l.Ops)),
			src: src[r], dst: dst[r], scratch: make([]byte, l.Scratch)}
		for i := range x.scratch {
			x.scratch[i] = 0xa5
		}
		s.ranks = append(s.ranks, x)
	}
	for r, l := range locals {
		for _, w := range l.Sends {
			key := [2]int{r, w.Peer}
			s.wires[key] = &simWire{send: l.Walk(w), total: w.Messages}
			s.order = append(s.order, &key)
		}
	}
	for r, l := range locals {
		for _, w := range l.Recvs {
			x := s.wires[[2]int{w.Peer, r}]
			require.NotNil(t, x, "rank %d receives from %d, which does not send", r, w.Peer)
			require.Equal(t, x.total, w.Messages, "messages of wire %d to %d", w.Peer, r)
			x.recv = l.Walk(w)
			x.posted = int64(prepost(w.Messages, s.slots))
		}
	}
	for _, w := range s.wires {
		w.fetchSend()
		w.fetchRecv()
	}
	s.run()
	for r, x := range s.ranks {
		for i := range x.l.Ops {
			require.Equal(t, x.l.Ops[i].Chunks, x.done[i], "blocked: rank %d op %d %+v", r, i, x.l.Ops[i])
		}
	}
	for _, w := range s.wires {
		require.Equal(t, []int64{w.total, w.total, w.total, w.total}, []int64{w.posted, w.sent, w.consumed, w.finished})
		require.Empty(t, w.slots)
	}
}

func (w *simWire) fetchSend() {
	w.nextSend = nil
	if op, c, ok := w.send.Next(); ok {
		w.nextSend = &message{op: op, chunk: c}
	}
}

func (w *simWire) fetchRecv() {
	w.nextRecv = nil
	if op, c, ok := w.recv.Next(); ok {
		w.nextRecv = &message{op: op, chunk: c}
	}
}

// run processes events until none is possible.
func (s *sim) run() {
	for {
		var can []func()
		for _, key := range s.order {
			w, from, to := s.wires[*key], s.ranks[key[0]], s.ranks[key[1]]
			if m := w.nextSend; m != nil && w.sent-w.finished < int64(s.slots) && s.ready(from, m.op, m.chunk) {
				can = append(can, func() { s.send(w, from, m) })
			}
			if len(w.flight) > 0 && w.posted > w.landed {
				can = append(can, func() { s.arrive(w, to) })
			}
			if w.finished < w.landed {
				can = append(can, func() { w.finished++ })
			}
			if m := w.nextRecv; m != nil && len(w.slots) > 0 && !to.l.Ops[m.op].Held && s.ready(to, m.op, m.chunk) {
				can = append(can, func() { s.consume(w, to, m) })
			}
		}
		for _, x := range s.ranks {
			for i := range x.l.Ops {
				o := &x.l.Ops[i]
				if (o.Kind == LocalReduce || o.Kind == LocalCopy) && x.done[i] < o.Chunks && s.ready(x, i, x.done[i]) {
					can = append(can, func() { s.compute(x, i, x.done[i]) })
				}
			}
		}
		if len(can) == 0 {
			return
		}
		can[s.rng.IntN(len(can))]()
	}
}

func (s *sim) ready(x *simRank, op int, c int64) bool {
	require.Equal(s.t, x.done[op], c, "chunks of an op come in order")
	for _, d := range x.l.Ops[op].After {
		count := x.done[d.Op]
		if x.l.Ops[d.Op].Held {
			count = x.arrived[d.Op]
		}
		if need := min(c-int64(d.Back)+1, x.l.Ops[d.Op].Chunks); count < need {
			return false
		}
	}
	return true
}

// bytes is the memory of a chunk.
func (x *simRank) bytes(r Ref, o *LocalOp, c int64, wide bool) []byte {
	width := int64(x.l.Elem)
	if wide {
		width = 4
	}
	n, at := o.ChunkLen(c)*width, r.At(c)
	switch r.Space {
	case Src:
		return x.src[at : at+n]
	case Dst:
		return x.dst[at : at+n]
	case Scratch:
		return x.scratch[at : at+n]
	case None, Slot:
	}
	return make([]byte, n)
}

func (s *sim) send(w *simWire, x *simRank, m *message) {
	o := &x.l.Ops[m.op]
	m.data = append([]byte(nil), x.bytes(o.Read, o, m.chunk, o.Wide)...)
	require.LessOrEqual(s.t, s.p.MessageBytes(o.ChunkLen(m.chunk), o.Wide), int64(Frame)<<s.p.Class, "message within its class")
	w.flight = append(w.flight, *m)
	w.sent++
	x.done[m.op]++
	w.fetchSend()
}

func (s *sim) arrive(w *simWire, to *simRank) {
	m := w.flight[0]
	w.flight = w.flight[1:]
	w.landed++
	// The receiver knows the op of the message only by its position.
	cursor := w.recv
	want := *w.nextRecv
	for range w.slots {
		op, c, ok := cursor.Next()
		require.True(s.t, ok)
		want = message{op: op, chunk: c}
	}
	o := &to.l.Ops[want.op]
	width := int64(to.l.Elem)
	if o.Wide {
		width = 4
	}
	require.Len(s.t, m.data, int(o.ChunkLen(want.chunk)*width), "sender and receiver agree about the length")
	w.slots = append(w.slots, message{op: want.op, chunk: want.chunk, data: m.data})
	require.LessOrEqual(s.t, len(w.slots), s.slots)
	if o.Held && len(w.slots) == 1 {
		to.arrived[want.op]++
	}
}

// consume takes the first slot of the wire.
func (s *sim) consume(w *simWire, to *simRank, m *message) {
	o := &to.l.Ops[m.op]
	if !o.Held {
		copy(to.bytes(o.Write, o, m.chunk, o.Wide), w.slots[0].data)
	}
	to.done[m.op]++
	w.slots = w.slots[1:]
	if postsNext(w.consumed, w.total, s.slots) {
		w.posted++
	}
	w.consumed++
	w.fetchRecv()
	// A held message counts as arrived when it is the first of its wire.
	if len(w.slots) > 0 && to.l.Ops[w.nextRecv.op].Held {
		to.arrived[w.nextRecv.op]++
	}
}

func (s *sim) compute(x *simRank, op int, c int64) {
	o := &x.l.Ops[op]
	if o.Kind == LocalCopy {
		copy(x.bytes(o.Write, o, c, false), x.bytes(o.Read, o, c, false))
		x.done[op]++
		return
	}
	var blocks [][]byte
	var wide []bool
	for _, in := range o.Inputs {
		if in.Recv >= 0 {
			blocks = append(blocks, s.held(x, in.Recv).slots[0].data)
		} else {
			blocks = append(blocks, append([]byte(nil), x.bytes(in.Ref, o, c, in.Wide)...))
		}
		wide = append(wide, in.Wide)
	}
	combine(s.p.Request, x.bytes(o.Write, o, c, o.Wide), o.Wide, blocks, wide)
	x.done[op]++
	for _, in := range o.Inputs {
		if in.Recv >= 0 {
			w := s.held(x, in.Recv)
			require.Equal(s.t, in.Recv, w.nextRecv.op)
			require.Equal(s.t, c, w.nextRecv.chunk)
			s.consume(w, x, w.nextRecv)
		}
	}
}

func (s *sim) held(x *simRank, recv int) *simWire {
	return s.wires[[2]int{x.l.Ops[recv].Peer, x.l.Rank}]
}

// combine reduces one chunk. It uses package reduce if no block is wide;
// otherwise it adds in float32.
func combine(req Request, out []byte, outWide bool, blocks [][]byte, wide []bool) {
	op := map[Collective]reduce.Op{AllSum: reduce.Sum, ReduceScatter: reduce.Sum, AllMax: reduce.Max, AllMin: reduce.Min}[req.Op]
	any := outWide
	for _, w := range wide {
		any = any || w
	}
	if !any {
		reduce.Reduce(op, req.DType, out, blocks...)
		return
	}
	le := binary.LittleEndian
	value := func(b []byte, wide bool, i int) float32 {
		switch {
		case wide:
			return math.Float32frombits(le.Uint32(b[4*i:]))
		case req.DType == distributed.Float16:
			return float16.Frombits(le.Uint16(b[2*i:])).Float32()
		}
		return math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16)
	}
	n := len(out) / 2
	if outWide {
		n = len(out) / 4
	}
	for i := range n {
		acc := value(blocks[0], wide[0], i)
		for k, b := range blocks[1:] {
			acc += value(b, wide[k+1], i)
		}
		switch {
		case outWide:
			le.PutUint32(out[4*i:], math.Float32bits(acc))
		case acc != acc && req.DType == distributed.Float16:
			le.PutUint16(out[2*i:], 0x7e00)
		case acc != acc:
			le.PutUint16(out[2*i:], 0x7fc0)
		case req.DType == distributed.Float16:
			le.PutUint16(out[2*i:], float16.Fromfloat32(acc).Bits())
		default:
			bits := math.Float32bits(acc)
			le.PutUint16(out[2*i:], uint16((bits+0x7fff+bits>>16&1)>>16))
		}
	}
}

func (p *Plan) String() string {
	return fmt.Sprintf("%v by %v, N %d ring %v, %d bytes of %v, %d rails, %d directions, class %d", p.Request.Op, p.Algorithm,
		p.Config.Topology.N, p.Config.Topology.Ring, p.Request.Bytes, p.Request.DType, p.Rails, p.Directions, p.Class)
}
