package decoder

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"ringmaster/gguf"
	"ringmaster/internal/units"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// RankPlan is the memory that one rank of a group will need, computed from the
// file's header. All sizes are in bytes.
type RankPlan struct {
	Rank int
	Part parallel.Part // what it computes

	ExpertBytes int64 // of the routed experts that it has, mapped
	CopyBytes   int64 // of them: copies of other ranks' experts
	DenseBytes  int64 // every other weight that the rank reads, mapped
	Sequence    int64 // KV cache of one sequence of Context tokens
	Buffers     int64 // of a step and of the exchange
	// TokenReads is the weights that the rank is expected to read for a token, if all
	// experts are equally likely.
	TokenReads int64
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
	r.CopyBytes = r.ExpertBytes - p.expertBytes(parallel.Part{Experts: r.Part.Experts})
	r.DenseBytes = p.weights(r.Part, placement[len(placement)-1]) - r.ExpertBytes
	r.TokenReads = r.DenseBytes - p.Embedding
	if rank == 0 {
		r.DenseBytes += p.DraftWeights
	} else {
		r.Buffers -= p.DraftScratch
	}
	if len(placement) > 1 {
		r.Buffers += moe.ExchangeBytes(p.Routed, p.Reduce, p.Wire, placement)
		join := func(s parallel.TermsShape, n int, ranges []parallel.Range) {
			if s.Terms > 0 && !parallel.Replicated(n, ranges) {
				r.Buffers += s.JoinBytes(p.Reduce, p.Wire, rank, ranges, placement.DividesRows())
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

// TokenReads is the bytes of the weights [Layers] that a token reads of each layer of a file;
// those of the output head are the first layer's.
func (p Plan) TokenReads(f *gguf.File) []int64 {
	reads := make([]int64, p.Layers)
	for _, t := range f.Tensors() {
		layer, local := split(t.Name)
		n := int64(len(t.Data))
		switch {
		case layer >= p.Layers || slices.Contains(p.TableNames, local) || layer < 0 && !strings.HasPrefix(local, "output"):
		case layer < 0:
			reads[0] += n
		case strings.HasSuffix(local, "_exps.weight"):
			reads[layer] += n * int64(p.Used) / int64(p.Sizes.Experts)
		default:
			reads[layer] += n
		}
	}
	return reads
}

// AddTokenExperts adds the experts that each rank [ranks] is expected to compute for a
// token in a layer to the weights that it reads.
func (p Plan) AddTokenExperts(ranks []RankPlan, experts []float64) {
	for r, n := range experts {
		ranks[r].TokenReads += int64(n * float64(p.OneExpert()))
	}
}

// WriteRanks prints the plans of a group's ranks as a table. names [ranks], if
// given, are the ranks' addresses.
func WriteRanks(w io.Writer, ranks []RankPlan, names ...string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "rank\texperts\tcopies\theads\tshared\tvocabulary\texpert weights\tother weights\tone sequence\tbuffers\texpected in memory\ta token reads\t")
	if len(names) > 0 {
		fmt.Fprint(t, "  where\t")
	}
	fmt.Fprintln(t)
	for i, r := range ranks {
		fmt.Fprintf(t, "%d\t%v\t%s\t%v\t%v\t%v\t%s\t%s\t%s\t%s\t%s\t%s\t", r.Rank, r.Part.Experts, units.Bytes(r.CopyBytes), r.Part.Heads, r.Part.Shared, r.Part.Vocabulary, units.Bytes(r.ExpertBytes), units.Bytes(r.DenseBytes),
			units.Bytes(r.Sequence), units.Bytes(r.Buffers), units.Bytes(r.Resident()), units.Bytes(r.TokenReads))
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
	both := parallel.Part{Heads: part.Heads.And(before.Heads), Shared: part.Shared.And(before.Shared), Vocabulary: part.Vocabulary.And(before.Vocabulary)}
	kept := p.countExperts(func(layer, e int) bool { return part.Has(layer, e) && before.Has(layer, e) })
	return max(own-p.weights(both, all)-kept, 0)
}

// OneExpert is the bytes of one routed expert in all layers that have any.
func (p Plan) OneExpert() int64 { return p.Experts / int64(p.Sizes.Experts) }

// ExpertLayers are the layers of the span with routed experts.
func (p Plan) ExpertLayers() []int {
	var out []int
	for l := max(p.DenseLayers, p.Span.Start); l < p.Span.End; l++ {
		out = append(out, l)
	}
	return out
}

// expertBytes is that of the routed experts that a rank has. It is exact except for
// copies that differ from layer to layer, because the matrices of a stack have one size.
func (p Plan) expertBytes(part parallel.Part) int64 {
	if len(part.Copies) == 0 {
		return p.OneExpert() * int64(part.Experts.Len())
	}
	return p.countExperts(func(layer, e int) bool { return part.Has(layer, e) })
}

// countExperts is the bytes of the routed experts that has chooses.
func (p Plan) countExperts(has func(layer, e int) bool) int64 {
	n, layers := int64(0), p.ExpertLayers()
	for _, l := range layers {
		for e := range p.Sizes.Experts {
			if has(l, e) {
				n++
			}
		}
	}
	return p.OneExpert() * n / int64(max(len(layers), 1))
}

// Lost is the bytes of the routed experts that no rank with one of the parts has.
func (p Plan) Lost(parts []parallel.Part) int64 {
	return p.countExperts(func(layer, e int) bool {
		return !slices.ContainsFunc(parts, func(x parallel.Part) bool { return x.Has(layer, e) })
	})
}

// weights is the bytes of the weights that a rank with a part reads.
func (p Plan) weights(part, all parallel.Part) int64 {
	n := p.Dense + p.expertBytes(part)
	for _, m := range p.Divided {
		n += m.Read(part, all) - m.Bytes
	}
	return n
}
