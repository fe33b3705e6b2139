package decoder

import (
	"fmt"
	"strings"

	"ringmaster/gguf"
)

// A block for multi-token prediction (MTP) guesses a token further ahead. It is not part
// of the model's layers: as a layer it would give other tokens. Files have such blocks
// behind the layers. Any tensor named nextn.* or markov_* (DSpark) marks one, because
// programs name the tensors differently (nextn.eh_proj, or nextn.e_proj and nextn.h_proj).

// mtpBlocks are the blocks that have a tensor of multi-token prediction.
type mtpBlocks map[int]bool

// findMTP finds the blocks for multi-token prediction of a file.
func findMTP(f *gguf.File) mtpBlocks {
	blocks := mtpBlocks{}
	for _, t := range f.Tensors() {
		if block, name := split(t.Name); block >= 0 && (strings.HasPrefix(name, "nextn.") || strings.HasPrefix(name, "markov_")) {
			blocks[block] = true
		}
	}
	return blocks
}

// has reports whether a tensor that belongs to no layer belongs to multi-token
// prediction. Blocks without a tensor of their own may lie between those that have one.
// Some files have the tensors under mtp.N.
func (b mtpBlocks) has(block int, name string) bool {
	if block < 0 {
		return strings.HasPrefix(name, "mtp.")
	}
	for i := range b {
		if i >= block {
			return true
		}
	}
	return false
}

// Trunk is the number of layers before the blocks for multi-token prediction at the end
// of a file of so many blocks. Tensors decide, because some files have the key
// nextn_predict_layers without the blocks, and some the blocks without the key.
func (r *Keys) Trunk(blocks int) int {
	counted := max(1, blocks-r.Optional("nextn_predict_layers", 0, 0, blocks))
	mtp, end := findMTP(r.File), blocks
	for i := blocks - 1; i > 0 && (mtp[i] || i >= counted); i-- {
		if mtp[i] {
			end = min(i, counted) // one counted block ends the layers for all counted blocks
		}
	}
	return end
}

// SaysTrunk is a remark for a summary, "" for none: the file counts blocks for
// multi-token prediction and has no tensor of one. Many files have lost the blocks and
// kept the key. The remark names the number, because a block runs as a layer if a file
// has lost only the names.
func (r *Keys) SaysTrunk(blocks int) string {
	n := r.Optional("nextn_predict_layers", 0, 0, blocks)
	if n == 0 {
		return ""
	}
	mtp := findMTP(r.File)
	for _, t := range r.File.Tensors() {
		if block, name := split(t.Name); block >= 0 && mtp[block] || mtp.has(block, name) {
			return ""
		}
	}
	return fmt.Sprintf("; %s is %d, but no tensor belongs to multi-token prediction, so all %d blocks run as layers", r.Name("nextn_predict_layers"), n, blocks)
}

// Companion says what a file is that has tensors for multi-token prediction and no
// layers, "" if it is not such a file.
func Companion(f *gguf.File) string {
	mtp := findMTP(f)
	found := len(mtp) > 0
	for _, t := range f.Tensors() {
		block, name := split(t.Name)
		if block >= 0 && !mtp[block] {
			return ""
		}
		found = found || mtp.has(block, name)
	}
	if !found {
		return ""
	}
	return "only the block for multi-token prediction (MTP), which --drafts mtp:FILE takes"
}

// underMTP begins the names of a block in a file of its own.
const underMTP = "mtp.0."

// within is the name of a tensor within its block.
func within(name string) string {
	_, local := split(name)
	return strings.TrimPrefix(local, underMTP)
}

// split parts the name of a tensor into its block, -1 for none, and the name within it.
func split(name string) (block int, local string) {
	if _, err := fmt.Sscanf(name, "blk.%d.", &block); err != nil || block < 0 {
		return -1, name
	}
	return block, strings.TrimPrefix(name, fmt.Sprintf("blk.%d.", block))
}
