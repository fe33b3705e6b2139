// Package kernels is the op set that the forward pass is written against: an interface,
// its contract, and nothing that computes. kernels/cpu, metal and the test backends
// implement it; kernels/reference says in plain Go what each op means.
//
//	x, err := kernels.Make[float32](b, rows*cols) // memory of backend b
//	out, err := kernels.Make[float32](b, rows*cols)
//	b.RMSNorm(out, x, weight, rows, cols, 1e-6)   // encoded, perhaps not run
//	err = b.Flush()                               // now out may be read
//
// # Order
//
// Ops are encoded in the order of the calls and take effect by Flush. Host code may write
// an input until the op that reads it is encoded, and may read an output only after Flush
// has returned nil. A backend may run an op immediately; no caller may rely on that.
// Between two Flushes the host must not write memory that an encoded op still reads, except
// for data that ops await (Await).
//
// # Memory
//
// Every []float32, []int32, []int64 and []uint16 given to an op is in memory from Alloc or
// AllocHost of the same backend, and every Weight.Data in a mapping given to Map. []uint16 is float16
// (IEEE binary16). Activations are float32, row-major, slowest index first, without
// padding: "[rows][cols]" is rows*cols elements. Slices may be longer than the op needs;
// only the stated extent is accessed. Unless an op says otherwise, its outputs must not
// overlap its inputs.
//
// # Arithmetic
//
// Results are a function of the inputs alone: they depend neither on the number of
// threads nor on how many rows a call has. Row i of an op over many rows is bit for bit
// the result of the op over row i alone, so that prefill in chunks of any size agrees
// with decode. A backend that agrees only to within float32 rounding says so (RowsAgree).
// Sums have a fixed order, except those of SumExact, which adds integers. F32, F16
// and BF16 weights are multiplied by float32 activations; quantised weights may be
// multiplied by activations quantised to 8 bits or more, with one float32 scale for at
// most 32 values.
//
// # Errors
//
// A call that breaks the contract (a length, a shape, a type) panics with a *Misuse,
// because it is a bug of the caller. The next Flush reports a failure of the device.
package kernels

import (
	"fmt"
	"math"

	"ringmaster/gguf"
)

// Product is one output of MatMul: Out = x · Wᵀ, or with Up the hidden activations of a
// feed-forward network, Out = silu(min(g, Clamp)) * clamp(u) with g = x · Wᵀ and u = x · Upᵀ,
// where clamp bounds the magnitude by Clamp. A Clamp of 1e-6 or less means no clamping.
type Product struct {
	W   Weight
	Out []float32 // [rows][W.Rows]

	Up    Weight    // of the shape of W, or the zero Weight
	UpOut []float32 // [rows][W.Rows] memory for u, with Up only; what it holds afterwards is undefined
	Clamp float32
}

// RoPEArgs rotates RotDim elements of each head: its tail, or with Front its first
// ones. For i in [0, RotDim/2) the elements 2i and 2i+1 of them, or with Halves i and
// i+RotDim/2, are rotated by the angle float32(Pos[row])*Freqs[i], computed in float32
// and then reduced exactly (sine and cosine of that float32 in double or better), and
// multiplied by Magnitude.
type RoPEArgs struct {
	X       []float32 // [rows][Heads][HeadDim], in place
	Pos     []int32   // [rows]
	Freqs   []float32 // [RotDim/2], radians per position
	Rows    int
	Heads   int
	HeadDim int
	RotDim  int
	Front   bool // the first elements of a head
	Halves  bool // pairs half of the elements apart
	Inverse bool // rotate by the negative angle

	Magnitude float32 // of sine and cosine, at least 0; 0 means 1

	// With Norm, RMSNorm of each head comes first; with Hadamard, Hadamard of each head
	// follows; with Ring, which is for one head, StoreKV is last.
	Norm       bool
	NormWeight []float32 // [HeadDim], or nil for 1
	Eps        float32   // of Norm
	Hadamard   bool
	Ring       []uint16 // [RingRows][HeadDim], or nil
	RingPos    int      // position of row 0 in it
	RingRows   int
}

