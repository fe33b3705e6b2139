package parallel

import (
	"context"
	"math/bits"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel/lanes"
)

// The exchange of the sums of many rows.

// reduce starts a reduce-scatter or an all-reduce of lanes, or between two ranks an exchange
// of packed blocks, once all ranks know what each block needs.
func (s *Sums) reduce(ctx context.Context, cut []Range) error {
	blocks := lanes.Blocks(s.rows, s.width)
	s.limits, s.layouts = grown(s.limits, blocks), grown(s.layouts, blocks)
	if kernels.ValuesMatter(s.b) {
		lanes.Measure(s.limits, s.sums[:s.rows*s.width], s.width)
	} else {
		for i := range s.limits {
			s.limits[i] = lanes.Limits{High: 24, Low: 64} // three bytes, or a lane
		}
	}
	all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s.limits))), 2*blocks)
	if err := s.group.AllMax(ctx, all, all, distributed.Uint8); err != nil {
		return err
	}
	if s.group.Size() == 2 {
		return s.swap(ctx, cut)
	}
	growth := bits.Len(uint(s.group.Size() - 1))
	for i, l := range s.limits {
		s.layouts[i] = l.Layout(growth)
	}
	n := lanes.Len(s.layouts, s.width)
	if err := s.room(&s.wire, n); err != nil {
		return err
	}
	if kernels.ValuesMatter(s.b) {
		lanes.Encode(s.wire, s.layouts, s.sums[:s.rows*s.width], s.width)
	}
	all = int32Bytes(s.wire[:n])
	if cut == nil {
		s.pending = s.group.StartAllSum(ctx, all, all, distributed.Int32)
		return nil
	}
	for r, rows := range cut {
		s.sizes[r] = 4 * lanes.Len(s.layoutsOf(rows), s.width)
	}
	n = s.sizes[s.group.Rank()] / 4
	if err := s.room(&s.got, n); err != nil {
		return err
	}
	s.pending = s.group.StartReduceScatter(ctx, int32Bytes(s.got[:n]), all, s.sizes, distributed.Int32)
	return nil
}

// swap starts an exchange in which each of two ranks gets the other's sums of the rows that
// it needs. Nothing is added on the way, so each block takes as few bytes as it can.
func (s *Sums) swap(ctx context.Context, cut []Range) error {
	lanes.Pack(s.layouts, s.limits, s.width)
	for r := range s.sizes {
		s.sizes[r] = 4 * lanes.Len(s.layoutsOf(s.sent(r, cut)), s.width)
	}
	n := (s.sizes[0] + s.sizes[1]) / 4
	if err := s.room(&s.wire, n); err != nil {
		return err
	}
	if kernels.ValuesMatter(s.b) {
		rows := s.sent(s.group.Rank(), cut)
		lanes.Encode(s.part(s.group.Rank()), s.layoutsOf(rows), s.sums[rows.Start*s.width:rows.End*s.width], s.width)
	}
	s.pending = s.group.StartAllGatherV(ctx, int32Bytes(s.wire[:n]), s.sizes)
	return nil
}

// sent are the rows that one of two ranks sends, which are those that the other one needs.
func (s *Sums) sent(rank int, cut []Range) Range {
	if cut == nil {
		return Range{End: s.rows}
	}
	return cut[1-rank]
}

// part is what one of two ranks sends.
func (s *Sums) part(rank int) []int32 {
	n := s.sizes[0] / 4
	if rank == 0 {
		return s.wire[:n]
	}
	return s.wire[n : n+s.sizes[1]/4]
}

// layoutsOf are the layouts of the blocks of rows that are reduced.
func (s *Sums) layoutsOf(rows Range) []lanes.Layout {
	return s.layouts[lanes.Blocks(rows.Start, s.width):lanes.Blocks(rows.End, s.width)]
}

// mostLanes is the greatest number of lanes of the blocks that are reduced.
func (s *Sums) mostLanes() int {
	most := 0
	for _, l := range s.layouts {
		most = max(most, l.Lanes())
	}
	return most
}

// addSwapped adds the sums of the other of two ranks to this rank's rows, which become the
// first, and reports whether one of any row needed more than one lane.
func (s *Sums) addSwapped() (wide bool) {
	most := s.mostLanes()
	if kernels.ValuesMatter(s.b) {
		own := s.sums[:s.own.Len()*s.width]
		if s.own.Start > 0 {
			copy(own, s.sums[s.own.Start*s.width:s.own.End*s.width])
		}
		lanes.Add(own, s.layoutsOf(s.own), s.part(1-s.group.Rank()), s.width, most > 2)
	}
	return most > 1
}

// takeReduced replaces the sums of this rank's rows by those of all ranks, and reports
// whether one of any row needed more than one lane.
func (s *Sums) takeReduced() (wide bool) {
	wide = s.mostLanes() > 1
	if !kernels.ValuesMatter(s.b) {
		return wide
	}
	from := s.wire
	if s.op == ReduceScatter {
		from = s.got
	}
	lanes.Replace(s.sums[:s.own.Len()*s.width], s.layoutsOf(s.own), from, s.width)
	return wide
}
