package cpu

// Working is the shape of a model's steps, as far as the working buffers of the ops
// depend on it.
type Working struct {
	Threads   int
	Rows      int // most tokens of a step
	Cols      int // most columns of a matrix
	Groups    int // of a grouped product
	GroupCols int // its columns
	Hyper     int // rows of the largest matrix of a hyper-connection
	HyperCols int // its columns

	Experts, Used int
	Embd, FF      int // columns of the experts' matrices

	Heads, HeadDim       int
	Attended             int // most rows that a token attends to
	IndexHeads, IndexDim int // 0 without an indexer
	IndexEntries         int // most entries that the indexer scores
	Row                  int // most floats that a worker needs for a row of RoPE, the router or a compressor
}

// Constants of the C code, by file.
const (
	batchRows     = 16        // matmul.h: RM_BATCH
	batchGroup    = 1280      // RM_BATCH_GROUP
	panelGroup    = 1216      // RM_PANEL_GROUP
	panelsBytes   = 512 << 10 // RM_PANELS_BYTES
	tileRows      = 64        // RM_TILE_ROWS
	expertTokens  = 128       // experts.c: TOKENS
	attendTile    = 64        // ops_attend.c: the larger of TILE and VALUE_ROWS, VALUE_COLS
	attendScores  = 1 << 20   // SCORE_BYTES
	attendBatch   = 8 << 20   // BATCH_BYTES, of ops_index.c too
	indexBatch    = 64        // ops_index.c: BATCH
	indexLanes    = 64        // ops_kernels.h: RM_INDEX_LANES
	approxHeads   = 32        // approx_scores.h: RM_APPROX_HEADS
	matmulEntries = 16        // matmul.c: ENTRIES
	pointer       = 8
	floatBytes    = 4
	jobBytes      = 256 // of matmul.c and experts.c, their small structures
)

// Bytes bounds Backend.WorkingBytes. It adds an eighth, because buffers grow by that much
// beyond what is needed. Of buffers that several ops share, the largest counts.
func (w Working) Bytes() int64 {
	rows, threads := int64(w.Rows), int64(w.Threads)
	attended := int64(w.Attended)

	// Shared by the threads; the functions in C that take it are named.
	grouped := rows * int64(w.Groups)
	dense := max(activations(rows, w.Cols), activations(roundUp(rows, batchRows)*int64(w.Groups), w.GroupCols)) +
		(2*(rows+grouped)+rows*int64(w.Groups+matmulEntries))*pointer + int64(w.Groups+matmulEntries)*jobBytes + 64 // run_entries
	slots := rows * int64(w.Used)
	experts := max(activations(rows, w.Embd), activations(slots, w.FF)) +
		int64(w.Experts)*jobBytes + slots*(3*pointer+8) + 64 // rm_expert_gate_up, rm_expert_down
	scores := int64(w.Heads) * (roundUp(attended, 16) + 17) * floatBytes
	each := scores + attended*pointer + jobBytes
	// shared: the addresses of a row are at most twice its scores
	attend := max(each, min(max(4*threads, attendBatch/attendScores)*each, 3*attendBatch+(4*threads+attendBatch/attendScores)*jobBytes))
	hyper := (rows*int64(w.Hyper+1) + int64(w.Hyper)*int64(w.HyperCols)) * floatBytes // products
	index := int64(0)
	if w.IndexHeads > 0 { // place
		lanes, approx := roundUp(int64(w.IndexHeads), indexLanes), roundUp(int64(w.IndexHeads), approxHeads)
		entries, count := int64(w.IndexEntries), min(rows, indexBatch)
		index = count*(lanes*int64(w.IndexDim+1)*floatBytes+approx*int64(4*w.IndexDim+floatBytes)+24) +
			max(min(8*count*entries, attendBatch), 8*entries) + entries/32 + 8192
	}
	shared := max(dense, experts, attend, hyper, index)

	// Of each thread.
	cols := max(w.Cols, w.GroupCols, w.Embd, w.FF)
	tile := max(min(4*panel(cols), max(panel(cols), panelsBytes)), 4*floatBytes*int64(cols)) + 64 // rm_tile_scratch
	quantise := batchRows * activationRow(cols)
	slab := int64(expertTokens/batchRows)*groups(max(w.Embd, w.FF))*batchGroup + tile +
		2*expertTokens*(tileRows*floatBytes+pointer) + 64 // gate_up_scratch
	item := (max(16*int64(w.HeadDim), attendTile*attendTile)+int64(w.Heads))*floatBytes +
		min(attendScores, scores) + attended*pointer // item_bytes
	keys := int64(32*w.IndexDim+8*w.IndexDim)*floatBytes + int64(4*2*32*w.IndexDim*2)
	own := max(tile, quantise, slab, item, keys, int64(w.Row)*floatBytes)
	return (shared + threads*own) * 9 / 8
}

// groups is the number of groups of 32 values in a padded row of activations.
func groups(cols int) int64 { return roundUp(int64(cols), 256) / 32 }

// activationRow is a quantised row of activations (rm_act_bytes).
func activationRow(cols int) int64 { return roundUp(groups(cols)*(64+28), 64) }

// activations is rows of quantised activations, one by one or in batches.
func activations(rows int64, cols int) int64 {
	return max(rows*activationRow(cols), roundUp(rows, batchRows)/batchRows*groups(cols)*batchGroup)
}

// panel is 16 unpacked rows of weights.
func panel(cols int) int64 { return groups(cols) * panelGroup }

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
