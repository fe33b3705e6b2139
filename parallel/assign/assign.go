// Package assign decides which rank computes each chosen expert of a step if several ranks
// have it. Every rank decides alike from the ids of the chosen experts, so that ranks
// exchange nothing for it.
//
//	a := assign.New(256, []assign.Rank{{Own: [2]int{0, 128}, Copies: all}, {Own: [2]int{128, 256}, Copies: all}})
//	a.Step(to, layer, ids) // to[slot] is a rank that has expert ids[slot]
package assign

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	// MaxRanks is the most ranks of an Assigner.
	MaxRanks = 64
	// MaxSpeed is the greatest Rank.Speed.
	MaxSpeed = 1 << 10
	// ReadRows is what it takes to read the weights of an expert, in rows that are
	// multiplied with them: a token of bench decodes in 5 times the time of a further row
	// of a prefill (docs/distributed-benchmark.md).
	ReadRows = 4
	// None stands for the rank of a slot if its id is not an expert.
	None = 0xff
)

// Rank says what a rank has.
type Rank struct {
	Own    [2]int // first of its own experts, and the one after the last
	Copies []Set  // of other ranks' experts: [layers], or one for all layers, or none
	Speed  int    // at which it computes experts, 1 to MaxSpeed; only ratios matter. 0 is 1
}

// Load is what a rank computes in a layer of a step.
type Load struct{ Slots, Experts int }

// Assigner assigns the slots of a step to ranks, with integers alone. Layers may have
// different copies. One goroutine uses it.
type Assigner struct {
	owner   []uint8    // [experts]
	holders [][]uint64 // [layers+1 or 1][experts] bit r: rank r has it
	time    []int64    // [ranks] of a row in an expert
	copies  bool

	// Of one call.
	mask  []uint64 // [experts] holders in this layer
	count []int32  // [experts] rows
	first []int32  // [experts] its first part that still takes rows, -1 for none
	order []uint64 // what sorts the chosen experts
	parts []part
	busy  []int64  // [ranks] time
	seen  []uint64 // [experts] bit r: rank r computes it
	loads []Load   // [ranks]
	via   [MaxRanks]step
	turn  int // of ranks that would be ready at the same time, the one at or after this gets a part
}

// part is some rows of an expert that one rank computes.
type part struct {
	expert, rows, left int32
	next               int32 // the next part of this expert, -1 for none
	rank               uint8
}

// step is how a search came to a rank: by moving a part from another rank.
type step struct {
	part int32 // -1: not reached
	from uint8
}

// How says how the slots of a step are assigned.
type How uint8

// The values of How.
const (
	Owners   How = iota // by Assigner.Fixed
	Together            // by Assigner.Step
	ByRow               // by Assigner.Rows
)

// Rule is how the slots of the layers of a step are assigned to ranks.
type Rule struct {
	By  *Assigner
	How How
}

// Assign assigns the slots of a step, ids [rows][used], to [rows][used].
func (r Rule) Assign(to []uint8, layer int, ids []int32, used int) []Load {
	switch r.How {
	case Together:
		return r.By.Step(to, layer, ids)
	case ByRow:
		return r.By.Rows(to, layer, ids, used)
	}
	return r.By.Fixed(to, ids)
}

// New makes an Assigner for so many experts. Each must be in Own of one rank.
func New(experts int, ranks []Rank) *Assigner {
	a := &Assigner{owner: make([]uint8, experts), time: make([]int64, len(ranks)), count: make([]int32, experts),
		first: slices.Repeat([]int32{-1}, experts), busy: make([]int64, len(ranks)), seen: make([]uint64, experts), loads: make([]Load, len(ranks))}
	layers, fastest := 1, 1
	for _, r := range ranks {
		layers, fastest = max(layers, len(r.Copies)), max(fastest, r.Speed)
	}
	if layers > 1 {
		layers++ // the last one is every layer after those of the lists
	}
	a.holders = make([][]uint64, layers)
	for l := range a.holders {
		a.holders[l] = make([]uint64, experts)
	}
	for r, x := range ranks {
		const scale = 1 << 10 // so that the quotient has three digits
		a.time[r] = int64(scale * fastest / max(x.Speed, 1))
		for e := x.Own[0]; e < x.Own[1]; e++ {
			a.owner[e] = uint8(r)
		}
		for l, of := range a.holders {
			for e := range of {
				if e >= x.Own[0] && e < x.Own[1] || CopiesOf(x.Copies, l).Has(e) {
					of[e] |= 1 << r
				}
				a.copies = a.copies || bits.OnesCount64(of[e]) > 1
			}
		}
	}
	return a
}

