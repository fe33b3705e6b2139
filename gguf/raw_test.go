package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// raw builds the bytes of a GGUF file without any checks, so that tests can
// write what a Writer rejects. Counts are the numbers of calls unless set.
type raw struct {
	version       uint32
	kvs, infos    []byte
	keys, tensors uint64
	alignment     int
	size          int // of the data section
}

func newRaw() *raw { return &raw{version: 3, alignment: 32} }

func rawString(s string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
}

// le is the little-endian bytes of v.
func le(v any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// kv adds a key with a value of the given kind, as bytes.
func (r *raw) kv(key string, kind uint32, value []byte) *raw {
	r.keys++
	r.kvs = append(append(append(r.kvs, rawString(key)...), le(kind)...), value...)
	return r
}

// array adds an array of the given kind; body is the bytes of its values.
func (r *raw) array(key string, kind uint32, count uint64, body []byte) *raw {
	return r.kv(key, kindArray, append(append(le(kind), le(count)...), body...))
}

// tensor adds an entry, and extends the data section by size bytes at offset.
func (r *raw) tensor(name string, t Type, offset uint64, size int, shape ...uint64) *raw {
	r.tensors++
	r.infos = append(r.infos, rawString(name)...)
	r.infos = append(r.infos, le(uint32(len(shape)))...)
	for _, n := range shape {
		r.infos = append(r.infos, le(n)...)
	}
	r.infos = append(append(r.infos, le(uint32(t))...), le(offset)...)
	if size > 0 {
		r.size = max(r.size, int(offset)+size)
	}
	return r
}

// header returns all bytes before the data section, including padding.
func (r *raw) header() []byte {
	b := append([]byte("GGUF"), le(r.version)...)
	b = append(append(b, le(r.tensors)...), le(r.keys)...)
	b = append(append(b, r.kvs...), r.infos...)
	return append(b, make([]byte, (r.alignment-len(b)%r.alignment)%r.alignment)...)
}

// bytes returns the whole file; byte i of the data section is i mod 251.
func (r *raw) bytes() []byte {
	b := r.header()
	for i := range r.size {
		b = append(b, byte(i%251))
	}
	return b
}

// everyKind has a key "k.NAME" for each scalar kind and "k.NAMEs" for an array
// of it.
func everyKind() *raw {
	r := newRaw().kv(keyArchitecture, kindString, rawString("test"))
	values := map[uint32]any{
		kindUint8: []uint8{200, 1}, kindInt8: []int8{-100, 1}, kindUint16: []uint16{60000, 1}, kindInt16: []int16{-30000, 1},
		kindUint32: []uint32{4e9, 1}, kindInt32: []int32{-2e9, 1}, kindUint64: []uint64{1 << 60, 1}, kindInt64: []int64{-1 << 60, 1},
		kindFloat32: []float32{1.5, -2}, kindFloat64: []float64{0.1, -2}, kindBool: []bool{true, false},
	}
	for _, kind := range slices.Sorted(maps.Keys(values)) {
		body := le(values[kind])
		r.kv(fmt.Sprintf("k.%s", kindName(kind)), kind, body[:len(body)/2])
		r.array(fmt.Sprintf("k.%ss", kindName(kind)), kind, 2, body)
		r.array(fmt.Sprintf("k.no_%ss", kindName(kind)), kind, 0, nil)
	}
	r.kv("k.string", kindString, rawString("größe"))
	r.array("k.strings", kindString, 3, append(append(rawString("a"), rawString("")...), rawString("\xff\x00")...))
	return r.array("k.no_strings", kindString, 0, nil)
}
