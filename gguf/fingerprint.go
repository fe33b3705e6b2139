package gguf

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/ollama/ollama/fs/ggml"
)

// fingerprintForm starts the hashed bytes of a fingerprint; it changes whenever
// the canonical form does.
const fingerprintForm = "ringmaster model fingerprint 1\n"

// Fingerprint identifies the model that a file describes: SHA-256, in hexadecimal, over
// all metadata (keys, kinds, values, whole arrays) and the tensor table (name, type,
// shape, size in bytes). It is computed from what Open has decoded. It does not cover the
// weights, because the file is not read (see ContentHash).
//
// Only the model counts, not how its files are laid out, so that a split model and the
// same model joined have one fingerprint: keys and tensors are in the order of their
// names, and offsets, part numbers, split.no, split.count and split.tensors.count are
// left out.
//
// The canonical form, all numbers little-endian, a string as its length (u64) and bytes:
// a line of text with a version; the number of keys (u64); for each key its name, its
// GGUF kind (u32), for an array the kind of its elements (u32) and their number (u64),
// and the values, as in the file; the number of tensors (u64); for each its name, type
// (u32), number of dimensions (u32), dimensions (u64 each) and size (u64).
//
// A closed file has no tensors, and its fingerprint is "".
func Fingerprint(f *File) string {
	if f.index == nil {
		return ""
	}
	d := &digest{hash: sha256.New()}
	d.buf = append(make([]byte, 0, digestBuffer), fingerprintForm...)

	keys := slices.DeleteFunc(f.Keys(), func(key string) bool {
		return key == keySplitNo || key == keySplitCount || key == keySplitTensors
	})
	d.uint64(uint64(len(keys)))
	for _, key := range keys {
		d.string(key)
		d.value(f.kv[key])
	}
	order := byName(f.tensors)
	d.uint64(uint64(len(order)))
	for _, i := range order {
		t := &f.tensors[i]
		d.string(t.Name)
		d.uint32(uint32(t.Type))
		d.uint32(uint32(len(t.Shape)))
		for _, n := range t.Shape {
			d.uint64(uint64(n))
		}
		d.uint64(uint64(len(t.Data)))
	}
	d.flush()
	return hex.EncodeToString(d.hash.Sum(nil))
}

// byName lists the indices of the tensors in the order of their names.
func byName(tensors []Tensor) []int {
	order := make([]int, len(tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(tensors[a].Name, tensors[b].Name) })
	return order
}

// digestBuffer is how many bytes are hashed at once. The form is buffered because a call
// per number would cost more than the hashing.
const digestBuffer = 1 << 14

// digest collects the canonical form.
type digest struct {
	hash hash.Hash
	buf  []byte
}

func (d *digest) flush() {
	d.hash.Write(d.buf)
	d.buf = d.buf[:0]
}

// room ensures that the few bytes of a number fit in the buffer.
func (d *digest) room() {
	if len(d.buf) > digestBuffer-8 {
		d.flush()
	}
}

func (d *digest) uint32(v uint32) {
	d.room()
	d.buf = binary.LittleEndian.AppendUint32(d.buf, v)
}

func (d *digest) uint64(v uint64) {
	d.room()
	d.buf = binary.LittleEndian.AppendUint64(d.buf, v)
}

func (d *digest) string(s string) {
	d.uint64(uint64(len(s)))
	for len(s) > 0 {
		if len(d.buf) == digestBuffer {
			d.flush()
		}
		n := min(len(s), digestBuffer-len(d.buf))
		d.buf = append(d.buf, s[:n]...)
		s = s[n:]
	}
}

// goKinds are the GGUF kinds by the Go type to which the library decodes them.
var goKinds = map[reflect.Kind]uint32{
	reflect.Uint8: kindUint8, reflect.Int8: kindInt8, reflect.Uint16: kindUint16, reflect.Int16: kindInt16,
	reflect.Uint32: kindUint32, reflect.Int32: kindInt32, reflect.Float32: kindFloat32, reflect.Bool: kindBool,
	reflect.String: kindString, reflect.Uint64: kindUint64, reflect.Int64: kindInt64, reflect.Float64: kindFloat64,
}

