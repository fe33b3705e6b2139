package bringup

import (
	"fmt"
	"math/bits"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/engine"
	"ringmaster/distributed/rdma/plan"
)

// format is the format of messages with data, the same on all ranks.
type format struct {
	class  int  // of the longest
	inside bool // their tag is within it, otherwise behind it in its own frame
	slots  int  // in flight on a rail in one direction
}

// wide returns the format with messages of a class and, behind a full one, the tag.
func wide(class int) format { return format{class: class, slots: plan.DefaultSlots} }

// tight returns the format in which the longest message has Frame<<class bytes with
// its tag. If a message is only one frame, many are in flight.
func (b *bringup) tight(class int) format {
	if !b.tagged {
		return wide(class)
	}
	return format{class: class, inside: true, slots: plan.Window(class)}
}

// bytes returns the length of the longest message.
func (b *bringup) bytes(f format) int {
	n := plan.Frame << f.class
	if b.tagged && !f.inside {
		n += plan.Frame // a full chunk and its tag
	}
	return n
}

// within reduces the format until its messages fit in a depth of frames; false if no
// format does.
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

// agree returns the format that all ends can use.
func (b *bringup) agree(all [][]address) format {
	f := b.format
	for _, list := range all {
		for _, a := range list {
			f.class, f.slots = min(f.class, a.Cap), min(f.slots, a.Slots)
		}
	}
	return f
}

// ladder lists the lengths of the tokens that prove a rail. It has several where
// messages consist of frames, because the longest possible message is then unknown.
// Shorter tokens come first, because a failed token ends its queue pair: one frame,
// which all versions of macOS carry; two, which 26.2 and 27.0 do not; the longest
// message. If two frames arrive and the longest message does not, another round
// tries all doublings of one frame between them. One frame is enough while cables
// are only searched for. A length that a parent or an earlier proof has shown is not
// proved again.
func (b *bringup) ladder(f format, keep bool) []int {
	longest := b.bytes(f)
	switch {
	case b.frames && !keep:
		return []int{plan.Frame}
	case !b.frames || b.formatProved:
		return []int{longest}
	}
	var all []int
	for n := plan.Frame; n < longest && (n <= 2*plan.Frame || b.ladderComplete); n *= 2 {
		all = append(all, n)
	}
	return append(all, longest)
}

// between reports whether the ladder skipped a possible length between the longest
// token that was carried and the one that was not.
func (b *bringup) between(carried int) bool {
	return !b.ladderComplete && carried == 2*plan.Frame && b.bytes(b.format) > 4*plan.Frame
}

// step is a part of a proof between two votes. In a step only one side of a rail
// sends and only the other waits if a failed receive ends a queue pair, because then
// the sends of the same end are lost too, and its peer would wait without result.
type step struct {
	rung     int
	up, down bool // ends of lower ranks send to those of higher ones, and the reverse
	drain    bool // all sends must have completed, and receives be announced
}

// sends reports whether the end sends a token in the step, receives whether it waits
// for one.
func (s step) sends(e *end) bool    { return s.up && e.lower() || s.down && !e.lower() }
func (s step) receives(e *end) bool { return s.down && e.lower() || s.up && !e.lower() }

// lower reports whether the end belongs to the rail's lower rank.
func (e *end) lower() bool { return e.Peer == e.pair.RankB }

// steps returns the steps of the current proof.
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

// shorten changes to messages of at most n bytes, a length of the ladder.
func (b *bringup) shorten(n int) {
	b.format = b.tight(bits.Len(uint(n/plan.Frame)) - 1)
	b.formatProved = true
}

// layout divides the memory of an end.
func (b *bringup) layout(d *device, f format) engine.Layout {
	return engine.Layout{Slots: f.slots, SlotBytes: b.bytes(f), HeaderBytes: b.header, Credits: d.drops()}
}

// room returns the memory of an end. It is enough for all formats that its proofs
// may choose, because memory is registered once.
func (b *bringup) room(d *device) int {
	n := b.layout(d, b.format).Bytes()
	for k := 0; b.frames && !b.formatProved && k <= b.format.class; k++ {
		n = max(n, b.layout(d, b.tight(k)).Bytes())
	}
	return n
}

// depth returns the queue depth that a format needs, in frames or messages.
func (b *bringup) depth(d *device, f format) int {
	if d.frames {
		return f.slots*b.bytes(f)/plan.Frame + engine.SendHeaders*b.header/plan.Frame
	}
	return f.slots + engine.SendHeaders + creditWrites(d)
}

// creditWrites returns how many writes of credits may be in flight on a device.
func creditWrites(d *device) int {
	if d.drops() {
		return engine.CreditWrites
	}
	return 0
}

// noRoom returns the error of a queue that is too short.
func noRoom(d *device, sends, receives, need int) error {
	return fmt.Errorf("%w: %s: a queue of %d sends and %d receives was granted, but each needs at least %d", distributed.ErrUnavailable,
		d.name, sends, receives, need)
}
