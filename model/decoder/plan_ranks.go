package decoder

import (
	"fmt"
	"io"
	"text/tabwriter"

	"ringmaster/moe"
	"ringmaster/parallel"
)

// RankPlan is the memory that one rank of a group will need, computed from the
// file's header. All sizes are in bytes.
type RankPlan struct {
	Rank int
	Part parallel.Part // what it computes

	ExpertBytes int64 // of the local routed experts, mapped
	DenseBytes  int64 // every other weight that the rank reads, mapped
	Sequence    int64 // KV cache of one sequence of Context tokens
	Buffers     int64 // of a step and of the exchange
}

// Need is the least memory in bytes: the buffers and the KV cache of one sequence.
func (r RankPlan) Need() int64 { return r.Sequence + r.Buffers }

// Resident is the memory in bytes that the rank uses with one sequence of full
// length when every weight that it reads is in memory.
func (r RankPlan) Resident() int64 { return r.ExpertBytes + r.DenseBytes + r.Need() }

// Place is the placement of the model on ranks with the given shares [ranks] of
// the experts, which are all that is divided. Errors are those of parallel.Divide.
func (p Plan) Place(shares []float64) (parallel.Placement, error) {
	return parallel.ByExperts(p.Sizes, shares)
}

// ForRank is the plan of one rank of a group with a placement.
func (p Plan) ForRank(rank int, placement parallel.Placement, reduce parallel.Reduce, wire parallel.Wire) RankPlan {
	r := RankPlan{Rank: rank, Part: placement[rank], DenseBytes: p.Dense, Sequence: p.PerSequence(), Buffers: p.Fixed()}
	// Matrices of a stack have one size, so that this is exact.
	r.ExpertBytes = p.Experts / int64(p.Sizes.Experts) * int64(r.Part.Experts.Len())
	if r.Part.Vocabulary.Len() == 0 {
		r.DenseBytes -= p.Output
	}
	if len(placement) > 1 {
		r.Buffers += moe.ExchangeBytes(p.Routed, reduce, wire)
	}
	return r
}

// WriteRanks prints the plans of a group's ranks as a table. names [ranks], if
// given, are the ranks' addresses.
func WriteRanks(w io.Writer, ranks []RankPlan, names ...string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "rank\texperts\texpert weights\tother weights\tone sequence\tbuffers\texpected in memory\t")
	if len(names) > 0 {
		fmt.Fprint(t, "  where\t")
	}
	fmt.Fprintln(t)
	for i, r := range ranks {
		fmt.Fprintf(t, "%d\t%v\t%s\t%s\t%s\t%s\t%s\t", r.Rank, r.Part.Experts, Bytes(r.ExpertBytes), Bytes(r.DenseBytes),
			Bytes(r.Sequence), Bytes(r.Buffers), Bytes(r.Resident()))
		if i < len(names) {
			fmt.Fprintf(t, "  %s\t", names[i])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
