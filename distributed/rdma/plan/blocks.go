package plan

import (
	"fmt"
	"math"

	"ringmaster/distributed"
)

// A block is what an operation does with the data of one rank: the part that it
// has, or the slice that it reduces. Reductions in one piece have a single block.
// Every rail carries a part of it, so a block uses as many rails as every pair has
// that it crosses. That keeps rails independent of each other also where pairs have
// different numbers of cables.

// checkCables returns what is wrong with Cables.
func (t Topology) checkCables() error {
	if t.Cables == nil {
		return nil
	}
	wrong := fmt.Errorf("%w: cables %v of %d ranks with at least %d rails", distributed.ErrConfig, t.Cables, t.N, t.Rails)
	if len(t.Cables) != t.N {
		return wrong
	}
	for a, row := range t.Cables {
		if len(row) != t.N {
			return wrong
		}
		for b := range a {
			if t.Joined(a, b) && (row[b] < t.Rails || row[b] != t.Cables[b][a]) {
				return wrong
			}
		}
	}
	return nil
}

// cables returns how many cables two joined ranks have.
func (t Topology) cables(a, b int) int {
	if t.Cables == nil {
		return t.Rails
	}
	return t.Cables[a][b]
}

// between returns the fewest cables of a pair on the ways between two ranks.
func (t Topology) between(a, b int) int {
	fewest := math.MaxInt
	for direction := range 2 {
		at := a
		for _, next := range t.path(a, b, direction) {
			fewest = min(fewest, t.cables(at, next))
			at = next
		}
	}
	return fewest
}

// around returns the fewest cables of a pair on the ways between a rank and all
// others.
func (t Topology) around(rank int) int {
	fewest := math.MaxInt
	for r := range t.N {
		if r != rank {
			fewest = min(fewest, t.between(rank, r))
		}
	}
	return fewest
}

// inOrder returns the fewest cables of a pair of neighbours in the order of the
// ranks.
func (t Topology) inOrder() int {
	fewest := math.MaxInt
	for r := 1; r < t.N; r++ {
		fewest = min(fewest, t.cables(r-1, r))
	}
	return fewest
}

// blocks returns how many rails carry the block of each rank.
func (p *Plan) blocks() []int {
	t, req := p.Config.Topology, p.Request
	all := make([]int, t.N)
	for r := range all {
		n := t.Rails
		switch {
		case t.Cables == nil:
		case p.Algorithm == OneShot && req.Op != ReduceScatter: // between all pairs
		case p.Algorithm == Chain:
			n = t.inOrder()
		case p.Algorithm == Direct:
			n = t.cables(req.From, req.To)
		case req.Op == Broadcast:
			n = t.around(req.Root)
		case req.Op == Gather:
			if r != req.Root { // its own block stays where it is
				n = t.between(r, req.Root)
			}
		default:
			n = t.around(r)
		}
		all[r] = min(n, p.most)
	}
	return all
}
