package hyper

import (
	"math"

	"ringmaster/model/decoder"
)

// PerLayer is an array of one number for each layer, or one number for all. fallback is used
// when the key is missing; nil makes that an error. The numbers are clamps.
func PerLayer(r *decoder.Keys, key string, layers int, fallback []float32) []float32 {
	out := make([]float32, layers)
	vs, ok := r.File.Floats(r.Name(key))
	switch {
	case !r.Has(key) && fallback != nil:
		copy(out, fallback)
	case !ok:
		r.Fail("key %q is missing or not an array of numbers", r.Name(key))
	case len(vs) == 1:
		for i := range out {
			out[i] = float32(vs[0])
		}
	case len(vs) < layers:
		r.Fail("key %q has %d values for %d layers", r.Name(key), len(vs), layers)
	default:
		for i := range out {
			out[i] = float32(vs[i])
		}
	}
	for i, v := range out {
		if math.IsNaN(float64(v)) || v < 0 {
			r.Fail("key %q: value %d is %v; expected 0 (no clamp) or more", r.Name(key), i, v)
		}
	}
	return out
}

// CheckGating accepts sqrt(softplus) as number 4, as text, and by default.
func CheckGating(r *decoder.Keys, name string) {
	key := r.Name(name)
	if !r.File.Has(key) {
		return
	}
	if s, ok := r.File.String(key); ok && s == "sqrtsoftplus" {
		return
	}
	if n, ok := r.File.Uint(key); !ok || n != 4 {
		r.Fail("key %q must be 4 (sqrt of softplus), the only gate of this architecture", key)
	}
}

// ReadYaRN reads the YaRN of the compressed layers.
func ReadYaRN(r *decoder.Keys) (y decoder.YaRN) {
	y = decoder.YaRN{Factor: 1}
	kind, ok := r.File.String(r.Name("rope.scaling.type"))
	if ok && kind == "none" || !ok && !r.Has("rope.scaling.factor") {
		return y
	}
	if ok && kind != "yarn" {
		r.Fail("key %q is %q; expected yarn or none", r.Name("rope.scaling.type"), kind)
		return y
	}
	y = decoder.YaRN{
		Factor:   r.Float("rope.scaling.factor"),
		Original: r.Number("rope.scaling.original_context_length", 1, 1<<30),
		BetaFast: r.Float("rope.scaling.yarn_beta_fast"),
		BetaSlow: r.Float("rope.scaling.yarn_beta_slow"),
	}
	y.Check(r)
	return y
}
