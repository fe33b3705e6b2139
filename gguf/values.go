package gguf

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/ollama/ollama/fs/ggml"
)

// The reasons why a Require method fails.
var (
	// ErrMissing: the file does not have the key.
	ErrMissing = errors.New("is missing")
	// ErrKind: the value has another kind, or is out of the range asked for.
	ErrKind = errors.New("has the wrong type")
)

// Has reports whether the metadata has the key, of whatever kind.
func (f *File) Has(key string) bool { _, ok := f.kv[key]; return ok }

// Keys returns all keys, sorted.
func (f *File) Keys() []string { return slices.Sorted(maps.Keys(f.kv)) }

// Architecture is the value of general.architecture, "" if there is none.
func (f *File) Architecture() string { s, _ := f.String(keyArchitecture); return s }

// String returns the string at key; false if it is missing or not a string.
func (f *File) String(key string) (string, bool) { return found(f.RequireString(key)) }

// Bool returns the bool at key; false if it is missing or not a bool.
func (f *File) Bool(key string) (value, ok bool) { return found(f.RequireBool(key)) }

// Uint returns the integer at key, stored in any width, signed or not; false if
// it is missing, not an integer, or negative.
func (f *File) Uint(key string) (uint64, bool) { return found(f.RequireUint(key)) }

// Int returns the integer at key, stored in any width, signed or not; false if
// it is missing, not an integer, or above the largest int64.
func (f *File) Int(key string) (int64, bool) { return found(f.RequireInt(key)) }

// Float returns the number at key: a float32, a float64 or an integer; false if
// it is missing or not a number.
func (f *File) Float(key string) (float64, bool) { return found(f.RequireFloat(key)) }

// Strings returns the array of strings at key; false if it is missing or something else.
// Callers must not change it.
func (f *File) Strings(key string) ([]string, bool) { return found(f.RequireStrings(key)) }

// Ints returns the array of integers at key, stored in any width; a single
// integer counts as an array of one. False if it is missing, something else, or
// a value is above the largest int64.
func (f *File) Ints(key string) ([]int64, bool) { return found(f.RequireInts(key)) }

// Floats returns the array of numbers at key, floats or integers of any width;
// a single number counts as an array of one. False if it is missing or
// something else.
func (f *File) Floats(key string) ([]float64, bool) { return found(f.RequireFloats(key)) }

// Bools returns the array of bools at key; false if it is missing or something else.
func (f *File) Bools(key string) ([]bool, bool) { return found(f.RequireBools(key)) }

// RequireString is String with an error that names the file and the key, what
// was found and what was expected; it wraps ErrMissing or ErrKind.
func (f *File) RequireString(key string) (string, error) {
	if s, ok := f.kv[key].(string); ok {
		return s, nil
	}
	return "", f.unfit(key, "a string")
}

// RequireBool is Bool with an error like RequireString's.
func (f *File) RequireBool(key string) (bool, error) {
	if b, ok := f.kv[key].(bool); ok {
		return b, nil
	}
	return false, f.unfit(key, "a bool")
}

// RequireUint is Uint with an error like RequireString's.
func (f *File) RequireUint(key string) (uint64, error) {
	v := reflect.ValueOf(f.kv[key])
	if v.IsValid() && v.CanUint() {
		return v.Uint(), nil
	}
	if v.IsValid() && v.CanInt() && v.Int() >= 0 {
		return uint64(v.Int()), nil
	}
	return 0, f.unfit(key, "an integer of 0 or more")
}

// RequireInt is Int with an error like RequireString's.
func (f *File) RequireInt(key string) (int64, error) {
	if n, ok := toInt(reflect.ValueOf(f.kv[key])); ok {
		return n, nil
	}
	return 0, f.unfit(key, "an integer")
}

// RequireFloat is Float with an error like RequireString's.
func (f *File) RequireFloat(key string) (float64, error) {
	if x, ok := toFloat(reflect.ValueOf(f.kv[key])); ok {
		return x, nil
	}
	return 0, f.unfit(key, "a number")
}

