package groupplan

import (
	"slices"

	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// leastChoices is how often an expert must have been chosen on average before counts decide
// which experts get copies: about 700 tokens of 6 of 256.
const leastChoices = 16

// known reports whether counts say which experts of these layers are chosen most.
func known(chosen [][]uint64, layers []int, experts int) bool {
	sum := uint64(0)
	for _, l := range layers {
		if l >= len(chosen) || len(chosen[l]) != experts {
			return false
		}
		for _, n := range chosen[l] {
			sum += n
		}
	}
	return sum >= uint64(leastChoices*experts*len(layers))
}

// spreadPopular gives each rank copies of as many experts as it has room for: in each layer
// those with the most choices per rank that has them. Each layer gets the same number,
// because a step waits in every layer.
func spreadPopular(p parallel.Placement, chosen [][]uint64, layers []int, experts int, room []int64) {
	for r := range p {
		if room[r] > 0 {
			p[r].Copies = make([]assign.Set, slices.Max(layers)+1)
		}
	}
	for _, l := range layers {
		holders := slices.Repeat([]uint64{1}, experts)
		for r := range p {
			own := p[r].Experts
			var others []int
			for e := range experts {
				if e < own.Start || e >= own.End {
					others = append(others, e)
				}
			}
			slices.SortStableFunc(others, func(a, b int) int {
				x, y := chosen[l][a]*holders[b], chosen[l][b]*holders[a]
				switch {
				case x > y:
					return -1
				case x < y:
					return 1
				}
				return 0
			})
			for _, e := range others[:min(int(max(room[r], 0)), len(others))] {
				p[r].Copies[l].Add(e)
				holders[e]++
			}
		}
	}
}
