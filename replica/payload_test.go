package replica

import (
	"bytes"
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
		Checkpoints: []model.Checkpoints{
			{Seq: 7, At: []int{64, 0x01020304}},
			{Seq: 8},
		},
		Forks: []model.Fork{{Seq: 9, From: 7, Length: 260}, {Seq: 10, From: 7, Length: 258, Replay: true}},
		Entries: []model.Entry{
			{Seq: 9, Pos: 260, Tokens: []int32{1, 129279}, Want: model.WantLast},
			{Seq: 10, Tokens: []int32{-1}, Want: model.WantNone, Until: 0x01020304},
		},
	}}
	b := roundTrip(t, w)
	golden := strings.Join([]string{
		"09", "01", "0200", "02000000", "0807060504030201", // format, owed, drops, entries, number
		"02000000", "02000000", // sequences with checkpoints, forks
		"07000000", "04030201", // dropped
		"07000000", "02000000", "40000000", "04030201",
		"08000000", "00000000",
		"09000000", "07000000", "04010000", "00",
		"0a000000", "07000000", "02010000", "01",
		"09000000", "04010000", "02000000", "01", "00000000", "01000000", "fff80100",
		"0a000000", "00000000", "01000000", "00", "04030201", "ffffffff",
	}, "")
	require.Equal(t, golden, hex.EncodeToString(b))

	b = roundTrip(t, work{})
	require.Equal(t, "09"+strings.Repeat("00", 23), hex.EncodeToString(b))
}

// TestKeptBytes: what the step before keeps follows the header of every payload.
func TestKeptBytes(t *testing.T) {
	kept := []int{1, 260}
	const want = "02000000" + "01000000" + "04010000"
	b := roundTrip(t, work{committed: true, kept: kept, number: 1})
	require.Equal(t, "0902"+"000000000000"+"0100000000000000"+"0000000000000000"+want, hex.EncodeToString(b))
	b = roundTrip(t, work{committed: true, kept: kept, number: 1, piece: &piece{seq: 9, bytes: 260, first: true}})
	require.Equal(t, "0402"+"0100"+"04010000"+"0100000000000000"+"09000000"+want, hex.EncodeToString(b))
	b = roundTrip(t, work{committed: true, kept: kept, number: 1, task: &Task{}})
	require.Equal(t, "0502"+"000000000000"+"0100000000000000"+want, hex.EncodeToString(b[:28]))
	begins := beginning{committed: true, kept: kept, number: 7, lineage: 5}
	b = begins.encode()
	require.Equal(t, "0302"+"000000000000"+"0700000000000000"+"0500000000000000"+want, hex.EncodeToString(b))
	got, ok, err := decodeBeginning(b)
	require.True(t, ok)
	require.NoError(t, err)
	require.Equal(t, begins, got)
	for n := range b {
		_, _, err := decodeBeginning(b[:n])
		require.True(t, n == 0 || err != nil)
	}
	_, _, err = decodeBeginning(append(b, 0))
	require.ErrorContains(t, err, "follow their end")
}

