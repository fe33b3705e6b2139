package plan

// Space is a piece of a rank's memory.
type Space uint8

// The spaces.
const (
	None    Space = iota // the message has no content (barrier)
	Src                  // the source of the operation
	Dst                  // its destination; the buffer of a broadcast, the place of a recv
	Scratch              // memory of the engine, one for each rail
	Slot                 // the receive slot of the wire, where the chunk stays for a Reduce
)

func (s Space) String() string { return [...]string{"none", "src", "dst", "scratch", "slot"}[s] }

// Ref is where the chunks of a region lie; see the package comment.
type Ref struct {
	Space  Space
	Off    int64 // bytes, of chunk 0
	Stride int64 // bytes from chunk to chunk
	Window int   // chunks after which the memory is reused, 0 for never
}

// Kind is what an Op does.
type Kind uint8

// The kinds. In the program of all ranks a Send and its Recv are one Move.
const (
	Move Kind = iota
	Reduce
	Copy
)

// Dep is a wait: chunk c begins when op Op has done chunk c-Back.
type Dep struct{ Op, Back int }

// Input is a block that a Reduce combines.
type Input struct {
	Ref  Ref
	Wide bool // float32 partial sums of a 16-bit type
	// Recv is the op that holds the chunk in its slot; -1 if Ref is memory.
	Recv int
	from *scratchRegion
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
	// ReadAfter and WriteAfter are the waits of From and To. A Reduce has its
	// waits in WriteAfter.
	ReadAfter, WriteAfter []Dep

	rails             int // that do the same with other parts of the block
	readFrom, writeTo *scratchRegion
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

// Chunks returns how many chunks op i has.
func (p *Program) Chunks(i int) int64 { return ceil(p.Ops[i].Elems, p.ChunkElems) }

// width returns the length in bytes of an element on the wire or in memory.
func (p *Program) width(wide bool) int64 {
	if wide {
		return 4
	}
	return int64(p.Elem)
}

// lag returns the greatest lag of an op.
func (p *Program) lag() int64 {
	n := 0
	for i := range p.Ops {
		n = max(n, p.Ops[i].Lag)
	}
	return int64(n)
}

// Rounds returns how many rounds the program has.
func (p *Program) Rounds() int64 {
	var n int64
	for i := range p.Ops {
		if c := p.Chunks(i); c > 0 {
			n = max(n, c+int64(p.Ops[i].Lag))
		}
	}
	return n
}
