package decoder

import (
	"fmt"
	"math"

	"ringmaster/gguf"
)

// Keys reads the metadata of an architecture and collects the errors, so that one
// message lists all that is wrong with a file. Keys are given without the prefix, the
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
		r.Fail("key %q is missing or no integer; expected one from %d to %d", r.Name(key), lo, hi)
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
