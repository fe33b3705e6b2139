package plan

import "slices"

// estimate runs the program of rail 0, which has the longest pieces, on the
// model of the wires. A message takes the latency plus its bytes at the rate of
// the rail. A wire carries one message after the other, with at most Slots in
// flight. One core of a rank copies and reduces for all rails, at the rate of its
// memory. All numbers are integers, so that all hosts choose the same. For many
// rounds it runs two prefixes and extrapolates linearly; the work of the cores is a sum.
//
// wire is the time without the work of the cores. It decides between two
// algorithms that use the cores about equally.
func (p *Plan) estimate() (total, wire int64) {
	// Two prefixes in the steady state: all ops have begun, and all slots have
	// been used.
	hop := int64(p.Config.hop())
	short := 12 * hop
	if hop > 1 {
		short += p.Programs[0].lag()
	}
	long := short + 12*hop
	rounds := p.Programs[0].Rounds()
	if rounds <= long {
		wire = p.run(rounds)
	} else {
		a, b := p.run(short), p.run(long)
		wire = b + (b-a)*(rounds-long)/(long-short)
	}
	// A core does the ready work in any order, but never two pieces at once.
	return max(wire, p.core()), wire
}

// core returns how long the core of the busiest rank works, in ns.
func (p *Plan) core() int64 {
	prog := p.Programs[0]
	core := make([]int64, p.Config.Topology.N)
	for i := range prog.Ops {
		o := &prog.Ops[i]
		chunks := prog.Chunks(i)
		if chunks == 0 {
			continue
		}
		work := func(rank int, times int64) {
			of := func(elems int64) int64 { return elems * prog.width(o.Wide) * times * 1e9 / p.Config.Model.Memory }
			core[rank] += (of(prog.ChunkElems)*(chunks-1) + of(o.Elems-(chunks-1)*prog.ChunkElems)) * int64(o.rails)
		}
		switch {
		case o.Kind != Move:
			work(o.To, o.reads())
		case o.Write.Space == Slot:
			work(o.From, 1)
		default:
			work(o.From, 1)
			work(o.To, 1)
		}
	}
	return slices.Max(core)
}

// reads returns how often a Reduce or a Copy reads the memory of its result.
func (o *Op) reads() int64 { return int64(max(1, len(o.Inputs)-1)) }

// run returns the time in ns of the first rounds.
func (p *Plan) run(rounds int64) int64 {
	prog, m, n := p.Programs[0], p.Config.Model, p.Config.Topology.N
	type lane struct {
		free int64   // when the next message may begin
		last []int64 // when the slots are free, by message
		seen int64
	}
	wires := make([]lane, n*n)
	done := make([][]int64, len(prog.Ops)) // by chunk: at To
	sent := make([][]int64, len(prog.Ops)) // by chunk: at From
	slots := int64(p.Config.Slots)
	// ready returns when all waits of a chunk at a rank are over
	ready := func(rank int, after []Dep, c int64) int64 {
		var t int64
		for _, d := range after {
			at := done[d.Op]
			if prog.Ops[d.Op].From == rank && prog.Ops[d.Op].To != rank {
				at = sent[d.Op]
			}
			if k := c - int64(d.Back); k >= 0 && k < int64(len(at)) {
				t = max(t, at[k])
			}
		}
		return t
	}
	work := func(from, bytes int64) int64 { return from + bytes*1e9/m.Memory }
	var end int64
	for t := range rounds {
		for i := range prog.Ops {
			o := &prog.Ops[i]
			c := t - int64(o.Lag)
			if c < 0 || c >= prog.Chunks(i) {
				continue
			}
			elems := min(prog.ChunkElems, o.Elems-c*prog.ChunkElems)
			bytes := elems * prog.width(o.Wide)
			if o.Kind != Move {
				at := work(ready(o.To, o.WriteAfter, c), bytes*o.reads())
				done[i] = append(done[i], at)
				end = max(end, at)
				continue
			}
			w := &wires[o.From*n+o.To]
			begin := ready(o.From, o.ReadAfter, c)
			if w.seen >= slots {
				begin = max(begin, w.last[w.seen%slots])
			}
			begin = work(begin, bytes)
			sent[i] = append(sent[i], begin)
			begin = max(begin, w.free)
			w.free = begin + p.MessageBytes(elems, o.Wide)*1e9/m.Rate
			at := w.free + m.Latency
			if w.last == nil {
				w.last = make([]int64, slots)
			}
			w.last[w.seen%slots] = at
			w.seen++
			if o.Write.Space != Slot {
				at = work(max(at, ready(o.To, o.WriteAfter, c)), bytes)
			}
			done[i] = append(done[i], at)
			end = max(end, at)
		}
	}
	return end
}