// CopiesOf is the set of a layer in Rank.Copies.
func CopiesOf(sets []Set, layer int) Set {
	switch {
	case len(sets) == 1:
		return sets[0]
	case layer < len(sets):
		return sets[layer]
	}
	return nil
}

// Copies reports whether any expert is on several ranks.
func (a *Assigner) Copies() bool { return a.copies }

// Step assigns the slots of a step, ids [slots], to [slots]: all together, so that the
// rank that takes longest takes the least time. A rank reads an expert once however many
// rows choose it, so the rows of an expert stay together unless it pays to divide them.
// What a rank gets does not depend on the order of the rows. It returns what each rank
// computes, valid until the next call.
func (a *Assigner) Step(to []uint8, layer int, ids []int32) []Load {
	a.begin(layer)
	a.turn = 0
	clear(a.count)
	for _, e := range ids {
		if a.valid(e) {
			a.count[e]++
		}
	}
	a.order = a.order[:0]
	for e, n := range a.count {
		if n > 0 {
			// Most rows first, then what fewest ranks have, then by number.
			a.order = append(a.order, uint64(1<<31-int64(n))<<32|uint64(bits.OnesCount64(a.mask[e]))<<24|uint64(e))
		}
	}
	slices.Sort(a.order)
	a.owners()
	limit := slices.Max(a.busy)
	a.drop()
	for _, only := range []bool{true, false} { // what has one holder is decided
		for _, key := range a.order {
			e := expertOf(key)
			if one := a.mask[e]&(a.mask[e]-1) == 0; one == only {
				a.add(e, a.count[e], a.least(e, a.count[e]))
			}
		}
	}
	if a.improve(); slices.Max(a.busy) > limit { // rare, with few copies
		a.drop()
		a.owners()
		a.improve()
	}
	a.fill(to, ids)
	return a.total(to, ids)
}

func expertOf(key uint64) int32 { return int32(key & (1<<24 - 1)) }

// owners gives all chosen experts to their owners.
func (a *Assigner) owners() {
	for _, key := range a.order {
		e := expertOf(key)
		a.add(e, a.count[e], a.owner[e])
	}
}

// Rows assigns the slots of a step, ids [rows][used], to [rows][used]: each row by itself,
// so that what a rank adds up for a row does not depend on the other rows. An expert stays
// with its owner unless another rank makes the row take less time.
func (a *Assigner) Rows(to []uint8, layer int, ids []int32, used int) []Load {
	for at := 0; at+used <= len(ids); at += used {
		a.begin(layer)
		row := ids[at : at+used]
		a.order = a.order[:0]
		for _, e := range row {
			if a.valid(e) {
				a.order = append(a.order, uint64(e))
			}
		}
		slices.Sort(a.order)
		a.turn = 0
		for _, e := range a.order {
			a.add(int32(e), 1, a.owner[e])
			a.turn += int(e)
		}
		a.turn %= len(a.busy) // otherwise low ranks would get more of every row
		a.improve()
		a.fill(to[at:], row)
	}
	return a.total(to, ids)
}

// Fixed assigns every slot to the owner of its expert.
func (a *Assigner) Fixed(to []uint8, ids []int32) []Load {
	for slot, e := range ids {
		if to[slot] = None; a.valid(e) {
			to[slot] = a.owner[e]
		}
	}
	return a.total(to, ids)
}

func (a *Assigner) valid(e int32) bool { return e >= 0 && int(e) < len(a.owner) }