// value adds a metadata value: its kind and its contents.
func (d *digest) value(v any) {
	values, ok := arrayValues(v)
	if !ok {
		one := reflect.ValueOf(v)
		d.uint32(goKinds[one.Kind()])
		d.scalar(one)
		return
	}
	d.uint32(kindArray)
	d.uint32(goKinds[values.Type().Elem().Kind()])
	d.uint64(uint64(values.Len()))
	if values.Type().Elem().Kind() == reflect.String {
		for _, s := range (ggml.KV{"general.array": v}).Strings("general.array") { // see RequireStrings
			d.string(s)
		}
		return
	}
	for i := range values.Len() {
		d.scalar(values.Index(i))
	}
}

// scalar adds a value with the width it has in a file.
func (d *digest) scalar(v reflect.Value) {
	d.room()
	switch kind := v.Kind(); {
	case kind == reflect.String:
		d.string(v.String())
	case kind == reflect.Bool:
		b := byte(0)
		if v.Bool() {
			b = 1
		}
		d.buf = append(d.buf, b)
	case kind == reflect.Float32:
		d.uint32(math.Float32bits(float32(v.Float())))
	case kind == reflect.Float64:
		d.uint64(math.Float64bits(v.Float()))
	default:
		var n uint64
		if v.CanInt() {
			n = uint64(v.Int())
		} else {
			n = v.Uint()
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		d.buf = append(d.buf, b[:v.Type().Size()]...)
	}
}

// A weight sample is the first bytes of evenly spaced tensors.
const (
	sampledTensors = 512
	sampledBytes   = 4096 // per tensor: a page on most systems
)

// Digest is SHA-256, in hexadecimal, over Fingerprint and WeightSample: what distinguishes
// two models at the cost of reading a few MB.
func Digest(f *File) string {
	sum := sha256.Sum256([]byte(Fingerprint(f) + WeightSample(f)))
	return hex.EncodeToString(sum[:])
}

// WeightSample is SHA-256, in hexadecimal, over a sample of the weights: the
// first 4096 bytes of at most 512 tensors, evenly spaced in the order of their
// names. It distinguishes models with the same Fingerprint, such as two
// fine-tunings of one base model, and reads a few MB for that; see ContentHash
// for all of the weights. The sample of a closed file is "".
func WeightSample(f *File) string {
	if f.index == nil {
		return ""
	}
	h := sha256.New()
	order := byName(f.tensors)
	stride := (len(order) + sampledTensors - 1) / sampledTensors
	for i := 0; i < len(order); i += stride {
		data := f.tensors[order[i]].Data
		h.Write(data[:min(len(data), sampledBytes)])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// contentPiece is how many bytes of a tensor are hashed between two checks of
// the context.
const contentPiece = 4 << 20

// ContentHash is SHA-256, in hexadecimal, over the data of all tensors, concatenated in
// the order of their names. The fingerprint determines where one tensor ends and the next
// begins: two files with equal fingerprints and content hashes are the same model.
//
// It reads every byte of the weights. That takes as long as reading the files, and their
// pages become resident as far as memory allows. progress, unless nil, is called after
// each piece (4 MiB, or the end of a tensor) with the bytes done and the total. The error
// names the file and wraps the cause of ctx's cancellation, or os.ErrClosed.
func ContentHash(ctx context.Context, f *File, progress func(done, total int64)) (string, error) {
	if f.index == nil {
		return "", fmt.Errorf("%s: content hash: %w", f.path, os.ErrClosed)
	}
	var done, total int64
	for _, t := range f.tensors {
		total += int64(len(t.Data))
	}
	h := sha256.New()
	for _, i := range byName(f.tensors) {
		for piece := range slices.Chunk(f.tensors[i].Data, contentPiece) {
			if ctx.Err() != nil {
				return "", fmt.Errorf("%s: content hash: stopped after %d of %d bytes: %w", f.path, done, total, context.Cause(ctx))
			}
			h.Write(piece)
			done += int64(len(piece))
			if progress != nil {
				progress(done, total)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
