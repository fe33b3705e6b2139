package plan

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"ringmaster/distributed"
)

// payload returns how many bytes of data a full message of class k carries.
func (c Config) payload(k int) int64 {
	if c.Inside {
		return Frame<<k - c.Tag
	}
	return Frame << k
}

// class returns the size class for a piece of n bytes: the greatest k up to Cap
// of which the piece fills a full message, otherwise 0.
func (c Config) class(n int64) int {
	k := 0
	for k < c.Cap && n >= c.payload(k+1) {
		k++
	}
	return k
}

// hop returns how many rounds an op runs behind the op that feeds it from
// another rank, so that the data has arrived. With two messages in flight one
// round is enough, because it takes longer than the latency of a wire. With a
// window of many short messages it is a quarter of the window, because 15
// messages of 4 KiB take about 9 µs at 7 GB/s, a little more than the latency of
// Thunderbolt (specification, 8.3).
func (c Config) hop() int { return max(1, c.Slots/4) }

// Window returns how many messages of a class are in flight on a wire if their
// tag is inside. On Macs 60 messages of one frame ran clean, longer ones up to
// 32 frames in all (64 KiB: 2 clean, 8 stall); two is the least for both
// directions of a slot to overlap (MESH, one source: docs/testing.md).
func Window(k int) int {
	if k == 0 {
		return 60
	}
	return max(DefaultSlots, 32>>k)
}

// Slice returns the part of n things that stripe i of count has: each has
// ceil(n/count) of them, the last ones fewer or none.
func Slice(n int64, i, count int) (off, length int64) {
	each := ceil(n, int64(count))
	off = min(int64(i)*each, n)
	return off, min(off+each, n) - off
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// fill sets the defaults.
func (c Config) fill() (Config, error) {
	if err := c.Topology.check(); err != nil {
		return c, err
	}
	if c.Cap < 0 || c.Cap > MaxClass {
		return c, fmt.Errorf("%w: size class %d is not between 0 and %d", distributed.ErrConfig, c.Cap, MaxClass)
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.OneRail == 0 {
		c.OneRail = DefaultOneRail
	}
	if c.Model == (Model{}) {
		c.Model = DefaultModel()
	}
	if c.Slots < 1 || c.Slots > MaxSlots || c.Tag < 0 || c.Tag%8 != 0 || c.Inside && c.Tag > Frame/2 || c.Model.Latency < 0 || c.Model.Rate < 1 || c.Model.Memory < 1 {
		return c, fmt.Errorf("%w: %d slots, a tag of %d bytes, model %+v", distributed.ErrConfig, c.Slots, c.Tag, c.Model)
	}
	return c, nil
}

// Digest is equal for equal configurations. Ranks compare it when they form a
// group, so that no two plan differently.
func (c Config) Digest() (uint64, error) {
	c, err := c.fill()
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	inside := int64(0)
	if c.Inside {
		inside = 1
	}
	put := func(v int64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v))) } // never fails
	for _, v := range []int64{int64(c.Topology.N), int64(c.Topology.Rails), int64(len(c.Topology.Ring)), int64(c.Cap),
		int64(c.Slots), c.Tag, inside, max(c.OneRail, -1), c.Model.Latency, c.Model.Rate, c.Model.Memory} {
		put(v)
	}
	for _, r := range c.Topology.Ring {
		put(int64(r))
	}
	for _, row := range c.Topology.Cables {
		for _, n := range row {
			put(int64(n))
		}
	}
	return h.Sum64(), nil
}

// check returns what is wrong with a request in a group of n ranks.
func (r Request) check(n int) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %v: %s", distributed.ErrArgument, r.Op, fmt.Sprintf(format, args...))
	}
	switch {
	case r.Op > Barrier:
		return bad("unknown")
	case r.Bytes < 0:
		return bad("%d bytes", r.Bytes)
	case r.Op.reduces() && r.DType.Size() == 0:
		return bad("unknown %v", r.DType)
	case r.Op.reduces() && r.Bytes%int64(r.DType.Size()) != 0:
		return bad("%d bytes are not a whole number of %v elements of %d bytes", r.Bytes, r.DType, r.DType.Size())
	case (r.Op == AllGatherV || r.Op == Gather || r.Op == ReduceScatter && r.Sizes != nil) && len(r.Sizes) != n:
		return bad("%d sizes for %d ranks", len(r.Sizes), n)
	case (r.Op == Broadcast || r.Op == Gather) && (r.Root < 0 || r.Root >= n):
		return bad("root %d in a group of %d", r.Root, n)
	case r.Op == Send && (r.From < 0 || r.From >= n || r.To < 0 || r.To >= n || r.From == r.To):
		return bad("from rank %d to rank %d in a group of %d", r.From, r.To, n)
	}
	for i, s := range r.Sizes {
		if s < 0 {
			return bad("size %d of rank %d", s, i)
		}
		if r.Op.reduces() && s%int64(r.DType.Size()) != 0 {
			return bad("the %d bytes of rank %d are not a whole number of %v elements of %d bytes", s, i, r.DType, r.DType.Size())
		}
	}
	return nil
}
