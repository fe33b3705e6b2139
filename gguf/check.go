package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// The value kinds of GGUF metadata (ggml.h, gguf_type) that a Writer does not
// write; the others are in writer_part.go.
const (
	kindUint8   = 0
	kindInt8    = 1
	kindInt16   = 3
	kindInt64   = 11
	kindFloat64 = 12
)

// kindSizes is the size in bytes of a value of each fixed-size kind.
var kindSizes = map[uint32]int{
	kindUint8: 1, kindInt8: 1, kindBool: 1, kindUint16: 2, kindInt16: 2,
	kindUint32: 4, kindInt32: 4, kindFloat32: 4,
	kindUint64: 8, kindInt64: 8, kindFloat64: 8,
}

// Keys that describe the container itself.
const (
	keyAlignment      = "general.alignment"
	keyArchitecture   = "general.architecture"
	keyParameterCount = "general.parameter_count"
)

// Limits of a sane header. They exist because a hostile file must not decide how much the
// reader allocates. Real models stay far below: DeepSeek V4 Pro with every expert as a
// tensor of its own has about 70,000 tensors, and no published file has 1,000 keys.
const (
	maxKeys      = 1 << 14
	maxTensors   = 1 << 17
	maxNameBytes = 1<<16 - 1 // GGUF's limit for a key
	maxDims      = 4         // GGML_MAX_DIMS
	minAlignment = 8
	maxAlignment = 1 << 16

	minKeyBytes    = 8 + 1 + 4 + 1         // length, one character, kind, one byte of value
	minTensorBytes = 8 + 1 + 4 + 8 + 4 + 8 // length, one character, dims, one dim, type, offset
)

// header is what checkHeader learned about a valid file.
type header struct {
	version   uint32
	keys      int
	tensors   int
	alignment int64
	end       int64 // bytes of the header
	data      int64 // offset of the data section: end, padded to the alignment
	// parameterCount is the file's own value of general.parameter_count, nil if absent.
	// It is kept because the library's decoder replaces it by a count of its own.
	parameterCount any
	// foreign is what this program does not compute with: the architecture, and the types
	// of tensors. Sizes of such tensors are not checked, because their block layouts are
	// not known. A header with any is not decoded.
	foreign ForeignTypes
}

// span is a byte range of the header. It refers to a name without a copy.
type span struct{ at, n int }

// extent is a tensor's position in the file.
type extent struct {
	name         span
	offset, size int64 // from the start of the data section
}

// checkHeader walks the header in data, the whole contents of a file, and checks every
// count, length, offset and size in it against the file. It decodes nothing, and the
// bytes that the file has bound what it allocates. Only a header that passes is given to
// the library's decoder, because that decoder trusts its input. Errors name the key or
// tensor, not the file.
func checkHeader(data []byte) (header, error) {
	h := header{alignment: 32}
	c := &cursor{data: data}
	if len(data) < 24 {
		return h, fmt.Errorf("%d bytes; a GGUF header has at least 24%s", len(data), insteadOf(data))
	}
	if err := checkVersion(c, &h); err != nil {
		return h, err
	}
	tensors, keys := c.uint64(), c.uint64()
	switch left := uint64(c.left()); {
	case keys > left/minKeyBytes:
		return h, fmt.Errorf("header claims %d keys, but only %d bytes follow (a key has at least %d)", keys, left, minKeyBytes)
	case tensors > left/minTensorBytes:
		return h, fmt.Errorf("header claims %d tensors, but only %d bytes follow (a tensor's entry has at least %d)", tensors, left, minTensorBytes)
	case keys > maxKeys:
		return h, fmt.Errorf("header claims %d keys; expected at most %d", keys, maxKeys)
	case tensors > maxTensors:
		return h, fmt.Errorf("header claims %d tensors; expected at most %d", tensors, maxTensors)
	}
	h.keys, h.tensors = int(keys), int(tensors)
	if err := checkKeys(c, &h); err != nil {
		return h, err
	}
	extents, err := checkTensors(c, &h)
	if err != nil {
		return h, err
	}
	h.end = int64(c.pos)
	h.data = (h.end + h.alignment - 1) / h.alignment * h.alignment
	if err := checkExtents(c, &h, extents); err != nil {
		return h, err
	}
	return h, nil
}

