package decoder

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"ringmaster/gguf"
	"ringmaster/internal/units"
	"ringmaster/kernels/cpu"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// Row is one line of a memory table.
type Row struct {
	What  string
	Bytes int64
	Note  string
}

// Plan is the memory that a model will need, computed from the file's header.
// All sizes are in bytes.
type Plan struct {
	Name         string         // of the model
	Summary      string         // what its layers are, in a few words
	Layers       int            // of the model
	DenseLayers  int            // of them with a dense FFN in place of experts
	Splits       []bool         // [Layers] whether a stage may begin with the layer
	Span         parallel.Range // layers that the plan is for
	CarriedRow   int64          // bytes of a row between two stages
	Stairs       bool           // its prompts leave rows out of the last layers, except in stages
	Sizes        parallel.Sizes // what a placement divides
	Vocab        int            // rows of the embedding
	Used         int            // experts of a token
	ContextLimit int            // most positions that the file allows
	Context      int            // most positions of a sequence
	MaxTokens    int            // most tokens of a step
	Sequences    int            // most sequences held at once

	Reduce parallel.Reduce
	Wire   parallel.Wire

	Experts int64    // routed experts, mapped
	Dense   int64    // every other weight, mapped
	Divided []Matrix // of Dense: what a placement may divide
	// Embedding is the bytes of Dense from which a token needs one row.
	Embedding int64
	Unread    int64  // mapped and never read
	UnreadOf  string // what of the file that is, and why
	// Tables is the bytes of the tensors named in TableNames (without the layer), which stay on
	// disk: a token needs TableReads rows of them, of TableReadBytes together. TableCache is the
	// most memory that rows which were read take.
	Tables         int64
	TableNames     []string
	TableReads     int
	TableReadBytes int64
	TableCache     int64
	Scratch        int64 // buffers of a step
	Growth         int64 // the smaller cache while a cache grows
	Derived        int64 // weights that are made of others when the file is loaded
	// Of the block for multi-token prediction, which rank 0 alone has:
	DraftWeights int64  // mapped
	DraftScratch int64  // buffers of a step
	DraftCache   int64  // of a sequence of Context positions
	block        string // the beginning of its tensors' names in the model's file; "" for none
	Caches       []Row  // the KV cache of a sequence of Context positions

	// Routed is the shape of the experts and Heads that of the outputs of the groups of
	// attention heads, for the buffers of a group. DenseFFN is that of the outputs of the
	// dense FFN of a layer without experts, which is divided like the shared expert; it
	// has no terms if there is no such FFN.
	Routed   moe.Shape
	Heads    parallel.TermsShape
	DenseFFN parallel.TermsShape
	// GatheredRow is the most bytes of a row that travel together when the rows of a
	// step are divided.
	GatheredRow int64
	// Working is the shape of the steps for the working buffers of the CPU
	// kernels; Threads is the caller's to set.
	Working cpu.Working

	// Set by the caller, because only it knows the backend and the server:
	Kernels int64 // working buffers of the kernels
	Heap    int64 // Go's heap, stacks and runtime
	Budget  int64 // of the KV caches of all sequences; 0: Sequences of full length
	OnGPU   OnGPU // nothing unless the GPU has memory of its own, or the CPU the experts
}

// AddWeights adds the tensors of a file. A stack of one matrix for each expert
// (…_exps.weight) is Experts, what nothing reads Unread, those of TableNames Tables, all
// else Dense. divided names the tensors of Dense that a rank may read in part, without the layer.
func (p *Plan) AddWeights(f *gguf.File, divided map[string]Division, unread Unread) {
	mtp := findMTP(f)
	left := map[string]string{} // why, by name without the layer
	for _, t := range f.Tensors() {
		n := int64(len(t.Data))
		if p.block != "" && strings.HasPrefix(t.Name, p.block) {
			continue // see AddBlock
		}
		layer, local := split(t.Name)
		if why := whyUnread(f, p.Layers, mtp, t.Name, unread); why != "" {
			p.Unread += n
			if layer >= p.Layers {
				local = fmt.Sprintf("blk.%d", layer)
			} else if strings.HasPrefix(local, "mtp.") {
				local = "mtp"
			}
			left[local] = why
			continue
		}
		if layer >= 0 && (layer < p.Span.Start || layer >= p.Span.End) || layer < 0 && p.Span.Start > 0 {
			continue // of other stages; the first has what belongs to no layer
		}
		if slices.Contains(p.TableNames, local) {
			p.Tables += n
			continue
		}
		if len(t.Shape) == 3 && strings.HasSuffix(t.Name, "_exps.weight") {
			p.Experts += n
			continue
		}
		p.Dense += n
		if local == "token_embd.weight" {
			p.Embedding = n
		}
		if by, ok := divided[local]; ok {
			p.Divided = append(p.Divided, matrixOf(t, by))
		}
	}
	var of []string
	for _, name := range slices.Sorted(maps.Keys(left)) {
		of = append(of, fmt.Sprintf("%s (%s)", name, left[name]))
	}
	p.UnreadOf = strings.Join(of, ", ")
}

