package groupplan

import (
	"fmt"
	"slices"
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/model/decoder"
	"ringmaster/moe"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// copy gives the ranks copies of experts that others own, where they have memory for them,
// and says what that gains. held is the bytes of the sequences that outlive the last epoch.
// without is the plans of the ranks if copies turn out never to serve, nil if they do.
func (o Options) copy(plan decoder.Plan, members []cluster.Hello, placement parallel.Placement, ranks []decoder.RankPlan, held int64) (text string, without []decoder.RankPlan) {
	if len(members) == 1 {
		return "", nil
	}
	speeds := o.speeds(members)
	for r, m := range members {
		placement[r].Speed, placement[r].Waits = speeds[r], m.Threads == 0 // 0 on a GPU
	}
	before := expectToken(plan, placement)
	room := make([]int64, len(members)) // [ranks] copies for which a rank has room in every layer
	lacks := o.noBuffers(plan, members, ranks, held)
	tight := lacks != ""
	for r, m := range members {
		room[r] = min(o.mostCopies(plan.Sizes.Experts), inSteps(copyRoom(plan, m, ranks[r], held)/max(plan.OneExpert(), 1), plan.Sizes.Experts, placement[r].Experts.Len()))
		switch {
		case o.Reduce == parallel.Sum && placement.Waits():
			room[r], lacks = 0, "a GPU would wait for the choice of experts of a token, and with --reduce sum they would make a prefill slower"
		case placement.Waits() && !placement.DividesRows():
			room[r], lacks = 0, waitsAlways
		case tight:
			room[r] = 0
		case room[r] > 0 || lacks != "":
		case m.Memory == 0:
			lacks = fmt.Sprintf("the memory of %s is not known", m.Name())
		default:
			lacks = fmt.Sprintf("%s has no memory beyond its part and its KV caches for one more expert of %s", m.Name(), units.Bytes(plan.OneExpert()))
		}
	}
	layers := plan.ExpertLayers()
	var chosen [][]uint64
	// With sum other copies give other last bits, and counts differ from epoch to epoch.
	if o.Chosen != nil && o.Reduce != parallel.Sum && !all(placement, plan.Sizes.Experts, room) {
		chosen = o.Chosen()
	}
	byCounts := known(chosen, layers, plan.Sizes.Experts)
	if byCounts {
		spreadPopular(placement, chosen, layers, plan.Sizes.Experts, room)
	} else {
		spread(placement, plan.Sizes.Experts, room)
	}
	if !placement.Copies() {
		plan.AddTokenExperts(ranks, before.Experts)
		return noCopies(lacks, before), nil
	}
	after := expectToken(plan, placement)
	if placement.Waits() {
		without = slices.Clone(ranks)
		plan.AddTokenExperts(without, before.Experts)
	}
	for r, m := range members {
		buffers := ranks[r].Buffers - plan.ForRank(r, placement.WithoutCopies()).Buffers
		ranks[r] = plan.ForRank(r, placement)
		ranks[r].Rank = m.Rank
		ranks[r].Buffers += buffers
	}
	plan.AddTokenExperts(ranks, after.Experts)
	var w strings.Builder
	fmt.Fprintf(&w, "experts in copies: the busiest rank takes %.2f times the mean for a token's experts, %.2f without copies\n", after.Busiest, before.Busiest)
	if byCounts {
		fmt.Fprintf(&w, "copies are of the experts that were chosen most, so that the busiest rank is expected to take less than that\n")
	}
	if placement.Waits() {
		fmt.Fprintf(&w, "copies serve only steps that are divided by rows, because a GPU would wait for the choice of experts in the others\n")
	}
	return w.String(), without
}

const waitsAlways = "a GPU would wait for the choice of experts in steps that are not divided by rows, and none are"

// noCopies says why there are none.
func noCopies(why string, e assign.Expected) string {
	return fmt.Sprintf("experts in copies: none, because %s; the busiest rank takes %.2f times the mean for a token's experts\n", why, e.Busiest)
}

// noBuffers names the rank that has no memory for what copies of any rank add to its
// buffers, "" if there is none.
func (o Options) noBuffers(plan decoder.Plan, members []cluster.Hello, ranks []decoder.RankPlan, held int64) string {
	more := moe.CopiesBytes(plan.Routed) + max(held-plan.PerSequence(), 0)
	for r, m := range members {
		if m.OwnMemory > 0 && ranks[r].Need()+more > m.OwnMemory || m.Memory > 0 && !o.Overcommit && ranks[r].Resident()+more > m.Memory {
			return m.Name() + " has no memory for their buffers"
		}
	}
	return ""
}

// all reports whether every rank has room for all experts of others.
func all(p parallel.Placement, experts int, room []int64) bool {
	for r, x := range p {
		if room[r] < int64(experts-x.Experts.Len()) {
			return false
		}
	}
	return true
}

// speeds returns the speeds of the members by the numbers of --share, 1 without them.
func (o Options) speeds(members []cluster.Hello) []int {
	out := slices.Repeat([]int{1}, len(members))
	numbers := o.Share.Shares.Numbers
	if len(numbers) == 0 {
		return out
	}
	most := slices.Max(numbers)
	for i, m := range members {
		if m.Rank < len(numbers) {
			out[i] = max(int(assign.MaxSpeed*numbers[m.Rank]/most), 1)
		}
	}
	return out
}

// copyRoom is the bytes that a rank has for copies: the memory that its part and one sequence
// leave, less what the other sequences need, but at least half of it. A copy makes decoding faster, a
// KV cache saves prefills, and neither may starve the other. What running requests hold
// stays in any case.
func copyRoom(plan decoder.Plan, m cluster.Hello, r decoder.RankPlan, held int64) int64 {
	free := m.Memory - r.Resident() - moe.CopiesBytes(plan.Routed)
	if m.Memory == 0 || free <= 0 {
		return 0
	}
	kept := max(min(plan.AllSequences()-plan.PerSequence(), free/2), held-plan.PerSequence())
	return max(free-kept, 0)
}

// mostCopies is the most copies that pay on a rank. With --reduce sum rows are assigned one
// by one, so each copy is read in a long prefill chunk besides the expert itself: a quarter
// of the experts makes a token nearly as even as all of them, and 512 rows of 2 to 4 ranks
// take 11 to 18 % longer in the experts; all copies 14 to 38 % (simulated, 6 of 256).
func (o Options) mostCopies(experts int) int64 {
	if o.Reduce == parallel.Sum {
		return int64(experts / 4)
	}
	return int64(experts)
}

// inSteps rounds a number of copies down to a sixteenth of the experts unless it is all that
// others own, because with --reduce sum other copies give other last bits, and free memory
// is never quite the same.
func inSteps(room int64, experts, owned int) int64 {
	if step := int64(experts / 16); room < int64(experts-owned) && step > 1 {
		return room - room%step
	}
	return room
}

// spread gives each rank copies of as many experts as it has room for. In turns each takes
// one that fewest ranks have, of the owner with most of these, so that the copies are even
// over owners and experts.
func spread(p parallel.Placement, experts int, room []int64) {
	holders := slices.Repeat([]int{1}, experts)
	for more := true; more; {
		more = false
		for r := range p {
			x := &p[r]
			e := -1
			if room[r] > 0 {
				e = fewest(p, r, holders)
			}
			if e < 0 {
				continue
			}
			if x.Copies == nil {
				x.Copies = []assign.Set{nil}
			}
			x.Copies[0].Add(e)
			holders[e]++
			room[r]--
			more = true
		}
	}
}

// fewest is the expert of another rank that rank r should copy next, -1 if it has all.
func fewest(p parallel.Placement, r int, holders []int) int {
	best, bestHolders, bestLeft := -1, 0, 0
	for o, x := range p {
		if o == r {
			continue
		}
		first, least, left := -1, 0, 0
		for e := x.Experts.Start; e < x.Experts.End; e++ {
			switch {
			case p[r].Has(0, e):
			case first < 0 || holders[e] < least:
				first, least, left = e, holders[e], 1
			case holders[e] == least:
				left++
			}
		}
		if first >= 0 && (best < 0 || least < bestHolders || least == bestHolders && left > bestLeft) {
			best, bestHolders, bestLeft = first, least, left
		}
	}
	return best
}

// expectToken is what ranks compute for a token in a layer, if all experts are equally
// likely.
func expectToken(plan decoder.Plan, p parallel.Placement) assign.Expected {
	const draws = 512
	layers := plan.ExpertLayers()
	for n := len(layers); n > 0 && len(layers) < draws; {
		layers = append(layers, layers[:n]...)
	}
	rule := assign.Rule{By: p.Assigner(plan.Sizes.Experts), How: assign.Together}
	return rule.Expect(assign.Routing{Experts: plan.Sizes.Experts, Used: plan.Used}, 1, layers)
}
