package bringup

import (
	"fmt"
	"math/bits"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/engine"
	"ringmaster/distributed/rdma/plan"
)

// format is what messages with data look like, the same on all ranks.
type format struct {
	class  int  // of the longest
	inside bool // their tag is within it, else behind it in a frame of its own
	slots  int  // under way on a rail in one direction
}

// wide is the format with messages of a class and, behind a full one, the tag.
func wide(class int) format { return format{class: class, slots: plan.DefaultSlots} }

// tight is the format whose longest message, with its tag, has Frame<<class
// bytes. Of one frame each, many are under way.
func (b *bringup) tight(class int) format {
	if !b.tagged {
		return wide(class)
	}
	return format{class: class, inside: true, slots: plan.Window(class)}
}

// bytes is the length of the longest message.
func (b *bringup) bytes(f format) int {
	n := plan.Frame << f.class
	if b.tagged && !f.inside {
		n += plan.Frame // a full chunk and its tag
	}
	return n
}

// within makes the format smaller until its messages fit in a depth of frames;
// false if none does.
func (b *bringup) within(f format, depth int) (format, bool) {
	for {
		n := depth / (b.bytes(f) / plan.Frame)
		switch {
		case n >= f.slots:
			return f, true
		case f.inside && (n >= plan.DefaultSlots || f.class == 0 && n > 0):
			f.slots = n
			return f, true
		case f.class == 0:
			return f, false
		case f.inside:
			f = b.tight(f.class - 1)
		default:
			f.class--
		}
	}
}

// agree is the format that all ends can use.
func (b *bringup) agree(all [][]address) format {
	f := b.format
	for _, list := range all {
		for _, a := range list {
			f.class, f.slots = min(f.class, a.Cap), min(f.slots, a.Slots)
		}
	}
	return f
}

// ladder lists the lengths of the tokens that prove a rail. Where messages are
// frames it is not known how long they may be. A token that fails ends its queue
// pair, so the shorter ones go before it: one frame, which all versions of macOS
// take; two, which 26.2 and 27.0 do not; the longest message. If two frames arrive
// and the longest message does not, another round has all doublings of one frame
// between them. While cables are only looked for, one frame will do; what a parent
// or an earlier proof has shown is not looked for again.
func (b *bringup) ladder(f format, keep bool) []int {
	longest := b.bytes(f)
	switch {
	case b.frames && !keep:
		return []int{plan.Frame}
	case !b.frames || b.settled:
		return []int{longest}
	}
	var all []int
	for n := plan.Frame; n < longest && (n <= 2*plan.Frame || b.fine); n *= 2 {
		all = append(all, n)
	}
	return append(all, longest)
}

// between tells whether the ladder had no rung between the longest token that was
// carried and the one that was not, though there is one.
func (b *bringup) between(carried int) bool {
	return !b.fine && carried == 2*plan.Frame && b.bytes(b.format) > 4*plan.Frame
}

// step is a part of a proof, between two votes. Where a failed receive ends a queue
// pair, what the same end sends is lost with it, and its peer would wait in vain: so
// there only one side of a rail sends in a step, and only the other waits.
type step struct {
	rung     int
	up, down bool // ends of lower ranks send to those of higher ones, and the reverse
	drain    bool // all that was sent must have left, and receives be announced
}

// sends tells whether the end sends a token in the step, receives whether it waits
// for one.
func (s step) sends(e *end) bool    { return s.up && e.lower() || s.down && !e.lower() }
func (s step) receives(e *end) bool { return s.down && e.lower() || s.up && !e.lower() }

// lower tells whether the end is that of the rail's lower rank.
func (e *end) lower() bool { return e.Peer == e.pair.RankB }

// steps are those of the proof under way.
func (b *bringup) steps() []step {
	if !b.frames {
		return []step{{up: true, down: true, drain: true}}
	}
	var all []step
	for i := range b.rungs {
		all = append(all, step{rung: i, up: true}, step{rung: i, down: true})
	}
	return append(all, step{rung: len(b.rungs) - 1, drain: true})
}

// shorten changes to messages of at most n bytes, one of the ladder.
func (b *bringup) shorten(n int) {
	b.format = b.tight(bits.Len(uint(n/plan.Frame)) - 1)
	b.settled = true
}

// layout divides the memory of an end.
func (b *bringup) layout(d *device, f format) engine.Layout {
	return engine.Layout{Slots: f.slots, SlotBytes: b.bytes(f), HeaderBytes: b.header, Credits: d.drops()}
}

// room is the memory of an end, enough for all formats that may come of its
// proofs: memory is registered once.
func (b *bringup) room(d *device) int {
	n := b.layout(d, b.format).Bytes()
	for k := 0; b.frames && !b.settled && k <= b.format.class; k++ {
		n = max(n, b.layout(d, b.tight(k)).Bytes())
	}
	return n
}

// depth is what a queue must have for a format, in frames or messages.
func (b *bringup) depth(d *device, f format) int {
	if d.frames {
		return f.slots*b.bytes(f)/plan.Frame + engine.SendHeaders*b.header/plan.Frame
	}
	return f.slots + engine.SendHeaders + creditWrites(d)
}

// creditWrites is how many writes of credits may be under way on a device.
func creditWrites(d *device) int {
	if d.drops() {
		return engine.CreditWrites
	}
	return 0
}

// noRoom is the error of a queue that is too short.
func noRoom(d *device, sends, receives, need int) error {
	return fmt.Errorf("%w: %s: a queue of %d sends and %d receives was granted, at least %d are needed", distributed.ErrUnavailable,
		d.name, sends, receives, need)
}
