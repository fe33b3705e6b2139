package decoder

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ringmaster/gguf"
)

// Keys reads the metadata of an architecture and collects the errors, so that one message
// lists all that is wrong with a file. Keys are given without the prefix, the
// architecture's name and a dot. After an error a method returns some value in range.
type Keys struct {
	File *gguf.File
	arch string
	errs []error
}

// NewKeys reads keys of the given architecture.
func NewKeys(f *gguf.File, arch string) *Keys { return &Keys{File: f, arch: arch} }

// Err is the errors so far as one model.FileError, or nil.
func (r *Keys) Err() error { return fileError(r.File, r.errs) }

// Fail adds an error, which will begin with the file's path.
func (r *Keys) Fail(format string, a ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: "+format, append([]any{r.File.Path()}, a...)...))
}

// Name is a key with its prefix.
func (r *Keys) Name(key string) string { return r.arch + "." + key }

// Has reports whether the file has a key.
func (r *Keys) Has(key string) bool { return r.File.Has(r.Name(key)) }

// Number is the integer at key, which must lie in [lo, hi].
func (r *Keys) Number(key string, lo, hi int) int {
	v, ok := r.File.Uint(r.Name(key))
	switch {
	case !ok:
		r.Fail("key %q is missing or not an integer; expected one from %d to %d", r.Name(key), lo, hi)
		return lo
	case v < uint64(lo) || v > uint64(hi):
		r.Fail("key %q is %d; expected %d to %d", r.Name(key), v, lo, hi)
		return lo
	}
	return int(v)
}

// Optional is Number with a default for a missing key.
func (r *Keys) Optional(key string, fallback, lo, hi int) int {
	if !r.Has(key) {
		return fallback
	}
	return r.Number(key, lo, hi)
}

// Float is the first of the keys that exists; it must be positive and finite.
func (r *Keys) Float(keys ...string) float64 {
	for _, key := range keys {
		if !r.Has(key) {
			continue
		}
		v, ok := r.File.Float(r.Name(key))
		if !ok || !(v > 0) || math.IsInf(v, 0) {
			r.Fail("key %q must be a positive number", r.Name(key))
			return 1
		}
		return v
	}
	r.Fail("key %q is missing; expected a positive number", r.Name(keys[0]))
	return 1
}

// OptionalFloat is Float of one key with a default for a missing key.
func (r *Keys) OptionalFloat(key string, fallback float64) float64 {
	if !r.Has(key) {
		return fallback
	}
	return r.Float(key)
}

// Bool is the boolean at key, with a default for a missing key.
func (r *Keys) Bool(key string, fallback bool) bool {
	if !r.Has(key) {
		return fallback
	}
	v, ok := r.File.Bool(r.Name(key))
	if !ok {
		r.Fail("key %q must be a boolean", r.Name(key))
	}
	return v
}

// common are the keys below the architecture that say nothing about what layers compute, or
// that every architecture reads.
var common = strings.Fields(`
	block_count context_length embedding_length vocab_size nextn_predict_layers feed_forward_length leading_dense_block_count
	rope.scaling.finetuned tensor_data_layout`)

// neutral are values with which a key changes nothing.
var neutral = map[string]float64{
	"rope.scaling.attn_factor": 1, "rope.scaling.yarn_attn_factor": 1, "rope.scaling.yarn_log_multiplier": 0,
	"attention.temperature_scale": 0, "attention.temperature_length": 0, "attention.clamp_kqv": 0, "attention.max_alibi_bias": 0,
	"attn_logit_softcapping": 0, "final_logit_softcapping": 0, "router_logit_softcapping": 0, "logit_scale": 1, "residual_scale": 1, "embedding_scale": 1,
	"interleave_moe_layer_step": 1, "moe_every_n_layers": 1,
}

// mayChange reports whether a key has a name of those that change what layers compute.
func mayChange(key string) bool {
	for _, p := range []string{"attention.", "rope.", "expert_", "hyper_connection.", "moe_", "interleave_"} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	for _, part := range []string{"softcapping", "swiglu", "_scale", "_limit", "epsilon", "_norm", "hash_layer"} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return false
}

// RefuseUnknown adds an error for each unknown key of the architecture that may change
// what the layers compute. known has keys without the architecture. It returns the names
// of the other keys that nothing reads. It also checks the version of quantised blocks,
// because a file of another version would be read wrongly.
func (r *Keys) RefuseUnknown(known []string) (unread []string) {
	const version = "general.quantization_version"
	if v, ok := r.File.Int(version); r.File.Has(version) && (!ok || v != 2) {
		r.Fail("key %q is not 2: the blocks of quantised weights have a meaning that this program does not know", version)
	}
	for _, name := range r.File.Keys() {
		key, ours := strings.CutPrefix(name, r.arch+".")
		if !ours || slices.Contains(known, key) || slices.Contains(common, key) {
			continue
		}
		if v, ok := r.File.Float(name); ok && mayChange(key) {
			if x, listed := neutral[key]; listed && v == x {
				continue
			}
		}
		switch {
		case strings.HasPrefix(key, "attention.temperature_"):
			r.Fail("key %q: queries scaled by their position (Mistral Large 3) are not supported", name)
		case mayChange(key):
			r.Fail("key %q is not known and may change what the layers compute", name)
		default:
			unread = append(unread, name)
		}
	}
	return unread
}

// SaysUnread is a remark for a summary about keys that nothing reads, "" for none.
func SaysUnread(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	more := ""
	if n := len(keys) - mostKeys; n > 0 {
		keys, more = keys[:mostKeys], fmt.Sprintf(" and %d more", n)
	}
	return "; keys that are not read: " + strings.Join(keys, ", ") + more
}

// mostKeys bounds the keys that a summary names.
const mostKeys = 8