// Alone reports whether the op only rotates.
func (a *RoPEArgs) Alone() bool { return !a.Norm && !a.Hadamard && a.Ring == nil }

// Turn is the factor of sine and cosine.
func (a *RoPEArgs) Turn() float32 {
	if a.Magnitude == 0 {
		return 1
	}
	return a.Magnitude
}

// HCMixArgs computes the coefficients of one hyper-connection (mHC) and the input of its
// sub-layer.
//
//	r    = 1/sqrt(mean(h²) + RMSEps)            over all Streams*Cols of the row
//	m[k] = r * Fn[k]·h                           k < (2+S)*S
//	pre[s]  = sigmoid(m[s]*Scale[0]+Base[s]) + Eps
//	post[s] = 2*sigmoid(m[S+s]*Scale[1]+Base[S+s])
//	c[i][j] = m[2S+S*i+j]*Scale[2]+Base[2S+S*i+j]
//
// Comb is c after Sinkhorn normalisation: row softmax plus Eps, column
// normalisation (divide by sum+Eps), then Iterations-1 times row and column
// normalisation. i is the source stream, j the destination. X is RMSNorm with Norm and
// RMSEps of HCCollapse of H with Weights.
//
// With Y the op begins with the end of the sub-layer before: HCExpand of H by Y, and by Post
// and Comb as they are before.
type HCMixArgs struct {
	H       []float32 // [rows][Streams][Cols], in place with Y
	Y       []float32 // [rows][Cols], or nil
	Fn      Weight    // [(2+S)*S][S*Cols], F32, F16, BF16 or quantised
	Base    []float32 // [(2+S)*S]
	Scale   []float32 // [3]
	Weights []float32 // [rows][S] of the streams in X; Pre itself for those computed here
	Norm    []float32 // [Cols]

	Pre  []float32 // out [rows][S]
	Post []float32 // out [rows][S], in place with Y
	Comb []float32 // out [rows][S][S], in place with Y
	X    []float32 // out [rows][Cols]

	Rows, Streams, Cols int
	Iterations          int
	Eps, RMSEps         float32
}

// HCGateArgs adds one value to every stream, through a gate that depends on how well a
// key of the stream matches it. With r(x) = 1/sqrt(mean(x²)+Eps),
//
//	d[s] = Cols^-½ * r(KV[s])*r(H[s]) * sum_c KV[s][c]*KeyNorm[s][c] * H[s][c]*HNorm[s][c]
//	g[s] = sigmoid(copysign(sqrt(max(|d[s]|, 1e-6)), d[s]))
//	H[s] += g[s] * KV[Streams]
type HCGateArgs struct {
	H       []float32 // [rows][Streams][Cols], in place
	KV      []float32 // [rows][Streams+1][Cols]: a key for each stream, then the value
	HNorm   []float32 // [Streams][Cols]
	KeyNorm []float32 // [Streams][Cols]

	Rows, Streams, Cols int
	Eps                 float32
}

// HCHeadArgs collapses the streams before the output head:
// w[s] = sigmoid(r*Fn[s]·h*Scale[0] + Base[s]) + Eps, Out = sum_s w[s]*h[s].
type HCHeadArgs struct {
	Out   []float32 // [rows][Cols]
	H     []float32 // [rows][Streams][Cols]
	Fn    Weight    // [S][S*Cols]
	Base  []float32 // [S]
	Scale []float32 // [1]

	Rows, Streams, Cols int
	Eps, RMSEps         float32
}