// begin forgets the last call.
func (a *Assigner) begin(layer int) {
	a.drop()
	a.mask = a.holders[min(layer, len(a.holders)-1)]
}

// drop takes all parts away.
func (a *Assigner) drop() {
	for _, p := range a.parts {
		a.first[p.expert] = -1
	}
	a.parts = a.parts[:0]
	clear(a.busy)
}

// add gives rows of an expert to a rank.
func (a *Assigner) add(e, rows int32, rank uint8) {
	a.parts = append(a.parts, part{expert: e, rows: rows, next: a.first[e], rank: rank})
	a.first[e] = int32(len(a.parts) - 1)
	a.busy[rank] += a.takes(rank, ReadRows+int64(rows))
}

func (a *Assigner) takes(rank uint8, rows int64) int64 { return rows * a.time[rank] }

// least is the holder of an expert that would have finished its rows first; of equal ones
// the owner, then the lower rank.
func (a *Assigner) least(e, rows int32) uint8 {
	best, end := a.owner[e], int64(0)
	end = a.busy[best] + a.takes(best, ReadRows+int64(rows))
	for m := a.mask[e]; m != 0; m &= m - 1 {
		r := uint8(bits.TrailingZeros64(m))
		if t := a.busy[r] + a.takes(r, ReadRows+int64(rows)); t < end {
			best, end = r, t
		}
	}
	return best
}

// improve moves parts away from the busiest rank while that helps. The number of moves is
// bounded, because the time is.
func (a *Assigner) improve() {
	if !a.copies {
		return
	}
	for range 8 * len(a.busy) {
		busiest := 0
		for r, t := range a.busy {
			if t > a.busy[busiest] {
				busiest = r
			}
		}
		if a.busy[busiest] == 0 || !a.shift(uint8(busiest)) && !a.chain(uint8(busiest)) {
			return
		}
	}
}

// move is rows of a part for another rank.
type move struct {
	part int
	to   uint8
	rows int32
	end  int64 // when the later of both ranks would be ready
}

// shift moves a part, or some of its rows, from a rank to the one where it helps most, and
// reports whether any does. Dividing a part must gain at least what it costs to read the
// expert once more.
func (a *Assigner) shift(from uint8) bool {
	best := move{end: a.busy[from]}
	for i := range a.parts {
		p := &a.parts[i]
		if p.rank != from || p.rows == 0 { // another has all of its rows
			continue
		}
		for m := a.mask[p.expert] &^ (1 << from); m != 0; m &= m - 1 {
			to := uint8(bits.TrailingZeros64(m))
			read := int64(ReadRows)
			if a.partOn(p.expert, to) >= 0 {
				read = 0
			}
			try := func(rows, freed, atLeast int64) {
				end := max(a.busy[from]-a.takes(from, freed), a.busy[to]+a.takes(to, read+rows))
				if a.busy[from]-end < atLeast {
					return
				}
				if end < best.end || end == best.end && best.rows > 0 && a.after(to) < a.after(best.to) {
					best = move{i, to, int32(rows), end}
				}
			}
			try(int64(p.rows), ReadRows+int64(p.rows), 1)
			// So many rows that both ranks end together, or one more.
			if n := (a.busy[from] - a.busy[to] - a.takes(to, read)) / (a.time[from] + a.time[to]); n >= 0 {
				for rows := max(n, 1); rows <= n+1 && rows < int64(p.rows); rows++ {
					try(rows, rows, a.takes(from, ReadRows))
				}
			}
		}
	}
	if best.rows == 0 {
		return false
	}
	a.apply(best)
	return true
}

// after is how far a rank is behind the turn.
func (a *Assigner) after(rank uint8) int { return (int(rank) - a.turn + len(a.busy)) % len(a.busy) }