// RequireStrings is Strings with an error like RequireString's.
func (f *File) RequireStrings(key string) ([]string, error) {
	values, ok := arrayValues(f.kv[key])
	if !ok || values.Type().Elem().Kind() != reflect.String {
		return nil, f.unfit(key, "an array of strings")
	}
	// The library's array type is private. Its accessor returns the slice without a copy,
	// but it prefixes the architecture to keys that do not start with "general." or
	// "tokenizer.".
	return ggml.KV{"general.array": f.kv[key]}.Strings("general.array"), nil
}

// RequireInts is Ints with an error like RequireString's.
func (f *File) RequireInts(key string) ([]int64, error) {
	if out, ok := toSlice(f.kv[key], toInt); ok {
		return out, nil
	}
	return nil, f.unfit(key, "an array of integers")
}

// RequireFloats is Floats with an error like RequireString's.
func (f *File) RequireFloats(key string) ([]float64, error) {
	if out, ok := toSlice(f.kv[key], toFloat); ok {
		return out, nil
	}
	return nil, f.unfit(key, "an array of numbers")
}

// RequireBools is Bools with an error like RequireString's.
func (f *File) RequireBools(key string) ([]bool, error) {
	if _, ok := arrayValues(f.kv[key]); ok {
		if out, ok := toSlice(f.kv[key], toBool); ok {
			return out, nil
		}
	}
	return nil, f.unfit(key, "an array of bools")
}

// found converts an error to false.
func found[T any](v T, err error) (T, bool) { return v, err == nil }

// unfit is the error for a value that is not what the caller expected.
func (f *File) unfit(key, want string) error {
	if !f.Has(key) {
		return fmt.Errorf("%s: key %q %w; expected %s", f.path, key, ErrMissing, want)
	}
	return fmt.Errorf("%s: key %q %w: it is %s; expected %s", f.path, key, ErrKind, f.kind(key), want)
}

// kind describes the value at key for an error: "uint32 7", "string",
// "array of 3 int32".
func (f *File) kind(key string) string {
	v := f.kv[key]
	if values, ok := arrayValues(v); ok {
		return fmt.Sprintf("array of %d %s", values.Len(), values.Type().Elem())
	}
	if s, ok := v.(string); ok {
		return fmt.Sprintf("string of %d bytes", len(s))
	}
	return fmt.Sprintf("%T %v", v, v)
}

// arrayValues is the slice inside an array value of the library. It uses reflection
// because the type is private; elements can be read that way, but not set or extracted.
func arrayValues(v any) (reflect.Value, bool) {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	values := p.Elem().FieldByName("values")
	return values, values.Kind() == reflect.Slice
}

// toSlice converts every value of an array, or a single value, with one.
func toSlice[T any](v any, one func(reflect.Value) (T, bool)) ([]T, bool) {
	values, ok := arrayValues(v)
	if !ok {
		x, ok := one(reflect.ValueOf(v))
		return []T{x}, ok
	}
	// An empty array of another kind is still of the wrong kind.
	if _, ok := one(reflect.Zero(values.Type().Elem())); !ok {
		return nil, false
	}
	out := make([]T, values.Len())
	for i := range out {
		if out[i], ok = one(values.Index(i)); !ok {
			return nil, false
		}
	}
	return out, true
}

func toInt(v reflect.Value) (int64, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return v.Int(), true
	case v.CanUint() && v.Uint() <= math.MaxInt64:
		return int64(v.Uint()), true
	}
	return 0, false
}

func toBool(v reflect.Value) (value, ok bool) {
	if v.Kind() != reflect.Bool {
		return false, false
	}
	return v.Bool(), true
}

func toFloat(v reflect.Value) (float64, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanFloat():
		return v.Float(), true
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	}
	return 0, false
}