// CompressArgs feeds Rows tokens of one sequence, positions Pos..Pos+Rows-1, to a
// compressor and emits the entries they complete.
//
// First the projections are stored: KV row t goes to ring slot (Pos+t) mod RingRows, and
// so does Score row t plus APE[(Pos+t) mod Ratio]. Then for every position p in the range
// with (p+1) mod Ratio == 0 entry b = p/Ratio is computed from the rings:
//
//   - Overlap false: the candidates of channel c are the Ratio tokens of block b,
//     channel c (Width == Dim).
//   - Overlap true (Width == 2*Dim): channel c of the Ratio tokens of block b-1
//     (absent for b == 0), then channel Dim+c of the tokens of block b.
//
// P[c] = sum of candidate KV weighted by the softmax, per channel, of the candidate
// scores. Then e = P/sqrt(mean(P²)+Eps) * Norm, RoPE of the last RotDim elements at
// position b*Ratio (see RoPEArgs), the Hadamard transform of the whole entry when
// Hadamard is set, and e is rounded to float16 and stored as row b of Cache. With Latent e
// is stored there as it is before RoPE, and there are no Freqs and no Cache. Without an APE
// nothing is added to Score.
//
// RingRows must be at least Rows + Ratio - 1 (+ Ratio with Overlap), so that a call never
// overwrites a row that it or a repetition of it needs. The rings and the committed rows
// of Cache are the whole state. Running a step twice therefore has the same effect as
// running it once.
type CompressArgs struct {
	KV    []float32 // [rows][Width] projections of the tokens
	Score []float32 // [rows][Width]
	APE   Weight    // [Ratio][Width], F32, F16 or BF16; the zero Weight for none
	Norm  []float32 // [Dim]
	Freqs []float32 // [RotDim/2]

	RingKV    []float32 // [RingRows][Width]
	RingScore []float32 // [RingRows][Width]
	Cache     []uint16  // [entries][Dim]
	Latent    []float32 // [entries that the call completes][Dim] in place of Cache, or nil

	Rows, Pos          int
	Ratio, Dim, RotDim int
	RingRows           int
	Overlap, Hadamard  bool
	Eps                float32
}

// Width is the width of the projections: Dim, or twice that with Overlap.
func (a *CompressArgs) Width() int {
	if a.Overlap {
		return 2 * a.Dim
	}
	return a.Dim
}

// IndexArgs scores the compressed entries for each query and selects the best.
// With n = min((Pos+t+1)/Ratio, all) entries visible to token t, I[b] = sum_h
// HeadWeight[t][h]*Scale * max(0, Q[t][h]·Cache[b]), b < n. Selected row t gets
// the TopK largest as ascending entry numbers (a tie keeps the lower number),
// then -1 up to TopK. n <= TopK selects 0..n-1.
//
// With Blocks a block is BlockSize consecutive entries, the last one perhaps fewer, and a
// token sees more than BlocksKept of them or keeps all. The score of a block is the largest
// of its visible entries, and the block of the newest entry is always kept. With Mask unset
// Blocks row t gets the BlocksKept best as ascending numbers (a tie keeps the lower
// number), then -1; the selection of entries ignores them. With Mask set Blocks is an
// input, and only entries of the blocks in row t are selected. The kept blocks have room
// for TopK entries even if the newest has one: BlocksKept*BlockSize-BlockSize+1 >= TopK.
//
// With Freqs each head of Q is rotated and transformed first: RoPE with Hadamard. What Q
// holds afterwards is then undefined.
type IndexArgs struct {
	Q          []float32 // [rows][Heads][Dim]
	HeadWeight []float32 // [rows][Heads]
	Cache      []uint16  // [entries][Dim]
	Selected   []int32   // out [rows][TopK]
	Blocks     []int32   // [rows][BlocksKept], out or with Mask in; nil for none
	Freqs      []float32 // [RotDim/2], or nil
	Positions  []int32   // [rows], with Freqs

	Rows, Pos             int
	Heads, Dim, TopK      int
	RotDim                int // with Freqs, even and at most Dim
	Ratio                 int
	Scale                 float32
	BlocksKept, BlockSize int // with Blocks
	Mask                  bool
}