// apply carries a move out.
func (a *Assigner) apply(m move) {
	p := a.parts[m.part]
	a.busy[p.rank] -= a.takes(p.rank, int64(m.rows))
	there := a.partOn(p.expert, m.to)
	switch {
	case there >= 0:
		a.parts[there].rows += m.rows
		a.busy[m.to] += a.takes(m.to, int64(m.rows))
	case m.rows < p.rows:
		a.add(p.expert, m.rows, m.to)
	default:
		a.parts[m.part].rank = m.to
		a.busy[p.rank] -= a.takes(p.rank, ReadRows)
		a.busy[m.to] += a.takes(m.to, ReadRows+int64(m.rows))
		return
	}
	a.parts[m.part].rows -= m.rows
	if m.rows == p.rows { // an empty part stays in the list and counts nothing
		a.busy[p.rank] -= a.takes(p.rank, ReadRows)
	}
}

// partOn is the part of an expert that a rank computes, -1 for none.
func (a *Assigner) partOn(e int32, rank uint8) int32 {
	for i := a.first[e]; i >= 0; i = a.parts[i].next {
		if a.parts[i].rank == rank && a.parts[i].rows > 0 {
			return i
		}
	}
	return -1
}

// chain moves one whole part along each step of a path of ranks from a busy one to one with
// time for another, so that all of them are ready before the busy one was. It is needed
// where a rank has no copy of what the busy rank computes. The path is a shortest one.
func (a *Assigner) chain(from uint8) bool {
	limit := a.busy[from]
	for r := range a.busy {
		a.via[r].part = -1
	}
	queue := [MaxRanks]uint8{from}
	n := 1
	for at := 0; at < n; at++ {
		u := queue[at]
		in := int64(0)
		if u != from {
			in = a.cost(a.via[u].part, u)
		}
		for i := range a.parts {
			p := &a.parts[i]
			if p.rank != u || p.rows == 0 || u != from && a.busy[u]+in-a.cost(int32(i), u) >= limit {
				continue
			}
			for m := a.mask[p.expert] &^ (1 << u); m != 0; m &= m - 1 {
				v := uint8(bits.TrailingZeros64(m))
				if v == from || a.via[v].part >= 0 || a.partOn(p.expert, v) >= 0 {
					continue
				}
				a.via[v] = step{int32(i), u}
				if a.busy[v]+a.cost(int32(i), v) < limit {
					a.follow(v, from)
					return true
				}
				queue[n] = v
				n++
			}
		}
	}
	return false
}

// cost is the time of a whole part on a rank.
func (a *Assigner) cost(part int32, rank uint8) int64 {
	return a.takes(rank, ReadRows+int64(a.parts[part].rows))
}

// follow moves a part along each step of the path that ends at a rank.
func (a *Assigner) follow(end, from uint8) {
	for v := end; v != from; v = a.via[v].from {
		i := a.via[v].part
		u := a.via[v].from
		a.busy[u] -= a.cost(i, u)
		a.busy[v] += a.cost(i, v)
		a.parts[i].rank = v
	}
}

// fill gives each slot of ids the rank of a part of its expert. Rows of an expert that is
// divided go to its parts one after the other.
func (a *Assigner) fill(to []uint8, ids []int32) {
	for i := range a.parts {
		a.parts[i].left = a.parts[i].rows
	}
	for slot, e := range ids {
		if to[slot] = None; !a.valid(e) {
			continue
		}
		i := a.first[e]
		for a.parts[i].left == 0 {
			i = a.parts[i].next
		}
		a.parts[i].left--
		a.first[e], to[slot] = i, a.parts[i].rank
	}
}

// total counts what each rank computes.
func (a *Assigner) total(to []uint8, ids []int32) []Load {
	clear(a.loads)
	clear(a.seen)
	for slot, r := range to[:len(ids)] {
		if r == None {
			continue
		}
		a.loads[r].Slots++
		if e := ids[slot]; a.seen[e]&(1<<r) == 0 {
			a.seen[e] |= 1 << r
			a.loads[r].Experts++
		}
	}
	return a.loads
}

// Imbalance is the largest over the mean of so many ranks, given the sums over some layers of
// the largest and of all: 1 if all ranks have equally much, or nothing.
func Imbalance(busiest, all int64, ranks int) float64 {
	return cmp.Or(float64(ranks)*float64(busiest)/float64(max(all, 1)), 1)
}
