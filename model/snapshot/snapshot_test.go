package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/snapshot"
)

// random is n random bytes in parts of random lengths.
func random(r *rand.Rand, n int) [][]byte {
	var parts [][]byte
	for n > 0 {
		part := make([]byte, 1+r.IntN(n))
		for i := range part {
			part[i] = byte(r.Uint32())
		}
		parts = append(parts, part)
		n -= len(part)
	}
	return append(parts, nil)
}

var header = snapshot.Header{Model: "abc", Layout: "test, 1", Length: 3, Peak: 5}

// sample is a snapshot with sections of the given lengths, and the sections.
func sample(t testing.TB, lengths ...int) ([]byte, []snapshot.Section) {
	r := rand.New(rand.NewPCG(1, 2))
	var sections []snapshot.Section
	for i, n := range lengths {
		sections = append(sections, snapshot.Section{Name: string(rune('a' + i)), Parts: random(r, n)})
	}
	var out bytes.Buffer
	require.NoError(t, snapshot.Write(&out, header, []int32{7, -1, 9}, sections))
	return out.Bytes(), sections
}

// read reads a snapshot of sections with the given lengths, in one part each.
func read(data []byte, lengths ...int) (*snapshot.Reader, [][]byte, error) {
	in := bytes.NewReader(data)
	x, err := snapshot.Read(in, header.Model, header.Layout, 3)
	if err != nil {
		return nil, nil, err
	}
	var got [][]byte
	for i, n := range lengths {
		got = append(got, make([]byte, n))
		if err := x.Section(snapshot.Section{Name: string(rune('a' + i)), Parts: [][]byte{got[i]}}); err != nil {
			return nil, nil, err
		}
	}
	if in.Len() > 0 {
		return nil, nil, errors.New("bytes are left")
	}
	return x, got, nil
}

// TestRoundTrip: what is written is read, however memory is cut, over several blocks.
func TestRoundTrip(t *testing.T) {
	lengths := []int{10, 0, 1 << 20, 5<<19 + 3, 1}
	data, sections := sample(t, lengths...)
	x, got, err := read(data, lengths...)
	require.NoError(t, err)
	require.Equal(t, header, x.Header)
	require.Equal(t, []int32{7, -1, 9}, x.Tokens)
	for i, s := range sections {
		require.True(t, bytes.Equal(bytes.Join(s.Parts, nil), got[i]), "section %d", i)
		require.EqualValues(t, lengths[i], s.Bytes())
	}
	require.ErrorIs(t, x.Section(sections[0]), snapshot.ErrDamaged, "none is left")

	x, err = snapshot.Read(bytes.NewReader(data), header.Model, header.Layout, 3)
	require.NoError(t, err)
	require.NoError(t, x.Expect(sections))
	require.ErrorIs(t, x.Expect(sections[1:]), snapshot.ErrDamaged)
	other := append([]snapshot.Section(nil), sections...)
	other[1].Name = "other"
	require.ErrorContains(t, x.Expect(other), `section "b" of 0 bytes, expected "other"`)
}

// TestDamaged: no byte can change and none can be missing without an error.
func TestDamaged(t *testing.T) {
	data, _ := sample(t, 10, 5)
	for i := range data {
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(data)
			bad[i] ^= bit
			_, _, err := read(bad, 10, 5)
			require.Error(t, err, "byte %d", i)
			require.True(t, errors.Is(err, snapshot.ErrDamaged) || errors.Is(err, snapshot.ErrForeign), "%v", err)
		}
		_, _, err := read(data[:i], 10, 5)
		require.ErrorIs(t, err, snapshot.ErrDamaged, "cut at %d", i)
	}
}

// TestBlocksOutOfPlace: a block of another place is noticed, though its bytes are right.
func TestBlocksOutOfPlace(t *testing.T) {
	data, _ := sample(t, 2<<20)
	const block = 1<<20 + 4
	first := len(data) - 2*block
	swapped := append(append(bytes.Clone(data[:first]), data[first+block:]...), data[first:first+block]...)
	_, _, err := read(swapped, 2<<20)
	require.ErrorContains(t, err, "the checksum of block 0 is wrong")
}

// TestForeign names what does not fit.
func TestForeign(t *testing.T) {
	data, _ := sample(t, 1)
	for want, f := range map[string]func() (*snapshot.Reader, error){
		`a snapshot belongs to model "abc", this is model "x"`: func() (*snapshot.Reader, error) { return snapshot.Read(bytes.NewReader(data), "x", header.Layout, 9) },
		`the layout of a snapshot is "test, 1", expected "y"`:  func() (*snapshot.Reader, error) { return snapshot.Read(bytes.NewReader(data), "abc", "y", 9) },
		"a snapshot has 3 tokens; at most 2 fit here":          func() (*snapshot.Reader, error) { return snapshot.Read(bytes.NewReader(data), "abc", header.Layout, 2) },
		`starts with "GGUF`: func() (*snapshot.Reader, error) {
			return snapshot.Read(bytes.NewReader([]byte("GGUF12345678")), "", "", 2)
		},
		"no header": func() (*snapshot.Reader, error) { return snapshot.Read(bytes.NewReader(nil), "", "", 2) },
	} {
		_, err := f()
		require.ErrorContains(t, err, want)
	}
	for _, h := range []snapshot.Header{{Length: 2, Peak: 2}, {Length: 3, Peak: 2}, {}} {
		require.Error(t, snapshot.Write(&bytes.Buffer{}, h, make([]int32, 3), nil))
	}
	require.ErrorIs(t, snapshot.Write(full{}, header, make([]int32, 3), nil), errFull)
}