// insteadOf says what a failed download left at the path of a model, "" if that is not
// known.
func insteadOf(data []byte) string {
	start := strings.ToLower(string(bytes.TrimSpace(data[:min(len(data), 64)])))
	switch {
	case strings.HasPrefix(start, "version https://git-lfs"):
		return "; it is a Git LFS pointer in place of the file: run git lfs pull in its repository, or fetch the file with ringmaster pull"
	case strings.HasPrefix(start, "<!doctype"), strings.HasPrefix(start, "<html"), strings.HasPrefix(start, "<?xml"):
		return "; it is a web page in place of the file: fetch the file with ringmaster pull"
	case strings.HasPrefix(start, "{"):
		return "; it looks like JSON (perhaps the error of a server) or safetensors: fetch the GGUF file with ringmaster pull"
	}
	return ""
}

// checkVersion reads the magic and the version.
func checkVersion(c *cursor, h *header) error {
	if magic := c.take(4); string(magic) != "GGUF" {
		return fmt.Errorf("not a GGUF file: starts with %q, not with \"GGUF\"%s", magic, insteadOf(c.data))
	}
	h.version = c.uint32()
	switch swapped := bits.ReverseBytes32(h.version); {
	case h.version == 2 || h.version == 3:
		return nil
	case h.version == 1:
		return fmt.Errorf("GGUF version 1; expected 2 or 3 (convert the model again with a current converter)")
	case swapped >= 1 && swapped <= 3:
		return fmt.Errorf("big-endian GGUF version %d; expected little endian", swapped)
	default:
		return fmt.Errorf("GGUF version %d; expected 2 or 3", h.version)
	}
}

// checkKeys walks the metadata.
func checkKeys(c *cursor, h *header) error {
	names := make([]span, 0, h.keys)
	for i := range h.keys {
		at, key, err := c.name()
		if err != nil {
			return fmt.Errorf("key %d of %d: %w", i+1, h.keys, err)
		}
		names = append(names, span{at, len(key)})
		kind := c.uint32()
		if c.short {
			return fmt.Errorf("key %q: file ends before its type", key)
		}
		start := c.pos
		if err := checkValue(c, kind); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		switch string(key) {
		case keyAlignment:
			err = checkAlignment(kind, c.data[start:c.pos], h)
		case keyArchitecture:
			if kind != kindString {
				err = fmt.Errorf("key %q is %s; expected a string", key, kindName(kind))
			} else {
				h.foreign.Architecture = string(c.data[start+8 : c.pos])
			}
		case keyParameterCount:
			if h.parameterCount = integer(kind, c.data[start:c.pos]); h.parameterCount == nil {
				err = fmt.Errorf("key %q is %s; expected an integer", key, kindName(kind))
			}
		}
		if err != nil {
			return err
		}
	}
	if name, ok := duplicate(c.data, names); ok {
		return fmt.Errorf("key %q occurs twice in the header", name)
	}
	return nil
}

// checkValue walks one value of the given kind.
func checkValue(c *cursor, kind uint32) error {
	switch kind {
	case kindString:
		return c.skipString()
	case kindArray:
		return checkArray(c)
	}
	size, ok := kindSizes[kind]
	if !ok {
		return fmt.Errorf("value type %d; expected 0 to 12", kind)
	}
	value := c.take(size)
	if c.short {
		return fmt.Errorf("file ends inside its value")
	}
	if kind == kindBool && value[0] > 1 {
		return fmt.Errorf("bool of value %d; expected 0 or 1", value[0])
	}
	return nil
}

func checkArray(c *cursor) error {
	kind, count := c.uint32(), c.uint64()
	if c.short {
		return fmt.Errorf("file ends inside the header of its array")
	}
	size, ok := kindSizes[kind]
	switch {
	case kind == kindArray:
		return fmt.Errorf("array of arrays; expected an array of numbers, bools or strings")
	case kind == kindString:
		size = 8 // of an empty string: its length alone
	case !ok:
		return fmt.Errorf("array of value type %d; expected 0 to 12", kind)
	}
	if left := uint64(c.left()); count > left/uint64(size) {
		return fmt.Errorf("array claims %d values of at least %d bytes, but only %d bytes follow", count, size, left)
	}
	if kind == kindString {
		for i := range count {
			if err := c.skipString(); err != nil {
				return fmt.Errorf("string %d of %d: %w", i, count, err)
			}
		}
		return nil
	}
	values := c.take(int(count) * size)
	if kind == kindBool {
		if i := slices.IndexFunc(values, func(b byte) bool { return b > 1 }); i >= 0 {
			return fmt.Errorf("bool %d of %d has value %d; expected 0 or 1", i, count, values[i])
		}
	}
	return nil
}

// checkAlignment reads general.alignment. Only a uint32 counts, because GGUF says so and
// the library and llama.cpp read nothing else.
func checkAlignment(kind uint32, value []byte, h *header) error {
	if kind != kindUint32 {
		return fmt.Errorf("key %q is %s; expected uint32", keyAlignment, kindName(kind))
	}
	a := binary.LittleEndian.Uint32(value)
	if bits.OnesCount32(a) != 1 || a < minAlignment || a > maxAlignment {
		return fmt.Errorf("key %q is %d; expected a power of two from %d to %d", keyAlignment, a, minAlignment, maxAlignment)
	}
	h.alignment = int64(a)
	return nil
}

