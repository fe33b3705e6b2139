package reference

import (
	"math"
	"slices"

	"github.com/x448/float16"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// StoreKV rounds rows to float16 and stores them in the ring.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	contract.StoreKV(ring, x, rows, cols, pos, ringRows)
	for t := range rows {
		slot := (pos + t) % ringRows
		for c := range cols {
			ring[slot*cols+c] = float16.Fromfloat32(x[t*cols+c]).Bits()
		}
	}
}

// Compress stores the projections and computes the entries they complete.
func (b *Backend) Compress(all ...kernels.CompressArgs) {
	for i := range all {
		b.compress(&all[i])
	}
}

func (b *Backend) compress(a *kernels.CompressArgs) {
	contract.Compress(a)
	width := a.Width()
	var ape [][]float32
	if a.APE.Exists() {
		ape = b.rows(a.APE, 0)
	}
	for t := range a.Rows {
		p := a.Pos + t
		slot := p % a.RingRows
		for c := range width {
			a.RingKV[slot*width+c] = a.KV[t*width+c]
			a.RingScore[slot*width+c] = a.Score[t*width+c]
			if ape != nil {
				a.RingScore[slot*width+c] += ape[p%a.Ratio][c]
			}
		}
	}
	for p := a.Pos; p < a.Pos+a.Rows; p++ {
		if (p+1)%a.Ratio == 0 {
			compressEntry(a, width, p/a.Ratio)
		}
	}
}

// compressEntry computes entry block from the rings.
func compressEntry(a *kernels.CompressArgs, width, block int) {
	entry := make([]float64, a.Dim)
	for c := range entry {
		var values, scores []float64
		// take adds channel ch of the tokens of a block to the candidates
		take := func(block, ch int) {
			for p := block * a.Ratio; p < (block+1)*a.Ratio; p++ {
				at := p%a.RingRows*width + ch
				values = append(values, float64(a.RingKV[at]))
				scores = append(scores, float64(a.RingScore[at]))
			}
		}
		if a.Overlap && block > 0 {
			take(block-1, c)
		}
		if a.Overlap {
			take(block, a.Dim+c)
		} else {
			take(block, c)
		}
		largest := slices.Max(scores)
		sum, weights := 0.0, 0.0
		for i, v := range values {
			w := math.Exp(scores[i] - largest)
			sum += w * v
			weights += w
		}
		entry[c] = sum / weights
	}
	square := 0.0
	for _, v := range entry {
		square += v * v
	}
	scale := 1 / math.Sqrt(square/float64(a.Dim)+float64(a.Eps))
	for c := range entry {
		entry[c] *= scale * float64(a.Norm[c])
	}
	if a.Latent != nil {
		for c, v := range entry {
			a.Latent[(block-a.Pos/a.Ratio)*a.Dim+c] = float32(v)
		}
		return
	}
	rotate(entry[a.Dim-a.RotDim:], block*a.Ratio, a.Freqs, false, false)
	if a.Hadamard {
		hadamard(entry)
	}
	for c, v := range entry {
		a.Cache[block*a.Dim+c] = half(v)
	}
}

// IndexScores returns the scores I[b] of the entries that token t sees, by
// which IndexTopK selects.
func IndexScores(a kernels.IndexArgs, t int) []float64 {
	n := min((a.Pos+t+1)/a.Ratio, len(a.Cache)/a.Dim)
	scores := make([]float64, n)
	for e := range scores {
		key := halves(a.Cache[e*a.Dim : (e+1)*a.Dim])
		for h := range a.Heads {
			s := dot(key, a.Q[(t*a.Heads+h)*a.Dim:])
			scores[e] += float64(a.HeadWeight[t*a.Heads+h]) * float64(a.Scale) * math.Max(0, s)
		}
	}
	return scores
}

