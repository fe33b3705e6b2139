package dialect

import (
	"math"
	"strings"

	"ringmaster/gguf"
)

// Describe returns what the API shows about a model's file; onGPU says whether its tensors
// are in the memory of a GPU.
func Describe(f *gguf.File, onGPU bool) File {
	out := File{Architecture: f.Architecture(), Bytes: f.Size(), Digest: gguf.Digest(f), OnGPU: onGPU, Metadata: map[string]any{}}
	sizes, most := map[gguf.Type]int{}, 0
	for _, t := range f.Tensors() { // a type that ends with most bytes has them when its last tensor is added
		n := int64(1)
		for _, d := range t.Shape {
			n *= d
		}
		out.Parameters += n
		if sizes[t.Type] += len(t.Data); sizes[t.Type] > most {
			most, out.Quantization = sizes[t.Type], strings.ToUpper(t.Type.String())
		}
	}
	for _, key := range f.Keys() {
		if v := shown(f, key); v != nil {
			out.Metadata[key] = v
		}
	}
	return out
}

// maxShown bounds a text of the metadata that the API shows, in bytes: names and
// licences, but no chat template.
const maxShown = 1024

// shown is a value of the metadata as the API shows it; nil for arrays, long texts
// and floats that JSON cannot express.
func shown(f *gguf.File, key string) any {
	if s, ok := f.String(key); ok {
		if len(s) > maxShown {
			return nil
		}
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	if b, ok := f.Bool(key); ok {
		return b
	}
	if n, ok := f.Int(key); ok {
		return n
	}
	if x, ok := f.Float(key); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
		return x
	}
	return nil
}