// checkTensors walks the tensor entries. The extents that it returns are within
// int64 but not yet checked against the file.
func checkTensors(c *cursor, h *header) ([]extent, error) {
	extents := make([]extent, 0, h.tensors)
	names := make([]span, 0, h.tensors)
	for i := range h.tensors {
		at, name, err := c.name()
		if err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i+1, h.tensors, err)
		}
		t, size, err := checkShape(c)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		offset := c.uint64()
		switch {
		case c.short:
			return nil, fmt.Errorf("tensor %q: file ends inside its entry", name)
		case offset%uint64(h.alignment) != 0:
			return nil, fmt.Errorf("tensor %q: offset %d; expected a multiple of the alignment %d", name, offset, h.alignment)
		case offset > math.MaxInt64:
			return nil, fmt.Errorf("tensor %q: offset %d lies beyond any file", name, offset)
		}
		names = append(names, span{at, len(name)})
		if !t.Known() {
			h.foreign.add(t, name)
			continue
		}
		extents = append(extents, extent{span{at, len(name)}, int64(offset), size})
	}
	if name, ok := duplicate(c.data, names); ok {
		return nil, fmt.Errorf("tensor %q occurs twice in the header", name)
	}
	return extents, nil
}

// checkShape reads the dimensions and the type of a tensor and returns the type and the
// size in bytes, 0 for a type that is not known.
func checkShape(c *cursor) (Type, int64, error) {
	dims := c.uint32()
	if !c.short && (dims < 1 || dims > maxDims) {
		return 0, 0, fmt.Errorf("%d dimensions; expected 1 to %d", dims, maxDims)
	}
	var shape [maxDims]uint64
	for i := range dims {
		shape[i] = c.uint64()
	}
	t := Type(c.uint32())
	if c.short {
		return 0, 0, fmt.Errorf("file ends inside its entry")
	}
	if !t.Known() {
		return t, 0, nil
	}
	if shape[0]%uint64(t.BlockElements()) != 0 {
		return 0, 0, fmt.Errorf("rows of %d elements; %s needs a multiple of %d", shape[0], t, t.BlockElements())
	}
	elements, size := uint64(1), uint64(t.BlockBytes())
	for i, n := range shape[:dims] {
		if n < 1 {
			return 0, 0, fmt.Errorf("dimension %d is 0; expected 1 or more", i)
		}
		blocks := n
		if i == 0 {
			blocks /= uint64(t.BlockElements())
		}
		var over1, over2 uint64
		over1, elements = bits.Mul64(elements, n)
		over2, size = bits.Mul64(size, blocks)
		if over1|over2 != 0 || elements > math.MaxInt64 || size > math.MaxInt64 {
			return 0, 0, fmt.Errorf("shape %v: number of elements overflows", shape[:dims])
		}
	}
	return t, int64(size), nil
}

// checkExtents checks that all tensors are inside the file and do not overlap.
// They may be in any order.
func checkExtents(c *cursor, h *header, extents []extent) error {
	room := int64(len(c.data)) - h.data
	for _, e := range extents {
		if e.offset > room || e.size > room-e.offset {
			return fmt.Errorf("tensor %q: %d bytes at offset %d of the data section, which has %d bytes: the file is cut short or damaged",
				c.span(e.name), e.size, e.offset, max(room, 0))
		}
	}
	slices.SortFunc(extents, func(a, b extent) int {
		switch {
		case a.offset < b.offset:
			return -1
		case a.offset > b.offset:
			return 1
		}
		return a.name.at - b.name.at
	})
	for i := 1; i < len(extents); i++ {
		if a, b := extents[i-1], extents[i]; a.offset+a.size > b.offset {
			return fmt.Errorf("tensor %q starts at offset %d inside tensor %q, which ends at %d",
				c.span(b.name), b.offset, c.span(a.name), a.offset+a.size)
		}
	}
	return nil
}

// duplicate finds a name that occurs more than once in names. It reorders
// names.
func duplicate(data []byte, names []span) (string, bool) {
	text := func(s span) []byte { return data[s.at : s.at+s.n] }
	slices.SortFunc(names, func(a, b span) int { return bytes.Compare(text(a), text(b)) })
	for i := 1; i < len(names); i++ {
		if bytes.Equal(text(names[i-1]), text(names[i])) {
			return string(text(names[i])), true
		}
	}
	return "", false
}
