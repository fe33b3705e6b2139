//go:build cgo

package gpu

// #include <stdlib.h>
// #include "device.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// A trial computes a small matrix of each type with the ops of a model, and compares with
// gguf.Dequantize. It finds decoders that the device's compiler has broken. Known risks are
// float16 scales below 2^-14, which a GPU may take for zero, and the scales of MXFP4 and
// NVFP4 at their limits. Weights below 2^-126 may be zero on the device: Apple's GPUs have no
// subnormal float32 (Mesa's driver for them says so), and no model has such weights.

// The matrix of a trial.
const (
	trialRows = 32
	trialCols = 256 // a block of the largest types
)

// trial is a matrix of one type on its way through the ops.
type trial struct {
	b       *Backend
	weight  kernels.Weight
	want    []float32 // [trialRows][trialCols]
	buffers []func()  // releases them
	checks  []func() error
	err     error // of memory
}

// tryTypes tries the types of u that were not tried before.
func (b *Backend) tryTypes(u kernels.Uses) (err error) {
	types := slices.DeleteFunc(u.Types(), func(t gguf.Type) bool { return b.tried[t] || !b.CanCompute(t) })
	if len(types) == 0 {
		return nil
	}
	each := trialRows * trialCols * 4
	each = above(each, int(b.info.Page)) * int(b.info.Page)
	// Memory of C, because views of Go's would have to be pinned.
	memory := C.aligned_alloc(C.size_t(b.info.Page), C.size_t(each*len(types)))
	if memory == nil {
		return errors.New("no memory for a trial of the weight types")
	}
	data := unsafe.Slice((*byte)(memory), each*len(types))
	clear(data)
	random := rand.New(rand.NewPCG(1, 41))
	trials := make([]*trial, len(types))
	for i, t := range types {
		trials[i] = newTrial(b, t, data[i*each:][:t.RowBytes(trialRows*trialCols)], random)
	}
	if err := b.Map(data); err != nil {
		C.free(memory)
		return err
	}
	defer func() {
		for _, x := range trials {
			for _, release := range x.buffers {
				release()
			}
		}
		b.unmap(data)
		if !b.stuck { // a device that hangs may still use it
			C.free(memory)
		}
	}()
	for i, x := range trials {
		x.encode(u, types[i])
	}
	if err := b.Flush(); err != nil {
		return err
	}
	for i, x := range trials {
		if x.err != nil {
			return x.err
		}
		for _, check := range x.checks {
			if err := check(); err != nil {
				return &kernels.WrongTypeError{Device: b.Name(), Type: types[i], What: err.Error()}
			}
		}
	}
	for _, t := range types {
		b.tried[t] = true
	}
	return nil
}

// newTrial makes a matrix of the type in data.
func newTrial(b *Backend, t gguf.Type, data []byte, random *rand.Rand) *trial {
	x := &trial{b: b, want: make([]float32, trialRows*trialCols),
		weight: kernels.Weight{Name: "trial of " + t.String(), Type: t, Cols: trialCols, Rows: trialRows, Slices: 1, SliceBytes: len(data), Data: data}}
	bytes := t.RowBytes(trialCols)
	for row := range trialRows {
		part, want := data[row*bytes:][:bytes], x.want[row*trialCols:][:trialCols]
		for {
			fillRow(part, t, row, random)
			if x.err = gguf.Dequantize(want, t, part); x.err != nil || moderate(want) {
				break
			}
		}
	}
	return x
}

// moderate reports whether sums of a row are finite, and exact enough to compare.
func moderate(row []float32) bool {
	for _, v := range row {
		if !(math.Abs(float64(v)) < 1e30) {
			return false
		}
	}
	return true
}

// fillRow fills a row with arbitrary blocks. All scales of one row have about the same
// size, so that none hides another: row 0 has float16 scales below 2^-14, and the smallest
// scales of MXFP4 and NVFP4, as have every fourth row after it.
func fillRow(row []byte, t gguf.Type, number int, random *rand.Rand) {
	for i := range row {
		row[i] = byte(random.UintN(256))
	}
	small := number%4 == 0
	half := func() uint16 {
		sign := uint16(random.UintN(2)) << 15
		if small {
			return sign | uint16(1+random.UintN(0x3ff))
		}
		return sign | uint16(0x2c00+random.UintN(0x1000)) // 2^-4 to 1
	}
	for at := 0; at < len(row); at += t.BlockBytes() {
		block := row[at:][:t.BlockBytes()]
		for _, at := range t.HalfScales() {
			binary.LittleEndian.PutUint16(block[at:], half())
		}
		switch t {
		case gguf.F16:
			binary.LittleEndian.PutUint16(block, half())
		case gguf.F32, gguf.BF16: // the last two bytes are sign, exponent and the first bits
			exponent := uint16(100 + random.UintN(40))
			binary.LittleEndian.PutUint16(block[len(block)-2:], uint16(random.UintN(2))<<15|exponent<<7|uint16(random.UintN(128)))
		case gguf.MXFP4: // 2^(e-128)
			block[0] = byte(number / 4) // 0 and 1 are subnormal
			if !small {
				block[0] = byte(120 + random.UintN(16))
			}
		case gguf.NVFP4: // (8+m) * 2^(x-11), without x m * 2^-10; 127 is not a number, and 0
			for i := range 4 {
				block[i] &= 127
				if small {
					block[i] = byte(random.UintN(16))
				}
			}
		case gguf.IQ1M:
			d := half()
			for i := range 4 {
				block[49+2*i] = block[49+2*i]&15 | byte(d>>(4*i)&15)<<4
			}
		}
	}
}