// Queries is the rotation of Q.
func (a *IndexArgs) Queries() RoPEArgs {
	return RoPEArgs{X: a.Q, Pos: a.Positions, Freqs: a.Freqs, Rows: a.Rows, Heads: a.Heads, HeadDim: a.Dim, RotDim: a.RotDim, Hadamard: true}
}

// AttendArgs is attention, windowed or over all positions. All heads share one row for
// key and value, and a head may have a sink.
//
// Token t at p = Pos+t sees the raw rows of positions max(0,p-Window+1)..p, or 0..p with
// a Window of 0, row p' in slot p' mod RingRows of Raw, and compressed entries: none when
// Ratio is 0; the ones in row t of Selected up to the first -1 when Selected is not nil;
// else 0..(p+1)/Ratio-1. With s_k = Scale*Q·K_k over all of them and V_k the first
// ValueDim elements of K_k,
//
//	Out = sum_k exp(s_k-M)*V_k / (exp(Sinks[h]-M) + sum_k exp(s_k-M)),
//
// M the largest of s_k and Sinks[h]. Without sinks M is the largest s_k and the first
// term of the divisor is missing. Raw rows are added in order of position, then
// compressed entries in order of number.
//
// With RingRows 0 there are no raw rows: Raw is nil, Window 0 and Ratio 1, so that
// entries are positions. A row of Selected then names at least one, and Out is bit for
// bit what it is with the rows of the same positions as raw ones.
//
// With Freqs the last RotDim elements of each head of Out are rotated back: RoPE with
// Inverse. With RotateQ those of Q are rotated first: RoPE, with Norm if NormQ is set. What
// Q holds afterwards is then undefined.
type AttendArgs struct {
	Q          []float32 // [rows][Heads][HeadDim]
	Raw        []uint16  // [RingRows][HeadDim]
	Compressed []uint16  // [entries][HeadDim], nil when Ratio is 0
	Selected   []int32   // [rows][TopK] or nil
	Sinks      []float32 // [Heads], or nil for none
	Out        []float32 // [rows][Heads][ValueDim]
	Freqs      []float32 // [RotDim/2], or nil
	Positions  []int32   // [rows], Pos and those that follow, with Freqs

	Rows, Pos      int
	Heads, HeadDim int
	ValueDim       int     // 1 to HeadDim
	RotDim         int     // with Freqs, even and at most ValueDim
	RotateQ, NormQ bool    // with Freqs; NormQ with RotateQ
	Eps            float32 // of NormQ
	Window         int     // 0 for all positions
	RingRows       int     // >= Window - 1 + Rows; with a Window of 0 >= Pos + Rows; or 0 for no raw rows
	Ratio, TopK    int
	Scale          float32
}

// Queries is the rotation of Q.
func (a *AttendArgs) Queries() RoPEArgs {
	return RoPEArgs{X: a.Q, Pos: a.Positions, Freqs: a.Freqs, Rows: a.Rows, Heads: a.Heads, HeadDim: a.HeadDim, RotDim: a.RotDim, Norm: a.NormQ, Eps: a.Eps}
}

// Back is the rotation of Out.
func (a *AttendArgs) Back() RoPEArgs {
	return RoPEArgs{X: a.Out, Pos: a.Positions, Freqs: a.Freqs, Rows: a.Rows, Heads: a.Heads, HeadDim: a.ValueDim, RotDim: a.RotDim, Inverse: true}
}

// Score is the function from a router's logits to the scores of experts.
type Score uint8

// The scores of an expert with the logit x.
const (
	SqrtSoftplus Score = iota // sqrt(log(1+exp(x)))
	Sigmoid                   // 1/(1+exp(-x))
	Softmax                   // exp(x) over its sum of all experts
)

// GroupScore is how a group's experts give the score of the group.
type GroupScore uint8