// TestPieceBytes is the same for a piece of a sequence.
func TestPieceBytes(t *testing.T) {
	w := work{committed: true, number: 0x0102030405060708, piece: &piece{seq: 9, bytes: 260, last: true}}
	b := roundTrip(t, w)
	require.Equal(t, "04"+"01"+"0200"+"04010000"+"0807060504030201"+"09000000", hex.EncodeToString(b))
	for what, harm := range map[string]func(b []byte) []byte{
		"1 bytes follow": func(b []byte) []byte { return append(b, 0) },
		"flag is 3":      func(b []byte) []byte { b[1] = 3; return b },
		"flags 4":        func(b []byte) []byte { b[2] = 4; return b },
		"of 0 bytes":     func(b []byte) []byte { b[4], b[5] = 0, 0; return b },
		"of 16777476":    func(b []byte) []byte { b[7] = 1; return b },
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
		for range random.IntN(3) {
			c := model.Checkpoints{Seq: model.SeqID(random.Uint32())}
			for at := range random.IntN(4) {
				c.At = append(c.At, at*1000+1+random.IntN(1000))
			}
			w.step.Checkpoints = append(w.step.Checkpoints, c)
		}
		for range random.IntN(3) {
			w.step.Forks = append(w.step.Forks, model.Fork{Seq: model.SeqID(random.Uint32()), From: model.SeqID(random.Uint32()), Length: 1 + random.IntN(math.MaxInt32), Replay: random.IntN(2) == 0})
		}
		for range random.IntN(4) {
			e := model.Entry{Seq: model.SeqID(random.Uint32()), Pos: random.IntN(math.MaxInt32), Want: model.Want(random.IntN(3)), Until: random.IntN(math.MaxInt32)}
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
	// head returns the beginning of a payload with these counts.
	head := func(drops, entries, checkpoints, forks string) string {
		return "0900" + drops + entries + "0000000000000000" + checkpoints + forks
	}
	const none, one, two, all = "00000000", "01000000", "02000000", "ffffffff"
	entries := func(n string) string { return head("0000", n, none, none) + one + none }
	for want, text := range map[string]string{
		"it is truncated":                            "09",
		"format 2; this build reads 9":               "02" + strings.Repeat("00", 23),
		"commit flag is 3":                           "0903" + strings.Repeat("00", 22),
		"without entries cannot":                     "0902" + strings.Repeat("00", 26),
		"entry 0 of the step before keeps 0":         "0902" + strings.Repeat("00", 22) + one + none,
		"payload of 25 bytes: 1 bytes follow":        "09" + strings.Repeat("00", 24),
		"payload of 28 bytes: it is truncated":       head("0200", none, none, none) + one,
		"payload of 24 bytes: it is truncated":       head("0000", all, none, none),
		"payload of 24 bytes: it is":                 head("0000", none, all, none),
		"payload of 24 bytes: it":                    head("0000", none, none, all),
		"payload of 24 bytes":                        head("ffff", all, all, all),
		"checkpoints 0 of 1: it is truncated":        head("0000", none, one, none) + one + all + one,
		"checkpoints 1 of 2: it is truncated":        head("0000", none, two, none) + one + two + one + two,
		"checkpoints 0 of 1: length 0":               head("0000", none, one, none) + one + one + none,
		"checkpoints 0 of 1: length 1":               head("0000", none, one, none) + one + two + one + one,
		"checkpoints 0 of 1: length 2147483648":      head("0000", none, one, none) + one + one + "00000080",
		"fork 0 of 1: length 0":                      head("0000", none, none, one) + one + two + none + "00",
		"fork 0 of 1: length 1, runs tokens again 2": head("0000", none, none, one) + one + two + one + "02",
		"fork 1 of 2: length 4294967295":             head("0000", none, none, two) + one + two + one + "00" + one + two + all + "00",
		"payload of 48 bytes: it is truncated":       head("0000", none, one, one) + one + two + one + two + one + two,
		"payload of 40 bytes: 4 bytes follow":        head("0000", none, one, none) + one + one + one + two,
		"entry 0 of 1: no tokens":                    entries(one) + none + "00" + none + none,
		"entry 0 of 1: it is truncated":              entries(one) + all + "01" + none + none,
		"entry 0 of 1: want 3":                       entries(one) + one + "03" + none + none,
		"entry 0 of 1: position 2147483648":          head("0000", one, none, none) + one + "00000080" + one + "01" + none + none,
		"entry 0 of 1: up to position 2147483648":    entries(one) + one + "01" + "00000080" + none,
		"entry 1 of 2: it is truncated":              entries(two) + "05000000" + "01" + none + strings.Repeat("00", 25),
		"payload of 49 bytes: 4 bytes follow its e":  entries(one) + one + "01" + none + none + none,
	} {
		b, err := hex.DecodeString(text)
		require.NoError(t, err, want)
		_, err = decodeWork(b)
		require.ErrorContains(t, err, want)
	}
	for want, w := range map[string]work{
		"drops 65536 sequences":                                 {step: model.Step{Drop: make([]model.SeqID, 65536)}},
		"sequence 3 with 0 tokens at position 0":                {step: model.Step{Entries: []model.Entry{{Seq: 3}}}},
		"position -1":                                           {step: entry(3, -1, model.WantLast, 1)},
		"position 2147483648":                                   {step: entry(3, math.MaxInt32+1, model.WantLast, 1)},
		"sequence 3 with 1 tokens at position 0, wan":           {step: entry(3, 0, 3, 1)},
		"up to -1, is not an entry":                             {step: model.Step{Entries: []model.Entry{{Seq: 3, Tokens: []int32{1}, Until: -1}}}},
		"sequence 3 with checkpoints at [0 1]":                  {step: model.Step{Checkpoints: []model.Checkpoints{{Seq: 3, At: []int{0, 1}}}}},
		"sequence 3 with checkpoints at [2 2]":                  {step: model.Step{Checkpoints: []model.Checkpoints{{Seq: 3, At: []int{2, 2}}}}},
		"sequence 3 with checkpoints at [2147483648]":           {step: model.Step{Checkpoints: []model.Checkpoints{{Seq: 3, At: []int{math.MaxInt32 + 1}}}}},
		"sequence 4 of the first 0 tokens of sequence 3 is not": {step: model.Step{Forks: []model.Fork{{Seq: 4, From: 3}}}},
		"first 2147483648 tokens":                               {step: model.Step{Forks: []model.Fork{{Seq: 4, From: 3, Length: math.MaxInt32 + 1}}}},
	} {
		_, err := w.encode()
		require.ErrorContains(t, err, want)
	}
}

// FuzzDecodeWork: any bytes from the wire are an error or a step that encodes
// to the same bytes, and decoding allocates no more than the payload's length.
func FuzzDecodeWork(f *testing.F) {
	for _, w := range []work{{}, {committed: true, step: entry(1, 2, model.WantAll, 3, 4)}, {step: model.Step{Drop: []model.SeqID{1, 2}}},
		{step: model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{3, 9}}, {Seq: 4}}, Forks: []model.Fork{{Seq: 2, From: 1, Length: 9}}}}} {
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
	f.Add(append([]byte{7, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{255}, 8)...))
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
