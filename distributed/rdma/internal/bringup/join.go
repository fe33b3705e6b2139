package bringup

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/plan"
)

// join pairs the rails, chooses a ring or a mesh, and proves every rail. If a
// rail does not carry its token, join leaves it out and chooses again. It ends
// because each round has fewer rails.
func (b *bringup) join(ctx context.Context) (*Rails, error) {
	for {
		p, err := b.pair(ctx)
		if err != nil {
			return nil, err
		}
		topo, err := p.Matrix.Choose(matrix.Preference{Ring: b.rules.Ring, Cost: b.cost()})
		if err != nil {
			if why := append(slices.Clone(b.notes), p.Notes...); len(why) > 0 {
				err = fmt.Errorf("%w (%s)", err, strings.Join(why, "; "))
			}
			return nil, err // the same on all ranks
		}
		cables := p.Matrix.Trim(topo)
		pairs := railsOf(cables)
		if b.Child {
			if _, err := vote(ctx, b, "have resources for a child", struct{}{}, b.enough(pairs)); err != nil {
				return nil, err
			}
		}
		dead, err := b.settle(ctx, pairs)
		if err != nil {
			return nil, err
		}
		if len(dead) == 0 {
			b.notes = append(b.notes, p.Notes...)
			return b.rails(p.Matrix, cables, topo), nil
		}
		for a, why := range dead {
			b.known[a] = false
			b.note(fmt.Sprintf("%v: %s", a, why))
		}
		if b.rules.Strict {
			return nil, fmt.Errorf("%w: %s", distributed.ErrConfig, strings.Join(b.notes, "; "))
		}
	}
}

// pair finds the cables; it tries those that no tool reports.
func (b *bringup) pair(ctx context.Context) (*matrix.Pairing, error) {
	for {
		p, err := matrix.Pair(b.rules.Matrix, b.hosts, matrix.Options{Strict: b.rules.Strict, Switched: b.rules.Pairing.Switched, Probed: b.known})
		if err != nil || len(p.Try) == 0 {
			return p, err
		}
		pairs := make([]railPair, len(p.Try))
		for i, a := range p.Try {
			pairs[i] = railPair{Attempt: a, index: i}
		}
		dead, err := b.prove(ctx, pairs, false)
		if err != nil {
			return nil, err
		}
		for _, a := range p.Try {
			_, bad := dead[a]
			b.known[a] = !bad
		}
	}
}

// cost returns the function that rates a topology; nil if a mesh is preferred.
func (b *bringup) cost() func(t matrix.Topology) int64 {
	if b.rules.Mesh {
		return nil
	}
	return func(t matrix.Topology) int64 {
		ns, err := plan.LayerCost(b.planned(t))
		if err != nil {
			return math.MaxInt64
		}
		return ns
	}
}

// railPair is a rail with both ends.
type railPair struct {
	matrix.Attempt
	index int // rail of the pair, or a number while trying
}

// rail is a rail as seen from this rank.
type rail struct {
	pair   railPair
	peer   int
	device string
	far    string // device of the peer
}

// of returns a rank's view of the rail, false if the rank has no end of it.
func (p railPair) of(rank int) (rail, bool) {
	switch rank {
	case p.RankA:
		return rail{pair: p, peer: p.RankB, device: p.DeviceA, far: p.DeviceB}, true
	case p.RankB:
		return rail{pair: p, peer: p.RankA, device: p.DeviceB, far: p.DeviceA}, true
	}
	return rail{}, false
}

// railsOf lists the rails of a paired matrix, in the order of the ranks.
func railsOf(m matrix.Matrix) []railPair {
	var all []railPair
	for i := range m {
		for j := i + 1; j < len(m); j++ {
			for k, d := range m[i][j] {
				all = append(all, railPair{matrix.Attempt{RankA: i, DeviceA: d, RankB: j, DeviceB: m[j][i][k]}, k})
			}
		}
	}
	return all
}

// note adds a note, once.
func (b *bringup) note(text string) {
	if !slices.Contains(b.notes, text) {
		b.notes = append(b.notes, text)
	}
}