// The scores of a group.
const (
	GroupBest   GroupScore = iota // the largest of its experts
	GroupTopTwo                   // the sum of the two largest, or the one there is
)

// RouteArgs selects Used experts per token and their weights. s_e is the Score of
// Logits[e], b_e = s_e + Bias[e]. With Table the experts are row Tokens[t] of it,
// otherwise those with the Used largest b_e in descending order (a tie keeps the
// lower expert). With Groups above 1 these are chosen among the experts of
// GroupsUsed groups only: group g is the experts [g*Experts/Groups,
// (g+1)*Experts/Groups), and the groups with the largest GroupScore of their b_e
// are taken (a tie keeps the lower group). Weight = s_e (unbiased), with Normalise
// divided by max(sum of the selected s, 6.103515625e-5), times Scale.
//
// With Lists ExpertMask and ExpertCompact follow: a slot of an expert outside
// [Start, End) gets weight 0, and Lists gets the slots of those inside.
type RouteArgs struct {
	Logits []float32 // [rows][Experts]
	Bias   []float32 // [Experts] or nil
	Table  []int32   // [vocabulary][Used] in a mapping given to Map, or nil; with SqrtSoftplus only
	Tokens []int32   // [rows], read with Table only

	IDs     []int32   // out [rows][Used]
	Weights []float32 // out [rows][Used]

	Rows, Experts, Used int
	Score               Score
	Groups, GroupsUsed  int // of equal size; Groups up to 1 is none. Not with Table
	GroupScore          GroupScore
	Normalise           bool
	Scale               float32

	Lists      ExpertGroups // out, or without Offsets none
	Start, End int          // with Lists
}

// ExpertGroups lists the slots to be computed, grouped by expert. A slot is
// t*Used+i: choice i of token t.
type ExpertGroups struct {
	// Offsets [Experts+1]: the slots of expert e are
	// Slots[Offsets[e]:Offsets[e+1]], ascending.
	Offsets []int32
	Slots   []int32 // [rows*Used]
}

// ExpertArgs holds the arguments common to both halves of the routed experts.
type ExpertArgs struct {
	Groups              ExpertGroups
	Weights             []float32 // [rows][Used], zero for a slot of a remote expert
	Rows, Used, Experts int
	// Start and End bound the experts that this rank owns, [Start, End).
	Start, End int

	Sum  []float32 // of ExpertDown: out [rows][D], or nil
	Plus []float32 // with Sum: [rows][D], or nil
}

// Chosen counts the experts of this rank that have slots to compute, and these slots.
// Flush the ops before, because it reads device memory.
func (a *ExpertArgs) Chosen() (experts, slots int) {
	for e := a.Start; e < a.End; e++ {
		live := 0
		for _, s := range a.Groups.Slots[a.Groups.Offsets[e]:a.Groups.Offsets[e+1]] {
			if a.Weights[s] != 0 {
				live++
			}
		}
		if live > 0 {
			experts++
		}
		slots += live
	}
	return experts, slots
}

// Device is what a backend has besides its ops.
type Device interface {
	Name() string
	// Alloc returns n bytes of zeroed memory visible to host and device,
	// aligned to 64 bytes. It fails if the memory cannot be allocated.
	Alloc(n int) ([]byte, error)
	// Free frees what Alloc returned, after the ops that use it.
	Free(mem []byte)
	// Map makes a read-only mapping of a model file usable as Weight.Data.
	Map(mapping []byte) error
	// CanCompute reports whether matrices of the type can be multiplied.
	CanCompute(t gguf.Type) bool
	// Submit starts the encoded ops without waiting: a hint for a device that
	// works while the host does something else. A device that has enough to do may take
	// them later. Results are available after Flush.
	Submit()
	// Flush waits until every encoded op has taken effect and reports the first
	// failure. A backend that has failed remains failed.
	Flush() error
	// Close frees the backend and what it allocated.
	Close() error
}