var errFull = errors.New("the disk is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// FuzzRead: whatever the bytes, reading ends without a panic, with an error or with
// what Write would write.
func FuzzRead(f *testing.F) {
	data, _ := sample(f, 10, 5)
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte("RMSNAP01\x02\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, got, err := read(data, 10, 5)
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, snapshot.Write(&again, x.Header, x.Tokens, []snapshot.Section{
			{Name: "a", Parts: got[:1]}, {Name: "b", Parts: got[1:]}}))
		_, _, err = read(again.Bytes(), 10, 5)
		require.NoError(t, err)
	})
}

// TestCheckpoints: a header with checkpoints that the snapshot cannot have is refused by
// Write, and by Read though its checksum is right.
func TestCheckpoints(t *testing.T) {
	h := header
	h.From = 1
	for _, at := range [][]int{{1}, {4}, {3, 2}, {2, 2}, {-2}} {
		h.Checkpoints = at
		require.ErrorContains(t, snapshot.Write(io.Discard, h, []int32{7, -1, 9}, nil), "expected at most 128 ascending lengths in between")
	}
	long := header
	long.Length, long.Peak, long.Checkpoints = 300, 300, nil
	for n := range snapshot.MaxCheckpoints + 1 {
		long.Checkpoints = append(long.Checkpoints, n+1)
	}
	require.ErrorContains(t, snapshot.Write(io.Discard, long, make([]int32, 300), nil), "with 129 checkpoints; expected at most 128")
	long.Checkpoints = long.Checkpoints[1:]
	require.NoError(t, snapshot.Write(io.Discard, long, make([]int32, 300), nil))
	h.From, h.Checkpoints = 0, []int{2, 3}
	var out bytes.Buffer
	require.NoError(t, snapshot.Write(&out, h, []int32{7, -1, 9}, nil))
	x, err := snapshot.Read(bytes.NewReader(out.Bytes()), h.Model, h.Layout, 3)
	require.NoError(t, err)
	require.Equal(t, h, x.Header)
	for _, other := range []string{"[3,2]", "[2,4]", "[0,3]", "[2,2]"} {
		data := bytes.Replace(out.Bytes(), []byte("[2,3]"), []byte(other), 1)
		text := data[12 : 12+binary.LittleEndian.Uint32(data[8:])]
		binary.LittleEndian.PutUint32(data[12+len(text):], crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
		_, err := snapshot.Read(bytes.NewReader(data), h.Model, h.Layout, 3)
		require.ErrorIs(t, err, snapshot.ErrDamaged)
		require.ErrorContains(t, err, "length 3, from 0 on, checkpoints at [")
	}

	// A header with too many is refused before anything is prepared for them.
	var many bytes.Buffer
	require.NoError(t, snapshot.Write(&many, long, make([]int32, 300), nil))
	data := bytes.Replace(many.Bytes(), []byte(`"checkpoints":[2,`), []byte(`"checkpoints":[1,2,`), 1)
	binary.LittleEndian.PutUint32(data[8:], binary.LittleEndian.Uint32(data[8:])+2)
	text := data[12 : 12+binary.LittleEndian.Uint32(data[8:])]
	binary.LittleEndian.PutUint32(data[12+len(text):], crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	_, err = snapshot.Read(bytes.NewReader(data), h.Model, h.Layout, 300)
	require.ErrorIs(t, err, snapshot.ErrDamaged)
	require.ErrorContains(t, err, "length 300, from 0 on, 129 checkpoints")
}

// TestEach: snapshots that follow each other are read one after the other; none at all, or
// bytes behind the last, are an error.
func TestEach(t *testing.T) {
	first, _ := sample(t, 10)
	var second bytes.Buffer
	h := header
	h.From, h.Length, h.Peak = 3, 5, 7
	require.NoError(t, snapshot.Write(&second, h, []int32{7, -1, 9, 4, 5}, nil))
	for _, tt := range []struct {
		data []byte
		want []int32
	}{
		{first, []int32{7, -1, 9}},
		{append(bytes.Clone(first), second.Bytes()...), []int32{7, -1, 9, 4, 5}},
		{nil, nil},
		{first[:len(first)-1], nil},
		{append(bytes.Clone(first), 'R'), nil},
		{append(bytes.Clone(first), second.Bytes()[:second.Len()-1]...), nil},
		{second.Bytes(), nil},
	} {
		var tokens []int32
		err := snapshot.Each(bytes.NewReader(tt.data), func(r io.Reader) error {
			x, err := snapshot.ReadOn(r, header.Model, header.Layout, 5, tokens)
			if err != nil {
				return err
			}
			tokens = x.Tokens
			if x.From > 0 {
				return nil
			}
			return x.Section(snapshot.Section{Name: "a", Parts: [][]byte{make([]byte, 10)}})
		})
		if tt.want == nil {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.want, tokens)
	}
}