// AddBlock adds the block for multi-token prediction of o.DraftFile to the plan of the
// model of a file, before AddWeights. shape, step and head are those of its network, and
// cache gives the bytes of its KV cache for steps of at most so many rows.
func (p *Plan) AddBlock(f *gguf.File, o OpenOptions, at BlockNames, shape Shape, step, head func(n int) []Buffer, cache func(rows int) int64) {
	if o.DraftFile == f {
		p.block = at.Layer
	}
	for _, t := range o.DraftFile.Tensors() {
		if strings.HasPrefix(t.Name, at.Layer) {
			p.DraftWeights += int64(len(t.Data))
		}
	}
	of := blockOptions(o)
	p.DraftScratch = shape.NewPlan(of, 1, step, head).Scratch
	if rows := of.MaxTokens; rows > draftedRows {
		p.DraftScratch -= HeadBytes(shape.Vocab, rows, false) - HeadBytes(shape.Vocab, draftedRows, false)
	}
	p.DraftCache = cache(of.MaxTokens) + stateBytes(shape.Width)
}

// SetStages sets what stages depend on, by what a Network says.
func (p *Plan) SetStages(splits func(layer int) bool, carried []Carried) {
	p.Splits = make([]bool, p.Layers)
	for i := range p.Splits {
		p.Splits[i] = splits(i)
	}
	for _, c := range carried {
		p.CarriedRow += 4 * int64(c.Width)
	}
}

// Fixed is the bytes that are needed beside the weights and the KV caches.
func (p Plan) Fixed() int64 { return p.Scratch + p.Growth + p.Derived + p.DraftScratch + p.TableCache }

// PerSequence is the bytes of the KV cache of one sequence of Context tokens.
func (p Plan) PerSequence() (n int64) {
	for _, r := range p.Caches {
		n += r.Bytes
	}
	return n + p.DraftCache
}

func (p Plan) budget() int64 {
	if p.Budget > 0 {
		return p.Budget
	}
	return p.AllSequences()
}

// AllSequences is the bytes of the KV caches of all sequences of Context tokens. If they
// overflow it is a number that no memory has.
func (p Plan) AllSequences() int64 {
	const most = 1 << 60
	n, one := int64(max(p.Sequences, 1)), p.PerSequence()
	if one > 0 && n > most/one {
		return most
	}
	return n * one
}

// AtMost is the most memory that the process uses beside what is mapped.
func (p Plan) AtMost() int64 { return p.Fixed() + p.Kernels + p.Heap + p.budget() }

// Weights is the bytes of the mapped weights that a step reads.
func (p Plan) Weights() int64 { return p.Experts + p.Dense + p.DraftWeights }

// allTogether is the last row of the memory table.
const allTogether = "all together"

// rows is the memory table.
func (p Plan) rows() []Row {
	rows := []Row{
		{"routed experts", p.Experts, "mapped from the file"},
		{"other weights", p.Dense, "mapped from the file"},
	}
	if p.DraftWeights > 0 {
		rows = append(rows, Row{"drafting weights", p.DraftWeights, "mapped from the file, the block for multi-token prediction, on rank 0"},
			Row{"drafting buffers", p.DraftScratch, "likewise"})
	}
	if p.Unread > 0 {
		rows = append(rows, Row{"not read", p.Unread, p.UnreadOf})
	}
	if p.Tables > 0 {
		rows = append(rows,
			Row{"tables", p.Tables, fmt.Sprintf("stay on disk: a token reads %d rows of them, %s", p.TableReads, units.Bytes(p.TableReadBytes))},
			Row{"rows of tables", p.TableCache, "kept after they were read, at most"})
	}
	if p.Derived > 0 {
		rows = append(rows, Row{"derived weights", p.Derived, "attention's keys, transposed, because the file has the old format"})
	}
	rows = append(rows,
		Row{"buffers", p.Scratch, fmt.Sprintf("for steps of %d tokens", p.MaxTokens)},
		Row{"growth of a cache", p.Growth, "while it is copied to a larger one"})
	for _, r := range p.Caches {
		r.What = "KV cache: " + r.What
		rows = append(rows, r)
	}
	if p.DraftCache > 0 {
		rows = append(rows, Row{"KV cache: drafting", p.DraftCache, "each sequence, on rank 0"})
	}
	return append(rows,
		Row{"working buffers", p.Kernels, "of the kernels, at most"},
		Row{"program", p.Heap, "Go's heap, at most: with all requests and their texts that it admits"},
		Row{"KV caches", p.budget(), fmt.Sprintf("all sequences, at most; one of %d tokens takes %s", p.Context, units.Bytes(p.PerSequence()))},
		Row{allTogether, p.AtMost(), "at most, in addition to what is mapped; little of it is used before requests need it"})
}

// Write prints the plan as a table.
func (p Plan) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n", p.Name, p.Summary)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	if p.OnGPU != NothingOnGPU {
		fmt.Fprint(t, "  \tall\ton the GPU\t\n")
	}
	for _, r := range p.rows() {
		fmt.Fprintf(t, "  %s\t%s\t", r.What, units.Bytes(r.Bytes))
		switch {
		case p.OnGPU == NothingOnGPU:
		case r.What == allTogether:
			fmt.Fprintf(t, "%s\t", units.Bytes(p.GPUBytes()))
		case p.onGPU(r.What):
			fmt.Fprintf(t, "%s\t", units.Bytes(r.Bytes))
		default:
			fmt.Fprint(t, "-\t")
		}
		fmt.Fprintf(t, "  %s\t\n", r.Note)
	}
	return t.Flush()
}

// pageSize is the size of a page of the system in bytes.
var pageSize = os.Getpagesize()

// Pages rounds bytes up to whole pages, because the system gives nothing smaller.
func Pages(n int64) int64 {
	page := int64(pageSize)
	return (n + page - 1) / page * page
}