// Backend runs ops. See the package comment for order, memory and errors.
// A Backend is used by one goroutine at a time.
type Backend interface {
	Device

	// Embed writes row ids[t] of w, as float32, to out [len(ids)][w.Cols].
	Embed(out []float32, w Weight, ids []int32)
	// MatMul multiplies x [rows][K] by each weight, times its scale; all have Cols == K. See
	// Product.
	MatMul(x []float32, rows int, products ...Product)
	// NormMatMul is RMSNorm of x [rows][K] in place, with weight [K], and then MatMul. What x
	// holds afterwards is undefined.
	NormMatMul(x, weight []float32, eps float32, rows int, products ...Product)
	// MatMulGrouped multiplies each matrix of a stack by columns of x of its
	// own: out[t][g][r] = w[g][r] · x[t][g*w.Cols:], times the scale of w, g < w.Slices, x
	// [rows][w.Slices][w.Cols], out [rows][w.Slices][w.Rows].
	MatMulGrouped(out, x []float32, rows int, w Weight)
	// RMSNorm: out = x/sqrt(mean(x²)+eps) * weight, per row of cols
	// elements; weight [cols] or nil for 1. out may be x.
	RMSNorm(out, x, weight []float32, rows, cols int, eps float32)
	// LayerNorm: out = (x-mean(x))/sqrt(mean((x-mean(x))²)+eps) * weight + bias, per
	// row of cols elements; weight and bias [cols]. out may be x.
	LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32)
	RoPE(a RoPEArgs)
	// Hadamard applies the Walsh-Hadamard transform in natural order,
	// scaled by dim^-½, to each row of x [rows][dim], in place. dim is a
	// power of two.
	Hadamard(x []float32, rows, dim int)
	// HCInit copies x [rows][cols] to every stream of h [rows][streams][cols].
	HCInit(h, x []float32, rows, streams, cols int)
	HCMix(a HCMixArgs)
	// HCCollapse: out[t] = sum_s pre[t][s]*h[t][s]; out [rows][cols],
	// h [rows][streams][cols], pre [rows][streams].
	HCCollapse(out, h, pre []float32, rows, streams, cols int)
	// HCExpand: h[t][j] = post[t][j]*y[t] + sum_i comb[t][i][j]*h[t][i],
	// in place; y [rows][cols], post [rows][streams], comb
	// [rows][streams][streams].
	HCExpand(h, y, post, comb []float32, rows, streams, cols int)
	HCHead(a HCHeadArgs)
	HCGate(a HCGateArgs)
	// StoreKV rounds x [rows][cols] to float16 and stores row t in slot
	// (pos+t) mod ringRows of ring [ringRows][cols].
	StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int)
	// Compress feeds tokens to compressors, each of which has rings of its own.
	Compress(all ...CompressArgs)
	IndexTopK(a IndexArgs)
	Attend(a AttendArgs)
	Route(a RouteArgs)
	// ExpertMask sets weights[i] to 0 where ids[i] is not in [start, end);
	// both [n]. In place.
	ExpertMask(weights []float32, ids []int32, n, start, end int)
	// ExpertCompact groups the slots of the experts in [start, end); ids [rows][used].
	// Slots of one expert ascend.
	ExpertCompact(out ExpertGroups, ids []int32, rows, used, experts, start, end int)
	// ExpertGateUp: for every slot of a.Groups, expert e, token t: g = gate[e]·x[t], u =
	// up[e]·x[t], each times the expert's scale; with clamp > 1e-6, g = min(g, clamp) and u
	// is clamped to [-clamp, clamp]; mid[slot] = Weights[slot]*silu(g)*u. A slot in the
	// groups that has weight 0, or an expert outside [a.Start, a.End), gets a row of zeros and no expert is read
	// for it; a slot outside the groups is left unchanged. x [rows][K], mid
	// [rows*Used][F], F = gate.Rows = up.Rows.
	ExpertGateUp(mid, x []float32, gate, up Weight, clamp float32, a ExpertArgs)
	// ExpertDown: out[slot] = down[e]·mid[slot], times the expert's scale, for the slots of
	// a.Groups with a nonzero weight; every other row of out [rows*Used][D] is set to zero. A
	// row of mid of an expert that is not in [a.Start, a.End) is zero: a
	// backend may set its row of out to zero without reading it. With a.Sum the slots of a token
	// are added up as by SumSlots, Sum[t] = out[t*Used] + out[t*Used+1] + ... + Plus[t], and
	// what out holds afterwards is undefined.
	ExpertDown(out, mid []float32, down Weight, a ExpertArgs)
	// SumSlots: out[t] = slots[t*used] + slots[t*used+1] + ... in this order in float32.
	// out [rows][cols].
	SumSlots(out, slots []float32, rows, used, cols int)
	// SumExact: sums[t] = terms[t*count] + terms[t*count+1] + ... exactly, so that
	// the order does not matter; with add set, the sum is added to sums[t]. Every term is
	// first rounded to float16 (ties to even); a term that would become infinite
	// (magnitude 65520 or more) is added unrounded. sums [rows][cols] are multiples of
	// 2^-24. A term that is not finite, or has a magnitude of 2^31 or more, makes its sum
	// NotANumber, which stays. At most 255 terms may be added to a sum, because more
	// could exceed 63 bits.
	SumExact(sums []int64, terms []float32, rows, count, cols int, add bool)
	// RoundSums: out = sums, n multiples of 2^-24 that SumExact has added, each rounded
	// once, to nearest, ties to even. NotANumber becomes the quiet NaN 0x7fc00000.
	RoundSums(out []float32, sums []int64, n int)
	// Add: out = a + b, n elements. out may be a or b.
	Add(out, a, b []float32, n int)
	// ToFloat16 rounds n elements of x to float16, to nearest, ties to even.
	// A value beyond the largest float16 becomes infinite; a NaN becomes
	// quiet and keeps its sign and upper bits.
	ToFloat16(out []uint16, x []float32, n int)
	// FromFloat16: out = x, n elements; exact. NaNs become quiet.
	FromFloat16(out []float32, x []uint16, n int)
	// Clear sets n elements of x to zero.
	Clear(x []float32, n int)
	// Gather: out[i] = x[rows[i]], rows of cols elements.
	Gather(out, x []float32, rows []int32, cols int)
	// CopyColumns: out[r*outCols+c] = x[r*xCols+c], r < rows, c < cols: some
	// columns of one matrix become columns of another. cols is at most outCols
	// and xCols; the other columns of out keep what they hold.
	CopyColumns(out, x []float32, rows, cols, outCols, xCols int)
}

// NotANumber is a sum of SumExact with a term that cannot be added.
const NotANumber int64 = math.MinInt64

// MostExactTerms is the greatest number of terms that SumExact may add to a sum.
const MostExactTerms = 255

// RowsAgree reports whether row i of an op over many rows is bit for bit the
// result of the op over row i alone. A backend that computes GEMM with other
// instructions than GEMV has a method RowsAgree that returns false; its rows
// agree to within float32 rounding.
func RowsAgree(b Backend) bool {
	r, ok := b.(interface{ RowsAgree() bool })
	return !ok || r.RowsAgree()
}

// ValuesMatter reports whether a backend computes. One that only shows what would be
// computed has a method ValuesMatter that returns false, so that callers neither read
// weights or results to check them nor copy what its buffers hold.
func ValuesMatter(b Backend) bool {
	v, ok := b.(interface{ ValuesMatter() bool })
	return !ok || v.ValuesMatter()
}

// Misuse is the value with which an op panics if its arguments break the contract.
type Misuse struct {
	Op  string
	Msg string
}

func (m *Misuse) Error() string { return fmt.Sprintf("%s: %s", m.Op, m.Msg) }
