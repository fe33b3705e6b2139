package dialect

import (
	"bytes"
	"encoding/json"
	"iter"
)

// The functions of this file walk a JSON document that json.Valid has accepted, without a
// copy: they yield slices of it. They never panic on a valid document.

// Elements yields the elements of an array, without the space around them.
func Elements(array json.RawMessage) iter.Seq2[int, json.RawMessage] {
	return func(yield func(int, json.RawMessage) bool) {
		rest := afterSpace(array[1:])
		for i := 0; rest[0] != ']'; i++ {
			n := valueLength(rest)
			if !yield(i, rest[:n:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// members yields the members of an object: the names as they are written, with
// their quotes, and the values.
func members(object json.RawMessage) iter.Seq2[json.RawMessage, json.RawMessage] {
	return func(yield func(name, value json.RawMessage) bool) {
		rest := afterSpace(object[1:])
		for rest[0] != '}' {
			n := valueLength(rest)
			name := rest[:n:n]
			rest = afterSpace(afterSpace(rest[n:])[1:]) // the colon
			n = valueLength(rest)
			if !yield(name, rest[:n:n]) {
				return
			}
			rest = afterComma(rest[n:])
		}
	}
}

// Count returns the number of elements of an array, at most limit+1.
func Count(array json.RawMessage, limit int) int {
	n := 0
	for range Elements(array) {
		if n++; n > limit {
			break
		}
	}
	return n
}

// afterSpace returns what follows the space at the start of data.
func afterSpace(data json.RawMessage) json.RawMessage { return bytes.TrimLeft(data, JSONSpace) }

// afterComma returns what follows the comma after a value, or the bracket that closes the
// array or object around the value.
func afterComma(data json.RawMessage) json.RawMessage {
	if data = afterSpace(data); data[0] == ',' {
		data = afterSpace(data[1:])
	}
	return data
}

// valueLength returns the length of the value at the start of data.
func valueLength(data json.RawMessage) int {
	depth := 0
	for i := 0; ; i++ {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
			continue
		case ']', '}':
			depth--
		default:
			if depth == 0 { // a number or a word ends at the first byte that it cannot contain
				n := bytes.IndexAny(data[i:], ",]} \t\r\n")
				if n < 0 {
					return len(data)
				}
				return i + n
			}
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
}
