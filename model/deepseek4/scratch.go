package deepseek4

import "ringmaster/kernels"

// scratch is the buffers of a step, in memory of the backend. T is the most tokens
// of a step.
type scratch struct {
	ids []int32 // [T] token ids
	pos []int32 // [T] positions

	h    []float32 // [T][S][D] hyper-connection streams
	x    []float32 // [T][D] collapsed, then normalised input of a sub-layer
	y    []float32 // [T][D] output of a sub-layer
	pre  []float32 // [T][S] weights of the streams in the sub-layer's input
	post []float32 // [T][S] weights of its output in the streams
	comb []float32 // [T][S][S] mix of the streams

	qr       []float32 // [T][QRank] low-rank query
	q        []float32 // [T][H][hd]
	kv       []float32 // [T][hd]
	attn     []float32 // [T][H][hd] output of the heads
	low      []float32 // [T][OGroups*ORank] low-rank output
	compKV   []float32 // [T][2*hd]
	compGate []float32 // [T][2*hd]
	idxKV    []float32 // [T][2*IndexDim]
	idxGate  []float32 // [T][2*IndexDim]
	idxQ     []float32 // [T][IndexHeads][IndexDim]
	idxW     []float32 // [T][IndexHeads]
	selected []int32   // [T][IndexTopK]

	gate   []float32 // [T][SharedFF]
	up     []float32 // [T][SharedFF]
	shared []float32 // [T][D]

	rows   []int32   // [wanted] rows whose logits are wanted
	picked []float32 // [wanted][S][D] their streams
	headX  []float32 // [wanted][D]
	logits []float32 // [wanted][V]
	wanted int       // capacity of the four above, in rows
}

// f32s lists the float32 buffers of a step of t tokens with their lengths.
func (s *scratch) f32s(c *Config, t int) map[*[]float32]int {
	d, n := c.Embd, c.Streams
	m := map[*[]float32]int{
		&s.h: t * n * d, &s.x: t * d, &s.y: t * d, &s.pre: t * n, &s.post: t * n, &s.comb: t * n * n,
		&s.qr: t * c.QRank, &s.q: t * c.Heads * c.HeadDim, &s.kv: t * c.HeadDim,
		&s.attn: t * c.Heads * c.HeadDim, &s.low: t * c.OGroups * c.ORank,
		&s.gate: t * c.SharedFF, &s.up: t * c.SharedFF, &s.shared: t * d,
	}
	if c.compressed() {
		m[&s.compKV], m[&s.compGate] = t*2*c.HeadDim, t*2*c.HeadDim
	}
	if c.indexed() {
		m[&s.idxKV], m[&s.idxGate] = t*2*c.IndexDim, t*2*c.IndexDim
		m[&s.idxQ], m[&s.idxW] = t*c.IndexHeads*c.IndexDim, t*c.IndexHeads
	}
	return m
}

func newScratch(b kernels.Backend, c *Config, t int) (scratch, error) {
	var s scratch
	var err error
	for p, n := range s.f32s(c, t) {
		if *p, err = kernels.Make[float32](b, n); err != nil {
			return s, err
		}
	}
	if s.ids, err = kernels.Make[int32](b, t); err != nil {
		return s, err
	}
	if s.pos, err = kernels.Make[int32](b, t); err != nil {
		return s, err
	}
	if c.indexed() {
		s.selected, err = kernels.Make[int32](b, t*c.IndexTopK)
	}
	return s, err
}

// scratchBytes is the bytes that newScratch allocates.
func scratchBytes(c *Config, t int) int64 {
	var s scratch
	n := int64(2 * t)
	for _, k := range s.f32s(c, t) {
		n += int64(k)
	}
	if c.indexed() {
		n += int64(t) * int64(c.IndexTopK)
	}
	return 4 * n
}

// reserveHead allocates the buffers of the output head for n rows.
func (s *scratch) reserveHead(b kernels.Backend, c *Config, n int) error {
	if n <= s.wanted {
		return nil
	}
	kernels.Release(b, s.rows)
	kernels.Release(b, s.picked)
	kernels.Release(b, s.headX)
	kernels.Release(b, s.logits)
	s.rows, s.picked, s.headX, s.logits, s.wanted = nil, nil, nil, nil, 0
	var err error
	if s.rows, err = kernels.Make[int32](b, n); err != nil {
		return err
	}
	if s.picked, err = kernels.Make[float32](b, n*c.Streams*c.Embd); err != nil {
		return err
	}
	if s.headX, err = kernels.Make[float32](b, n*c.Embd); err != nil {
		return err
	}
	if s.logits, err = kernels.Make[float32](b, n*c.Vocab); err != nil {
		return err
	}
	s.wanted = n
	return nil
}

func (s *scratch) free(b kernels.Backend) {
	for p := range s.f32s(&Config{Ratios: []int{4}}, 0) {
		kernels.Release(b, *p)
	}
	for _, p := range [][]int32{s.ids, s.pos, s.selected, s.rows} {
		kernels.Release(b, p)
	}
	for _, p := range [][]float32{s.picked, s.headX, s.logits} {
		kernels.Release(b, p)
	}
	*s = scratch{}
}
