package gguf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
)

// NonFinite is an element of a tensor or the scale of a block that is NaN, infinite, or
// so large that elements of its block overflow.
type NonFinite struct {
	Block int     // number of the block in the data
	Field string  // "" for a plain type, else the name of the field as the decoders of this package have it
	Value float32 // of the element or of the field
}

// scaleField is a float16 field of a block that multiplies its elements or is
// subtracted from them.
type scaleField struct {
	name   string
	offset int
}

// scaleFields are all fields of a block that can be NaN or infinite. With finite ones
// every element is finite: the largest float16 times the largest quants and small
// scales of any type is below 2^28. MXFP4, NVFP4 and IQ1_M have scales of another form.
var scaleFields = map[Type][]scaleField{
	Q4_0: {{"d", 0}}, Q4_1: {{"d", 0}, {"m", 2}}, Q5_0: {{"d", 0}}, Q5_1: {{"d", 0}, {"m", 2}},
	Q8_0: {{"d", 0}}, IQ4NL: {{"d", 0}},
	Q2_K: {{"d", 80}, {"dmin", 82}}, Q3_K: {{"d", 108}}, Q4_K: {{"d", 0}, {"dmin", 2}}, Q5_K: {{"d", 0}, {"dmin", 2}},
	Q6_K: {{"d", 208}}, IQ1S: {{"d", 0}}, IQ2XXS: {{"d", 0}}, IQ2XS: {{"d", 0}}, IQ2S: {{"d", 0}},
	IQ3XXS: {{"d", 0}}, IQ3S: {{"d", 0}}, IQ4XS: {{"d", 0}},
}

// FirstNonFinite finds the first element or scale in whole blocks of type t that is not
// finite; ok is false if there is none. Of block types it reads the scales only. An
// exponent of 255 in MXFP4 is NaN by the OCP Microscaling specification, and so are scales of
// 127 and 255 in NVFP4, although Dequantize follows GGML, where they are not. It finds nothing
// in I8, I32 and unknown types, because they hold no weights.
func FirstNonFinite(t Type, data []byte) (bad NonFinite, ok bool) {
	size := t.BlockBytes()
	switch t {
	case F32:
		for i := 0; i+4 <= len(data); i += 4 {
			if bits := binary.LittleEndian.Uint32(data[i:]); bits&0x7f800000 == 0x7f800000 {
				return NonFinite{Block: i / 4, Value: math.Float32frombits(bits)}, true
			}
		}
	case F16:
		for i := 0; i+2 <= len(data); i += 2 {
			if bits := binary.LittleEndian.Uint16(data[i:]); bits&0x7c00 == 0x7c00 {
				return NonFinite{Block: i / 2, Value: loadF16(data[i:])}, true
			}
		}
	case BF16:
		for i := 0; i+2 <= len(data); i += 2 {
			if bits := binary.LittleEndian.Uint16(data[i:]); bits&0x7f80 == 0x7f80 {
				return NonFinite{Block: i / 2, Value: math.Float32frombits(uint32(bits) << 16)}, true
			}
		}
	case MXFP4:
		for i := 0; i+size <= len(data); i += size {
			if data[i] >= mxfp4Large {
				if bad, ok := largeMXFP4(data[i : i+size]); ok {
					bad.Block = i / size
					return bad, true
				}
			}
		}
	case NVFP4:
		for i := 0; i+size <= len(data); i += size {
			for _, d := range data[i : i+4] {
				if d&nvfp4NaN == nvfp4NaN {
					return NonFinite{Block: i / size, Field: "d", Value: float32(math.NaN())}, true
				}
			}
		}
	case IQ1M:
		for i := 0; i+size <= len(data); i += size {
			if d := scaleIQ1M(data[i:]); d-d != 0 {
				return NonFinite{Block: i / size, Field: "d", Value: d}, true
			}
		}
	default:
		fields := scaleFields[t]
		for i := 0; i+size <= len(data) && len(fields) > 0; i += size {
			for _, f := range fields {
				if at := data[i+f.offset:]; binary.LittleEndian.Uint16(at)&0x7c00 == 0x7c00 {
					return NonFinite{Block: i / size, Field: f.name, Value: loadF16(at)}, true
				}
			}
		}
	}
	return NonFinite{}, false
}

// mxfp4Large is the least exponent byte with which the largest quant, 12, overflows
// float32: 12 * 2^(253-128) > 2^128.
const mxfp4Large = 253

// largeMXFP4 checks a block of MXFP4 that has an exponent of at least mxfp4Large.
func largeMXFP4(block []byte) (NonFinite, bool) {
	if block[0] == 255 {
		return NonFinite{Field: "e", Value: float32(math.NaN())}, true
	}
	var elements [32]float32
	decodeMXFP4(elements[:], block)
	for _, x := range elements {
		if x-x != 0 {
			return NonFinite{Field: "e", Value: x}, true
		}
	}
	return NonFinite{}, false
}

