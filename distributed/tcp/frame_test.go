package tcp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

func randomHeader(r *rand.Rand) header {
	total := r.Uint64()
	offset := r.Uint64N(total + 1)
	return header{
		epoch: r.Uint32(), seq: r.Uint64(), op: distributed.Kind(1 + r.IntN(int(distributed.SendRecv))), dtype: distributed.DType(r.Uint32()),
		phase: uint8(r.IntN(2)), root: uint8(r.Uint32()),
		length: uint32(r.Uint64N(min(total-offset, 1<<32-1) + 1)), offset: offset, total: total,
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, headerSize)
	for range 10000 {
		h := randomHeader(r)
		h.put(b)
		got, err := parseHeader(b)
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
}

func TestHeaderBytes(t *testing.T) {
	h := header{epoch: 0x01020304, seq: 0x1112131415161718, op: distributed.Broadcast, dtype: distributed.NoDType, phase: 1, root: 9,
		length: 0x21222324, offset: 0x31, total: 0x4142434445464748}
	b := make([]byte, headerSize)
	h.put(b)
	require.Equal(t, []byte("RMf1\x04\x03\x02\x01\x18\x17\x16\x15\x14\x13\x12\x11\x08\xff\x01\x09\x24\x23\x22\x21"+
		"\x31\x00\x00\x00\x00\x00\x00\x00\x48\x47\x46\x45\x44\x43\x42\x41"), b)
}

func FuzzHeader(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 2))
	b := make([]byte, headerSize)
	for range 20 {
		h := randomHeader(r)
		h.put(b)
		f.Add(bytes.Clone(b))
	}
	f.Add(make([]byte, headerSize))
	(&header{op: distributed.AllSum, offset: 64, total: 128}).put(b)
	f.Add(bytes.Clone(b))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != headerSize {
			return
		}
		h, err := parseHeader(b)
		if err != nil {
			require.ErrorIs(t, err, distributed.ErrDesync)
			return
		}
		// An accepted header encodes to the same bytes, and lies within its part.
		require.LessOrEqual(t, h.offset, h.total)
		require.LessOrEqual(t, uint64(h.length), h.total-h.offset)
		out := make([]byte, headerSize)
		h.put(out)
		require.Equal(t, b, out)
		require.NotEmpty(t, h.String())
		want := h
		if h.length == 0 && h.offset != 0 && h.offset != h.total { // a rank that makes no progress
			require.ErrorIs(t, h.check(&want, 1), distributed.ErrDesync)
			return
		}
		require.NoError(t, h.check(&want, 1))
		want.seq++
		require.ErrorIs(t, h.check(&want, 1), distributed.ErrDesync)
	})
}

// TestHeaderCheck: a difference in any field is found, and the error describes
// both sides where the field identifies the operation.
func TestHeaderCheck(t *testing.T) {
	base := header{epoch: 3, seq: 7, op: distributed.AllSum, dtype: distributed.Float16, length: 64, offset: 0, total: 4096}
	for name, change := range map[string]func(h *header){
		"epoch 4": func(h *header) { h.epoch = 4 }, "#8": func(h *header) { h.seq = 8 }, "barrier": func(h *header) { h.op = distributed.Barrier },
		"float32": func(h *header) { h.dtype = distributed.Float32 }, "4098 bytes": func(h *header) { h.total = 4098 },
		"byte 64": func(h *header) { h.offset = 64 }, "phase 1": func(h *header) { h.phase = 1 },
		"this rank runs": func(h *header) { h.root = 2 },
	} {
		got := base
		change(&got)
		err := got.check(&base, 2)
		require.ErrorIs(t, err, distributed.ErrDesync, name)
		require.ErrorContains(t, err, "rank 2", name)
		require.ErrorContains(t, err, name)
	}
	stuck := header{epoch: 3, seq: 7, op: distributed.AllSum, dtype: distributed.Float16, offset: 64, total: 4096}
	want := stuck
	require.ErrorIs(t, stuck.check(&want, 2), distributed.ErrDesync, "a frame that does not get on")
}

func TestHandshakeIsProved(t *testing.T) {
	token := bytes.Repeat([]byte{1}, 32)
	h := hello{version: helloVersion, size: 2, epoch: 5, from: 1, to: 0}
	first := h.encode(token)
	require.Len(t, first, helloSize)
	got, err := parseHello(first)
	require.NoError(t, err)
	require.Equal(t, h, got)
	// The mac covers every bit of the hello.
	for i := range helloSize * 8 {
		b := bytes.Clone(first)
		b[i/8] ^= 1 << (i % 8)
		require.False(t, sealed(token, b[helloSize-32:], b[:helloSize-32]), "bit %d", i)
	}
	second := answer(statusOK, make([]byte, 32), token, first)
	require.Len(t, second, answerSize)
	require.Equal(t, uint32(helloMagic), binary.LittleEndian.Uint32(second))
	other := answer(statusOK, make([]byte, 32), bytes.Repeat([]byte{2}, 32), first)
	require.NotEqual(t, second, other)
}
