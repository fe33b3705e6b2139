package decoder

import (
	"fmt"
	"slices"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
)

// Block is the forward pass of a block for multi-token prediction: one layer with a KV
// cache of its own. A row of it continues the hidden state of a position, and its token
// is the one of the next position; its logits guess the token after that. A step that
// wants no logits only fills the KV cache, for which a row depends on no other.
type Block[C Cache] interface {
	Pass[C]
	// Input is where a row of the next step gets the hidden state that it continues. All
	// rows of a step continue states of the model's layers, or with carried all continue
	// states of the block itself.
	Input(row int, carried bool) []float32
	// Reach is the number of rows that a row attends to, itself included; 0 for all.
	Reach() int
}

// BlockNames is where a file has the tensors of a block for multi-token prediction.
type BlockNames struct {
	Layer string // the beginning of the names of its layer's tensors
	Own   string // likewise, of those that layers lack
}

// FindBlock finds the block for multi-token prediction behind so many layers. The norm of
// the token's embedding marks a block that guesses one token from one hidden state; other
// kinds of drafters that use the same names lack it.
func FindBlock(f *gguf.File, layers int) (BlockNames, bool) {
	var numbers []int
	for i := range findMTP(f) {
		numbers = append(numbers, i)
	}
	slices.Sort(numbers)
	candidates := []BlockNames{}
	for _, i := range numbers {
		if p := fmt.Sprintf("blk.%d.", i); i >= layers {
			candidates = append(candidates, BlockNames{p, p + "nextn."})
		}
	}
	for _, at := range append(candidates, BlockNames{underMTP, underMTP}) {
		if _, ok := f.Tensor(at.Own + "enorm.weight"); ok {
			return at, true
		}
	}
	return BlockNames{}, false
}

// NoBlock is the error about a file without a block that FindBlock finds.
func NoBlock(f *gguf.File) error {
	return &model.FileError{Err: fmt.Errorf("%s has no block for multi-token prediction that this program runs: no tensor nextn.enorm.weight behind the layers and no mtp.0.enorm.weight", f.Path())}
}

// BlockInput holds the weights in front of the layer of a block: a row is
// Token·rms(embedding of its token) + Hidden·rms(hidden state that it continues).
type BlockInput struct {
	Embd       kernels.Weight // [V][D]
	TokenNorm  []float32      // [D]
	HiddenNorm []float32      // [D]
	Token      kernels.Weight // [D][D]
	Hidden     kernels.Weight // [D][D]
}

// BlockInput is the input of a block of a model with the embedding embd.
func (l *Loader) BlockInput(at BlockNames, embd kernels.Weight) BlockInput {
	d := embd.Cols
	in := BlockInput{
		Embd:       embd,
		TokenNorm:  l.Vector(at.Own+"enorm.weight", d),
		HiddenNorm: l.Vector(at.Own+"hnorm.weight", d),
	}
	if _, ok := l.Find(at.Own + "embed_tokens.weight"); ok {
		in.Embd = l.Embedding(at.Own+"embed_tokens.weight", d, embd.Rows)
	}
	if _, parts := l.Find(at.Own + "e_proj.weight"); parts {
		in.Token = l.Matrix(at.Own+"e_proj.weight", d, d, 1)
		in.Hidden = l.Matrix(at.Own+"h_proj.weight", d, d, 1)
		return in
	}
	both := l.Matrix(at.Own+"eh_proj.weight", 2*d, d, 1)
	switch {
	case !both.Exists():
	case d%both.Type.BlockElements() != 0:
		l.Fail("tensor %q of type %s cannot be divided into the columns of its two inputs of %d elements", both.Name, both.Type, d)
	default:
		in.Token, in.Hidden = both.ColumnRange(0, d), both.ColumnRange(d, 2*d)
	}
	return in
}

// BlockOutput is the norm and the matrix of the output head of a block: its own where the
// file has them, otherwise those of the model.
func (l *Loader) BlockOutput(at BlockNames, norm []float32, output kernels.Weight) ([]float32, kernels.Weight) {
	for _, name := range []string{"shared_head_norm.weight", "norm.weight"} {
		if _, ok := l.Find(at.Own + name); ok {
			norm = l.Vector(at.Own+name, len(norm))
			break
		}
	}
	if _, ok := l.Find(at.Own + "shared_head_head.weight"); ok {
		output = l.Matrix(at.Own+"shared_head_head.weight", output.Cols, output.Rows, 1)
	}
	return norm, output
}

// RefuseUnusedOf is RefuseUnused for the tensors of a block. allowed are names without
// their beginning.
func (l *Loader) RefuseUnusedOf(at BlockNames, allowed []string) {
	for _, t := range l.f.Tensors() {
		name, ours := strings.CutPrefix(t.Name, at.Layer)
		if weight, kind := scaled(l.f, t.Name); kind == inputScale && l.found[weight] {
			continue
		}
		if ours && !l.found[t.Name] && !slices.Contains(allowed, name) {
			l.Fail("tensor %q is not part of a block for multi-token prediction as this program knows it", t.Name)
		}
	}
}