// CheckFinite is nil if all elements of the tensor are finite numbers. Otherwise its
// error names the tensor, its type and the place of the first that is not. The file must
// be open. It reads the whole tensor, of a block type its scales.
func (t Tensor) CheckFinite() error {
	if bad, ok := FirstNonFinite(t.Type, t.Data); ok {
		return t.nonFinite(bad)
	}
	return nil
}

// ErrNonFinite: a weight is NaN or infinite.
var ErrNonFinite = errors.New("a weight is not a finite number; the file is damaged or was not converted properly: compare it with its source")

// nonFinite is the error of what FirstNonFinite found in the tensor.
func (t Tensor) nonFinite(bad NonFinite) error {
	cols := t.Shape[0]
	first := int64(bad.Block) * int64(t.Type.BlockElements())
	place := fmt.Sprintf("row %d", first/cols)
	if len(t.Shape) > 2 {
		rows := t.Shape[1]
		place = fmt.Sprintf("row %d of matrix %d", first/cols%rows, first/cols/rows)
	}
	if bad.Field == "" {
		return fmt.Errorf("tensor %q (%s): %s, element %d is %v: %w", t.Name, t.Type, place, first%cols, bad.Value, ErrNonFinite)
	}
	return fmt.Errorf("tensor %q (%s): %s, elements %d to %d have the scale %s = %v: %w",
		t.Name, t.Type, place, first%cols, first%cols+int64(t.Type.BlockElements())-1, bad.Field, bad.Value, ErrNonFinite)
}

// Limits of CheckWeights.
const (
	checkPiece = 4 << 20 // bytes between two checks of the context
	maxReports = 16      // tensors that are named
)

// CheckWeights checks that all weights of a file are finite numbers: every element of
// F32, F16 and BF16, and the scales of block types. Scales lie so close that it reads
// every page of the file. One goroutine per processor does it. progress, unless nil, is
// called after each piece of a tensor, by one goroutine at a time, with the bytes done
// and the total.
//
// The error has a line for each of the first 16 damaged tensors, in the order of the
// file, with the part that has it, and wraps ErrNonFinite; or it wraps the cause of ctx's
// cancellation, or os.ErrClosed.
func CheckWeights(ctx context.Context, f *File, progress func(done, total int64)) error {
	if f.index == nil {
		return fmt.Errorf("%s: check of the weights: %w", f.path, os.ErrClosed)
	}
	var pieces []weightPiece
	var total, done int64
	for i, t := range f.tensors {
		size := t.Type.BlockBytes()
		if size == 0 || t.Type == I32 {
			continue
		}
		blocks := checkPiece / size
		for at := 0; at < len(t.Data); at += blocks * size {
			p := weightPiece{tensor: i, block: at / size, data: t.Data[at:min(at+blocks*size, len(t.Data))]}
			pieces = append(pieces, p)
			total += int64(len(p.data))
		}
	}

	first := map[int]NonFinite{} // by tensor
	var mu sync.Mutex            // guards first, done, next
	var workers sync.WaitGroup
	next := 0
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				if next == len(pieces) {
					mu.Unlock()
					return
				}
				p := pieces[next]
				next++
				mu.Unlock()
				bad, found := FirstNonFinite(f.tensors[p.tensor].Type, p.data)
				mu.Lock()
				if bad.Block += p.block; found {
					if old, ok := first[p.tensor]; !ok || bad.Block < old.Block {
						first[p.tensor] = bad
					}
				}
				done += int64(len(p.data))
				if progress != nil {
					progress(done, total)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: check of the weights: stopped after %d of %d bytes: %w", f.path, done, total, context.Cause(ctx))
	}
	var all []error
	for i, t := range f.tensors {
		bad, ok := first[i]
		if !ok {
			continue
		}
		if len(all) == maxReports {
			all = append(all, fmt.Errorf("%s: %d tensors are damaged; the first %d are named", f.path, len(first), maxReports))
			break
		}
		all = append(all, fmt.Errorf("%s: %w", f.PathOf(t), t.nonFinite(bad)))
	}
	return errors.Join(all...)
}

// weightPiece is some blocks of a tensor.
type weightPiece struct {
	tensor, block int // number of the tensor, and of the first block in it
	data          []byte
}

// PathOf is the path of the part that holds a tensor of the file.
func (f *File) PathOf(t Tensor) string {
	if t.Part < len(f.parts) {
		return f.parts[t.Part].path
	}
	return f.path // closed
}
