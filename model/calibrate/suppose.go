package calibrate

import (
	"slices"
	"strings"

	"ringmaster/distributed"
	"ringmaster/parallel/cost"
)

// Host is a host without measurements.
type Host struct {
	Memory  float64 // bytes a second that ops read
	Compute float64 // multiplications, each with its addition, a second
	Op      float64 // seconds of an op beyond both
	Wait    float64 // seconds until the host sees what its GPU computed, before each exchange and each op of CPU
	CPU     *Host   // runs the ops that are OnCPU beside a GPU, which the other fields describe; nil: there are none
}

// line takes an op to read first and to compute then. A device that does both at once needs at
// least half of that.
func (h Host) line() *cost.Line {
	return &cost.Line{Fixed: h.Op, PerByte: 1 / h.Memory, PerWork: 1 / h.Compute}
}

func (h Host) model() cost.Model {
	m := cost.Model{Other: h.line(), Wait: h.Wait}
	if h.CPU != nil {
		m.CPU = h.CPU.line()
	}
	return m
}

// Network is the links of a group without measurements.
type Network struct {
	Latency float64 // seconds of the shortest exchange of two neighbours
	Rate    float64 // bytes a second that a rank receives from all others together, while it sends as many
	Hops    int     // to the farthest rank: 1 with a switch, or with a cable for each two ranks
	// Islands [ranks], if given, are the numbers of islands of ranks that Inside links; the
	// network itself links ranks of different islands.
	Islands []int
	Inside  *Network
}

// among is the network of some of the ranks.
func (n Network) among(ranks []int) Network {
	if n.Inside != nil && !slices.ContainsFunc(ranks, func(r int) bool { return n.Islands[r] != n.Islands[ranks[0]] }) {
		return n.Inside.among(ranks)
	}
	n.Hops = min(n.Hops, max(1, len(ranks)/2)) // ranks of a stage, and of stages that follow, are neighbours
	return n
}

// links are the lines of exchanges of so many ranks.
func (n Network) links(ranks int) cost.Links {
	links := cost.Links{}
	for _, kind := range supposed {
		for _, w := range ways(kind, ranks) {
			links[kind+w.suffix] = n.line(w)
		}
	}
	return links
}

// way is a way in which n ranks do an exchange.
type way struct {
	suffix string // of its line
	phases int    // each with the latency
	// received is the bytes that a rank receives for each byte of the whole result, if
	// the parts of all ranks are alike; for an exchange with a root, the bytes that the
	// root receives.
	received float64
}

// ways are the ways of an exchange of n ranks in the drivers (collectives specification,
// 11.2). A reduction in one phase sends the whole vector to every rank.
func ways(kind string, n int) []way {
	others, share := float64(n-1), float64(n-1)/float64(n)
	switch kind {
	case distributed.AllSum.String(), distributed.AllMax.String():
		return []way{{"", 1, others}, {cost.InTwoPhases, 2, 2 * share}}
	case cost.Message, distributed.Broadcast.String():
		return []way{{"", 1, 1}}
	default:
		return []way{{"", 1, share}}
	}
}

// line is the seconds of a way.
func (n Network) line(w way) cost.Line {
	return cost.Line{Fixed: float64(w.phases*n.Hops) * n.Latency, PerByte: w.received / n.Rate}
}

// supposed are the exchanges that models use.
var supposed = []string{cost.Message, distributed.AllSum.String(), distributed.AllMax.String(), distributed.ReduceScatter.String(),
	distributed.AllGather.String(), distributed.AllGatherV.String(), distributed.Gather.String(), distributed.Broadcast.String()}

// Suppose is what a group of such hosts would cost if each op reached the rates of its
// host, and each exchange those of the network. Nothing checks these lines, because
// nothing has been measured.
func Suppose(hosts []Host, n Network) Costs {
	c := Costs{Links: n.links(len(hosts)), Among: func(ranks ...int) cost.Links { return n.among(ranks).links(len(ranks)) }}
	for _, h := range hosts {
		c.Models = append(c.Models, h.model())
	}
	return c
}

// Received is the bytes that a rank of a group of so many receives from the others in a
// step with this trace, by the ways that take least time.
func (n Network) Received(trace cost.Trace, rank, ranks int) int64 {
	sum := 0.0
	for _, e := range trace {
		x := e.Start
		if x == nil || ranks < 2 || x.Root >= 0 && x.Root != rank {
			continue
		}
		least, received := 0.0, 0.0
		for i, w := range ways(x.Kind, ranks) {
			if t := n.line(w).Seconds(float64(x.Bytes), 0); i == 0 || t < least {
				least, received = t, w.received
			}
		}
		sum += received * float64(x.Bytes)
	}
	return int64(sum)
}

// Reads is the bytes of weights that a rank reads in a step of one token with this trace, and
// those of them that its CPU reads beside a GPU. Of the experts of a layer it counts the chosen
// ones, and of them on average the rank's part.
func Reads(trace cost.Trace) (all, onCPU int64) {
	sum, cpu := 0.0, 0.0
	// Layers of the same experts have the same mean, for which many steps are drawn.
	means := map[cost.Chosen]float64{}
	for _, e := range trace {
		if e.Op == nil || !strings.Contains(e.Op.Kind, " ") { // without the types of weights
			continue
		}
		n := e.Op.Bytes
		if c := e.Op.Chosen; c != nil {
			like := *c
			like.Bytes, like.Work = 0, 0
			experts, known := means[like]
			if !known {
				experts, _ = c.Mean()
				means[like] = experts
			}
			n += c.Bytes * experts
		}
		if sum += n; e.Op.OnCPU {
			cpu += n
		}
	}
	return int64(sum), int64(cpu)
}
