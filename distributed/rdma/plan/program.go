package plan

import "fmt"

// Space is a piece of a rank's memory.
type Space uint8

// The spaces.
const (
	None    Space = iota // nothing: the message has no content that counts (barrier)
	Src                  // the source of the operation
	Dst                  // its destination; the buffer of a broadcast, the place of a recv
	Scratch              // memory of the engine, one for each rail
	Slot                 // the receive slot of the wire: the chunk stays there for a Reduce
)

func (s Space) String() string { return [...]string{"none", "src", "dst", "scratch", "slot"}[s] }

// Ref is where the chunks of a region lie; see the package comment.
type Ref struct {
	Space  Space
	Off    int64 // bytes, of chunk 0
	Stride int64 // bytes from chunk to chunk
	Window int   // chunks after which the memory is used again, 0 for never
}

// At is the offset in bytes of chunk c.
func (r Ref) At(c int64) int64 {
	if r.Window > 0 {
		c %= int64(r.Window)
	}
	return r.Off + c*r.Stride
}

// Kind is what an Op does.
type Kind uint8

// The kinds. In the program of all ranks a Send and its Recv are one Move.
const (
	Move Kind = iota
	Reduce
	Copy
)

// Dep is something to wait for: chunk c begins when op Op has done chunk c-Back.
type Dep struct{ Op, Back int }

// Input is a block that a Reduce combines.
type Input struct {
	Ref  Ref
	Wide bool // float32 partial sums of a 16-bit type
	// Recv is the op that holds the chunk in its slot; -1 if Ref is memory.
	Recv int
	from *stream
}

// Op is one step of a Program, for all chunks of a region.
type Op struct {
	Kind     Kind
	From, To int // ranks; a Reduce and a Copy have both at the same
	Read     Ref // at From; not of a Reduce
	Write    Ref // at To; Space Slot is a Held receive
	Inputs   []Input
	Elems    int64 // of the region
	Wide     bool  // elements on the wire, and those written, are float32 partial sums
	Lag      int
	// ReadAfter and WriteAfter are what From and To wait for. A Reduce has its
	// waits in WriteAfter.
	ReadAfter, WriteAfter []Dep

	readFrom, writeTo *stream
}

// Program is what all ranks do on one rail.
type Program struct {
	Rail       int
	ChunkElems int64
	Elem       int // bytes of an element
	Ops        []Op
	Scratch    int64 // bytes of scratch memory at every rank
	ranks      int
}

// Chunks is how many chunks op i has.
func (p *Program) Chunks(i int) int64 { return ceil(p.Ops[i].Elems, p.ChunkElems) }

// width is the length in bytes of an element on the wire or in memory.
func (p *Program) width(wide bool) int64 {
	if wide {
		return 4
	}
	return int64(p.Elem)
}

// Rounds is how many rounds the program has.
func (p *Program) Rounds() int64 {
	var n int64
	for i := range p.Ops {
		if c := p.Chunks(i); c > 0 {
			n = max(n, c+int64(p.Ops[i].Lag))
		}
	}
	return n
}

// before tells whether chunk c of op a comes before chunk d of op b in the
// order of the package comment.
func (p *Program) before(a int, c int64, b int, d int64) bool {
	x, y := c+int64(p.Ops[a].Lag), d+int64(p.Ops[b].Lag)
	return x < y || x == y && a < b
}

// Validate proves that the program cannot block: every dependence points
// backward, stays within a rank and ties regions of the same chunks, and a held
// message has nothing behind it on its wire that comes before its release.
func (p *Program) Validate() error {
	const c = 1 << 20 // any chunk: the order is the same for all
	for i := range p.Ops {
		o := &p.Ops[i]
		for _, side := range []struct {
			rank  int
			after []Dep
		}{{o.From, o.ReadAfter}, {o.To, o.WriteAfter}} {
			for _, d := range side.after {
				j := &p.Ops[d.Op]
				if side.rank != j.To && side.rank != j.From {
					return fmt.Errorf("op %d on rank %d waits for op %d between %d and %d", i, side.rank, d.Op, j.From, j.To)
				}
				if j.Elems != o.Elems {
					return fmt.Errorf("op %d of %d elements waits for op %d of %d", i, o.Elems, d.Op, j.Elems)
				}
				if !p.before(d.Op, c-int64(d.Back), i, c) {
					return fmt.Errorf("op %d waits for op %d, which comes after it", i, d.Op)
				}
			}
		}
		if o.Kind != Reduce {
			continue
		}
		for _, in := range o.Inputs {
			if in.Recv < 0 {
				continue
			}
			m := &p.Ops[in.Recv]
			for k := range p.Ops {
				x := &p.Ops[k]
				if x.Kind != Move || x.From != m.From || x.To != m.To || k == in.Recv || x.Elems == 0 {
					continue
				}
				// The chunk of x that is the first after chunk c of m.
				d := c + int64(m.Lag) - int64(x.Lag)
				if k < in.Recv {
					d++
				}
				if p.before(k, d, i, c) {
					return fmt.Errorf("op %d holds a slot for op %d while op %d comes on the same wire", in.Recv, i, k)
				}
			}
			if m.Lag != o.Lag {
				return fmt.Errorf("op %d holds its slot for op %d of another round", in.Recv, i)
			}
		}
	}
	return nil
}