// IndexTopK sorts the entries of each token by score.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	contract.IndexTopK(&a)
	if a.Freqs != nil {
		b.RoPE(a.Queries())
	}
	for t := range a.Rows {
		scores := IndexScores(a, t)
		eligible := make([]int32, 0, len(scores))
		for e := range scores {
			if a.Blocks == nil || !a.Mask || blockKept(&a, t, e/a.BlockSize) {
				eligible = append(eligible, int32(e))
			}
		}
		best(a.Selected[t*a.TopK:(t+1)*a.TopK], eligible, func(e int32) float64 { return scores[e] })
		if a.Blocks == nil || a.Mask {
			continue
		}
		var blocks []int32
		for e := 0; e < len(scores); e += a.BlockSize {
			blocks = append(blocks, int32(len(blocks)))
		}
		best(a.Blocks[t*a.BlocksKept:(t+1)*a.BlocksKept], blocks, func(k int32) float64 { return BlockScore(a, scores, int(k)) })
	}
}

// BlockScore is the score of a block of entries with the given scores.
func BlockScore(a kernels.IndexArgs, scores []float64, block int) float64 {
	members := scores[block*a.BlockSize : min((block+1)*a.BlockSize, len(scores))]
	if block == (len(scores)-1)/a.BlockSize { // the newest
		return math.Inf(1)
	}
	return slices.Max(members)
}

// blockKept reports whether a block is in the row of Blocks of token t.
func blockKept(a *kernels.IndexArgs, t, block int) bool {
	return slices.Contains(a.Blocks[t*a.BlocksKept:(t+1)*a.BlocksKept], int32(block))
}

// best writes the numbers with the largest scores, ascending, and then -1.
func best(out, numbers []int32, score func(int32) float64) {
	descend(numbers, score)
	numbers = numbers[:min(len(numbers), len(out))]
	slices.Sort(numbers)
	for i := copy(out, numbers); i < len(out); i++ {
		out[i] = -1
	}
}

// Attend is a softmax over the rows that a token sees and the sink of the head, if
// there is one.
func (b *Backend) Attend(a kernels.AttendArgs) {
	contract.Attend(&a)
	contract.Selected(&a)
	if a.RotateQ {
		b.RoPE(a.Queries())
	}
	for t := range a.Rows {
		keys := visible(&a, t)
		for h := range a.Heads {
			q := a.Q[(t*a.Heads+h)*a.HeadDim:][:a.HeadDim]
			sink := math.Inf(-1)
			if a.Sinks != nil {
				sink = float64(a.Sinks[h])
			}
			largest := sink
			scores := make([]float64, len(keys))
			for k, key := range keys {
				scores[k] = float64(a.Scale) * dot(q, key)
				largest = math.Max(largest, scores[k])
			}
			weights := math.Exp(sink - largest)
			out := make([]float64, a.ValueDim)
			for k, key := range keys {
				w := math.Exp(scores[k] - largest)
				weights += w
				for c, v := range key[:a.ValueDim] {
					out[c] += w * float64(v)
				}
			}
			for c, v := range out {
				a.Out[(t*a.Heads+h)*a.ValueDim+c] = float32(v / weights)
			}
		}
	}
	if a.Freqs != nil {
		b.RoPE(a.Back())
	}
}

// visible lists the rows that token t sees, in the order of the contract.
func visible(a *kernels.AttendArgs, t int) [][]float32 {
	var keys [][]float32
	p := a.Pos + t
	first := 0
	switch {
	case a.Window > 0:
		first = max(0, p-a.Window+1)
	case a.RingRows == 0:
		first = p + 1
	}
	for q := first; q <= p; q++ {
		keys = append(keys, halves(a.Raw[q%a.RingRows*a.HeadDim:][:a.HeadDim]))
	}
	entry := func(e int) {
		keys = append(keys, halves(a.Compressed[e*a.HeadDim:][:a.HeadDim]))
	}
	switch {
	case a.Ratio == 0:
	case a.Selected != nil:
		for _, e := range a.Selected[t*a.TopK : (t+1)*a.TopK] {
			if e < 0 {
				break
			}
			entry(int(e))
		}
	default:
		for e := range (p + 1) / a.Ratio {
			entry(e)
		}
	}
	return keys
}
