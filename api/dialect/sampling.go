package dialect

import (
	"fmt"
	"math"
	"strings"

	"ringmaster/engine"
)

const (
	maxStops     = 16 // OpenAI takes 4
	maxStopBytes = 4096
)

// Stops reads the stop strings: a string or a list of strings.
func Stops(f *Fields, name string) []string {
	raw := f.Get(name)
	if raw == nil {
		return nil
	}
	if KindOf(raw) == "string" {
		return checkStop(f, f.Path+name, nil, Text(raw))
	}
	if KindOf(raw) != "array" {
		f.WrongType(name, "a string or an array of strings", raw)
		return nil
	}
	var out []string
	param := f.Path + name
	for i, item := range f.List(name, maxStops) {
		if KindOf(item) != "string" {
			f.Fail(Invalid(param, "invalid_type", "'%s[%d]' must be a string, not %s.", param, i, Article(KindOf(item))))
			return nil
		}
		out = checkStop(f, param, out, Text(item))
	}
	return out
}

func checkStop(f *Fields, param string, stops []string, stop string) []string {
	if stop == "" {
		f.Fail(Invalid(param, "invalid_value", "'%s' must not be an empty string: it would match any text.", param))
		return nil
	}
	if len(stop) > maxStopBytes {
		f.Fail(Invalid(param, "invalid_value", "'%s' contains a string of %d bytes; at most %d are allowed.", param, len(stop), maxStopBytes))
		return nil
	}
	return append(stops, stop)
}

// Sampling reads the fields that all dialects call the same. The defaults are those
// recommended for the model: temperature 1, top_p 1, everything else off.
func Sampling(f *Fields) engine.Sampling {
	s := engine.Sampling{
		Temperature: f.Number("temperature", 1, 0, 2),
		TopP:        f.Number("top_p", 1, 0, 1),
		TopK:        max(0, int(f.Integer("top_k", 0, -1, math.MaxInt32))), // -1 also means off
		MinP:        f.Number("min_p", 0, 0, 1),
	}
	if s.TopP == 0 {
		// For a client 0 selects the smallest nucleus, one token; for the engine it means
		// off.
		s.TopP = math.SmallestNonzeroFloat64
	}
	return s
}

// EachObject reads a member that is an array of at most the given number of objects, and
// calls read for each. It stops at the first error and f adopts it.
func (f *Fields) EachObject(name string, most int, read func(i int, o *Fields)) {
	for i, raw := range f.List(name, most) {
		if f.Cancelled() {
			return
		}
		o := &Fields{Path: fmt.Sprintf("%s%s[%d].", f.Path, name, i), Ctx: f.Ctx}
		if KindOf(raw) != "object" {
			at := strings.TrimSuffix(o.Path, ".")
			f.Fail(Invalid(at, "invalid_type", "'%s' must be an object, not %s.", at, Article(KindOf(raw))))
			return
		}
		o.ReadMembers(raw, MaxMembers)
		read(i, o)
		if f.Adopt(o); f.Err != nil {
			return
		}
	}
}

// TextOrObjects reads a member that is a string, for text, or an array of at most the
// given number of objects, each for read. items says to the client what they are.
func (f *Fields) TextOrObjects(name, items string, most int, text func(string), read func(o *Fields)) {
	raw := f.Get(name)
	switch {
	case raw == nil:
	case KindOf(raw) == "string":
		text(Text(raw))
	case KindOf(raw) != "array":
		f.WrongType(name, "a string or an array of "+items, raw)
	default:
		f.EachObject(name, most, func(_ int, o *Fields) { read(o) })
	}
}
