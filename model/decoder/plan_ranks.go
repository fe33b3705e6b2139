package decoder

import (
	"fmt"
	"io"
	"text/tabwriter"

	"ringmaster/internal/units"
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

// Place is the placement of the model on ranks with the given shares [ranks] of what is
// divided. Errors are those of parallel.Divide.
func (p Plan) Place(how parallel.Share, shares []float64) (parallel.Placement, error) {
	return parallel.Place(how, p.Sizes, shares)
}

// Replicated is the bytes of the weights that every rank reads in full. Rank 0 reads
// the output head besides if that is not divided.
func (p Plan) Replicated(how parallel.Share) int64 {
	n := p.Dense
	if how == parallel.ShareAll {
		for _, m := range p.Divided {
			n -= m.Bytes
		}
	}
	return n
}

// Sums is how many sums of a token's row of the hidden size the ranks of a group
// exchange: one after the experts of each layer that has any, and with ShareAll one after
// attention and after a dense FFN that is divided.
func (p Plan) Sums(how parallel.Share) int {
	switch {
	case how != parallel.ShareAll:
		return p.Layers - p.DenseLayers
	case p.DenseFFN.Terms == 0:
		return 2*p.Layers - p.DenseLayers
	}
	return 2 * p.Layers
}

// ForRank is the plan of one rank of a group with a placement.
func (p Plan) ForRank(rank int, placement parallel.Placement) RankPlan {
	r := RankPlan{Rank: rank, Part: placement[rank], Sequence: p.PerSequence(), Buffers: p.Fixed()}
	r.ExpertBytes = p.expertBytes(r.Part)
	r.DenseBytes = p.weights(r.Part, placement[len(placement)-1]) - r.ExpertBytes
	if len(placement) > 1 {
		r.Buffers += moe.ExchangeBytes(p.Routed, p.Reduce, p.Wire, placement)
		join := func(s parallel.TermsShape, n int, ranges []parallel.Range) {
			if s.Terms > 0 && !parallel.Replicated(n, ranges) {
				alone, joined := s.Bytes(p.Reduce, p.Wire, placement.DividesRows())
				r.Buffers += joined - alone
			}
		}
		join(p.Heads, p.Sizes.Heads, placement.Heads())
		join(p.DenseFFN, p.Sizes.Shared, placement.Shared())
		if placement.DividesRows() {
			r.Buffers += p.GatheredRow * int64(p.MaxTokens)
		}
		if rank == 0 && placement[0].Vocabulary.Len() < p.Sizes.Vocabulary {
			r.Buffers += HeadBytes(p.Vocab, p.MaxTokens, true) - HeadBytes(p.Vocab, p.MaxTokens, false)
		}
	}
	return r
}

// WriteRanks prints the plans of a group's ranks as a table. names [ranks], if
// given, are the ranks' addresses.
func WriteRanks(w io.Writer, ranks []RankPlan, names ...string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "rank\texperts\theads\tshared\tvocabulary\texpert weights\tother weights\tone sequence\tbuffers\texpected in memory\t")
	if len(names) > 0 {
		fmt.Fprint(t, "  where\t")
	}
	fmt.Fprintln(t)
	for i, r := range ranks {
		fmt.Fprintf(t, "%d\t%v\t%v\t%v\t%v\t%s\t%s\t%s\t%s\t%s\t", r.Rank, r.Part.Experts, r.Part.Heads, r.Part.Shared, r.Part.Vocabulary, units.Bytes(r.ExpertBytes), units.Bytes(r.DenseBytes),
			units.Bytes(r.Sequence), units.Bytes(r.Buffers), units.Bytes(r.Resident()))
		if i < len(names) {
			fmt.Fprintf(t, "  %s\t", names[i])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Fresh is the bytes of the weights that a rank reads for its part and did not need for
// the part before; nil: it has read nothing. all is where the ranges of the last rank
// end. It is an estimate, because columns count as whole pages.
func (p Plan) Fresh(before *parallel.Part, part, all parallel.Part) int64 {
	own := p.weights(part, all)
	if before == nil {
		return own
	}
	both := parallel.Part{Experts: part.Experts.And(before.Experts), Heads: part.Heads.And(before.Heads),
		Shared: part.Shared.And(before.Shared), Vocabulary: part.Vocabulary.And(before.Vocabulary)}
	return max(own-p.weights(both, all), 0)
}

// expertBytes is that of the routed experts. It is exact, because the matrices of a stack
// have one size.
func (p Plan) expertBytes(part parallel.Part) int64 {
	return p.Experts / int64(p.Sizes.Experts) * int64(part.Experts.Len())
}

// weights is the bytes of the weights that a rank with a part reads.
func (p Plan) weights(part, all parallel.Part) int64 {
	n := p.Dense + p.expertBytes(part)
	for _, m := range p.Divided {
		n += m.Read(part, all) - m.Bytes
	}
	return n
}