// encode encodes the ops of u that use the type.
func (x *trial) encode(u kernels.Uses, t gguf.Type) {
	if slices.Contains(u.Rows, t) {
		ids := trialBuffer[int32](x, trialRows)
		for i := range ids {
			ids[i] = int32(i)
		}
		out := trialBuffer[float32](x, trialRows*trialCols)
		if x.err == nil {
			x.b.Embed(out, x.weight, ids)
			x.checks = append(x.checks, func() error { return x.compareRows(out) })
		}
	}
	if slices.Contains(u.Products, t) {
		for _, tokens := range []int{1, 16} { // as rows, and as tiles
			in := x.signs(tokens)
			out := trialBuffer[float32](x, tokens*trialRows)
			if x.err == nil {
				x.b.MatMul(in, tokens, kernels.Product{W: x.weight, Out: out})
				x.checks = append(x.checks, func() error { return x.compareSums("MatMul", out, in, tokens) })
			}
		}
	}
	if slices.Contains(u.Experts, t) {
		for _, tokens := range []int{1, 16} {
			in := x.signs(tokens)
			out, factors := trialBuffer[float32](x, tokens*trialRows), trialBuffer[float32](x, tokens)
			offsets, slots := trialBuffer[int32](x, 2), trialBuffer[int32](x, tokens)
			if x.err != nil {
				return
			}
			offsets[1] = int32(tokens)
			for i := range tokens {
				slots[i], factors[i] = int32(i), 1
			}
			x.b.ExpertDown(out, in, x.weight, kernels.ExpertArgs{Groups: kernels.ExpertGroups{Offsets: offsets, Slots: slots}, Weights: factors,
				Rows: tokens, Used: 1, Experts: 1, End: 1})
			x.checks = append(x.checks, func() error { return x.compareSums("ExpertDown", out, in, tokens) })
		}
	}
}

// trialBuffer is memory of the device until the end of the trial; nil with x.err.
func trialBuffer[T float32 | int32](x *trial, n int) []T {
	if x.err != nil {
		return nil
	}
	mem, err := kernels.Make[T](x.b, n)
	if err != nil {
		x.err = err
		return nil
	}
	x.buffers = append(x.buffers, func() { kernels.Release(x.b, mem) })
	return mem
}

// signs is a row of 1 and -1 for each token: also a device that rounds activations keeps them.
func (x *trial) signs(tokens int) []float32 {
	in := trialBuffer[float32](x, tokens*trialCols)
	random := rand.New(rand.NewPCG(2, uint64(tokens)))
	for i := range in {
		in[i] = float32(2*random.IntN(2) - 1)
	}
	return in
}

// leastWeight bounds what a device without subnormal numbers makes of a small weight.
const leastWeight = 1.0 / (1 << 62) / (1 << 62)

// compareRows compares decoded weights. Their last bits may differ where a compiler fuses a
// product with a difference.
func (x *trial) compareRows(got []float32) error {
	for i, want := range x.want {
		most := 0.0
		for _, w := range x.want[i/trialCols*trialCols:][:trialCols] {
			most = max(most, math.Abs(float64(w)))
		}
		if !(math.Abs(float64(got[i])-float64(want)) <= 1e-6*most+leastWeight) {
			return fmt.Errorf("Embed: row %d, weight %d is %g in place of %g", i/trialCols, i%trialCols, got[i], want)
		}
	}
	return nil
}

// compareSums compares products, which differ in the order of their sums.
func (x *trial) compareSums(op string, got, in []float32, tokens int) error {
	for i := range got {
		token, row := i/trialRows, i%trialRows
		var want, size float64
		for k, w := range x.want[row*trialCols:][:trialCols] {
			want += float64(w) * float64(in[token*trialCols+k])
			size += math.Abs(float64(w))
		}
		if !(math.Abs(float64(got[i])-want) <= 3e-5*size+trialCols*leastWeight) {
			return fmt.Errorf("%s of %d tokens: row %d times token %d is %g in place of %g", op, tokens, row, token, got[i], want)
		}
	}
	return nil
}
