package gguf

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fixedKeys cannot be changed, because the file was already read by them: they say how it
// is laid out and name its architecture.
var fixedKeys = []string{keyAlignment, keyArchitecture, keySplitNo, keySplitCount, keySplitTensors}

// Override gives a key of the metadata another value, or adds it, as if the file had it:
// the fingerprint is that of the changed metadata. text is KEY=TYPE:VALUE, TYPE one of
// int, float, bool and str, as llama.cpp's --override-kv takes it. An existing key keeps
// its kind. Arrays, and keys by which the file was read, cannot be changed. It returns
// the former value, or "missing" if the key did not exist. It must not run beside other
// methods.
func (f *File) Override(text string) (was string, err error) {
	key, rest, ok := strings.Cut(text, "=")
	kind, value, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 || key == "" {
		return "", fmt.Errorf("%q is not KEY=TYPE:VALUE with TYPE int, float, bool or str", text)
	}
	if slices.Contains(fixedKeys, key) {
		return "", fmt.Errorf("key %q cannot be changed: the file was read by it", key)
	}
	parsed, err := parseValue(kind, value)
	if err != nil {
		return "", fmt.Errorf("key %q: %w", key, err)
	}
	was = "missing"
	if old, there := f.kv[key]; there {
		was = f.kind(key)
		if _, isArray := arrayValues(old); isArray {
			return "", fmt.Errorf("key %q is an %s, which cannot be changed", key, was)
		}
		if parsed, err = convert(parsed, reflect.TypeOf(old)); err != nil {
			return "", fmt.Errorf("key %q is %s: %w", key, was, err)
		}
	}
	f.kv[key] = parsed
	return was, nil
}

// parseValue reads a value of a type that Override knows. The result has the kind of a
// key that is new to the file.
func parseValue(kind, value string) (any, error) {
	switch kind {
	case "int":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not an integer", value)
		}
		if n >= 0 && n <= math.MaxUint32 {
			return uint32(n), nil
		}
		return n, nil
	case "float":
		x, err := strconv.ParseFloat(value, 32)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			return nil, fmt.Errorf("%q is not a float32", value)
		}
		return float32(x), nil
	case "bool":
		if value != "true" && value != "false" {
			return nil, fmt.Errorf("%q is not true or false", value)
		}
		return value == "true", nil
	case "str":
		return value, nil
	}
	return nil, fmt.Errorf("type %q: expected int, float, bool or str", kind)
}

// convert gives a parsed value the type of the one that it replaces.
func convert(parsed any, to reflect.Type) (any, error) {
	v, out := reflect.ValueOf(parsed), reflect.New(to).Elem()
	wrong := fmt.Errorf("%v does not fit", parsed)
	n, isInt := toInt(v)
	switch {
	case isInt && out.CanInt():
		if out.OverflowInt(n) {
			return nil, wrong
		}
		out.SetInt(n)
	case isInt && out.CanUint():
		if n < 0 || out.OverflowUint(uint64(n)) {
			return nil, wrong
		}
		out.SetUint(uint64(n))
	case v.CanFloat() && out.CanFloat():
		out.SetFloat(v.Float())
	case v.Kind() == to.Kind():
		out.Set(v.Convert(to))
	default:
		return nil, errors.New("the value has another type")
	}
	return out.Interface(), nil
}
