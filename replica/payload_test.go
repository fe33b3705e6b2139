package replica

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

// roundTrip returns what w is sent as, and checks that it is received as w.
func roundTrip(t *testing.T, w work) []byte {
	t.Helper()
	b, err := w.encode()
	require.NoError(t, err)
	got, err := decodeWork(b)
	require.NoError(t, err)
	require.Equal(t, w, got)
	return b
}

// TestPayloadBytes fixes the format. All ranks run one build, but a change must
// be intended.
func TestPayloadBytes(t *testing.T) {
	w := work{committed: true, number: 0x0102030405060708, step: model.Step{
		Drop: []model.SeqID{7, 0x01020304},
		Entries: []model.Entry{
			{Seq: 9, Pos: 260, Tokens: []int32{1, 129279}, Want: model.WantLast},
			{Seq: 10, Tokens: []int32{-1}, Want: model.WantNone},
		},
	}}
	b := roundTrip(t, w)
	golden := strings.Join([]string{
		"02", "01", "0200", "02000000", "0807060504030201", // format, owed, drops, entries, number
		"07000000", "04030201", // dropped
		"09000000", "04010000", "02000000", "01", "01000000", "fff80100",
		"0a000000", "00000000", "01000000", "00", "ffffffff",
	}, "")
	require.Equal(t, golden, hex.EncodeToString(b))

	b = roundTrip(t, work{})
	require.Equal(t, "02000000000000000000000000000000", hex.EncodeToString(b))
}

// TestPieceBytes is the same for a piece of a sequence.
func TestPieceBytes(t *testing.T) {
	w := work{committed: true, number: 0x0102030405060708, piece: &piece{seq: 9, bytes: 260, last: true}}
	b := roundTrip(t, w)
	require.Equal(t, "04"+"01"+"0200"+"04010000"+"0807060504030201"+"09000000", hex.EncodeToString(b))
	for what, harm := range map[string]func(b []byte) []byte{
		"has 21 bytes": func(b []byte) []byte { return append(b, 0) },
		"flag is 2":    func(b []byte) []byte { b[1] = 2; return b },
		"flags 4":      func(b []byte) []byte { b[2] = 4; return b },
		"of 0 bytes":   func(b []byte) []byte { b[4], b[5] = 0, 0; return b },
		"of 16777476":  func(b []byte) []byte { b[7] = 1; return b },
	} {
		_, err := decodeWork(harm(append([]byte(nil), b...)))
		require.ErrorContains(t, err, what)
	}
}

func TestRandomPayloads(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		w := work{committed: random.IntN(2) == 0, number: random.Uint64()}
		for range random.IntN(4) {
			w.step.Drop = append(w.step.Drop, model.SeqID(random.Uint32()))
		}
		for range random.IntN(4) {
			e := model.Entry{Seq: model.SeqID(random.Uint32()), Pos: random.IntN(math.MaxInt32), Want: model.Want(random.IntN(3))}
			for range 1 + random.IntN(20) {
				e.Tokens = append(e.Tokens, int32(random.Uint32()))
			}
			w.step.Entries = append(w.step.Entries, e)
		}
		b := roundTrip(t, w)
		for n := range b { // cut anywhere
			_, err := decodeWork(b[:n])
			require.ErrorIs(t, err, errShort)
		}
	}
}

func TestPayloadsThatAreRefused(t *testing.T) {
	for want, text := range map[string]string{
		"it is truncated":                           "02",
		"format 1; this build reads 2":              "01000000000000000000000000000000",
		"commit flag is 2":                          "02020000000000000000000000000000",
		"payload of 17 bytes: 1 bytes follow":       "0200000000000000000000000000000000",
		"payload of 20 bytes: it is truncated":      "02000200000000000000000000000000" + "01000000",
		"payload of 16 bytes: it is truncated":      "02000000ffffffff0000000000000000",
		"entry 0 of 1: no tokens":                   "02000000010000000000000000000000" + "0100000000000000" + "0000000000" + "00000000",
		"entry 0 of 1: it is truncated":             "02000000010000000000000000000000" + "0100000000000000" + "ffffffff01" + "00000000",
		"entry 0 of 1: want 3":                      "02000000010000000000000000000000" + "0100000000000000" + "0100000003" + "00000000",
		"entry 0 of 1: position 2147483648":         "02000000010000000000000000000000" + "0100000000000080" + "0100000001" + "00000000",
		"entry 1 of 2: it is truncated":             "02000000020000000000000000000000" + "0100000000000000" + "0500000001" + strings.Repeat("00", 20) + "00",
		"payload of 37 bytes: 4 bytes follow its e": "02000000010000000000000000000000" + "0100000000000000" + "0100000001" + "0000000000000000",
	} {
		b, err := hex.DecodeString(text)
		require.NoError(t, err, want)
		_, err = decodeWork(b)
		require.ErrorContains(t, err, want)
	}
	for want, w := range map[string]work{
		"drops 65536 sequences":                       {step: model.Step{Drop: make([]model.SeqID, 65536)}},
		"sequence 3 with 0 tokens at position 0":      {step: model.Step{Entries: []model.Entry{{Seq: 3}}}},
		"position -1":                                 {step: entry(3, -1, model.WantLast, 1)},
		"position 2147483648":                         {step: entry(3, math.MaxInt32+1, model.WantLast, 1)},
		"sequence 3 with 1 tokens at position 0, wan": {step: entry(3, 0, 3, 1)},
	} {
		_, err := w.encode()
		require.ErrorContains(t, err, want)
	}
}

// FuzzDecodeWork: any bytes from the wire are an error or a step that encodes
// to the same bytes, and decoding allocates no more than the payload's length.
func FuzzDecodeWork(f *testing.F) {
	for _, w := range []work{{}, {committed: true, step: entry(1, 2, model.WantAll, 3, 4)}, {step: model.Step{Drop: []model.SeqID{1, 2}}}} {
		b, err := w.encode()
		require.NoError(f, err)
		f.Add(b)
		f.Add(append(b, 0))
	}
	for _, p := range []piece{{seq: 7, bytes: 1, first: true}, {bytes: model.MaxPiece, last: true}} {
		b, err := work{committed: true, number: 5, piece: &p}.encode()
		require.NoError(f, err)
		f.Add(b)
		f.Add(append(b, 0))
	}
	for _, task := range []Task{{Piece: model.Piece{Layer: 3, From: 1, To: 9, Seed: 5}, Everyone: true}, {Links: &Traffic{To: 1, Bytes: 8, Messages: 2, Echo: true}}} {
		b, err := work{committed: true, number: 5, task: &task}.encode()
		require.NoError(f, err)
		f.Add(b)
		f.Add(append(b, ' '))
	}
	f.Add([]byte{2, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := decodeWork(b)
		if err != nil {
			require.Equal(t, work{}, w)
			return
		}
		again, err := w.encode()
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
