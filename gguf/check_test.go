package gguf

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// malformed are headers that must be rejected, and the expected error text.
var malformed = []struct {
	name string
	data []byte
	want []string
}{
	{"empty", nil, []string{"0 bytes", "at least 24"}},
	{"23 bytes", newRaw().header()[:23], []string{"23 bytes", "at least 24"}},
	{"no GGUF", []byte(strings.Repeat("PK\x03\x04", 8)), []string{`"PK\x03\x04"`, `not with "GGUF"`}},
	{"version 0", (&raw{version: 0, alignment: 32}).header(), []string{"version 0; expected 2 or 3"}},
	{"version 1", (&raw{version: 1, alignment: 32}).header(), []string{"version 1; expected 2 or 3", "convert"}},
	{"version 4", (&raw{version: 4, alignment: 32}).header(), []string{"version 4; expected 2 or 3"}},
	{"big endian", (&raw{version: 3 << 24, alignment: 32}).header(), []string{"big-endian GGUF version 3"}},

	{"2^60 tensors in 100 bytes", pad((&raw{version: 3, tensors: 1 << 60, alignment: 32}).header(), 100),
		[]string{"claims 1152921504606846976 tensors", "only 76 bytes follow"}},
	{"2^60 keys in 100 bytes", pad((&raw{version: 3, keys: 1 << 60, alignment: 32}).header(), 100),
		[]string{"claims 1152921504606846976 keys", "only 76 bytes follow"}},
	{"6 keys in 76 bytes", pad((&raw{version: 3, keys: 6, alignment: 32}).header(), 100), []string{"claims 6 keys, but only 76 bytes follow (a key has at least 14)"}},
	{"3 tensors in 76 bytes", pad((&raw{version: 3, tensors: 3, alignment: 32}).header(), 100), []string{"claims 3 tensors, but only 76 bytes follow (a tensor's entry has at least 33)"}},
	{"too many keys for a model", pad((&raw{version: 3, keys: 1 << 15, alignment: 32}).header(), 1<<20),
		[]string{"claims 32768 keys; expected at most 16384"}},
	{"too many tensors for a model", pad((&raw{version: 3, tensors: 1 << 18, alignment: 32}).header(), 1<<24),
		[]string{"claims 262144 tensors; expected at most 131072"}},
	{"one key too many", (&raw{version: 3, keys: 2, kvs: newRaw().kv("a.b", kindUint8, le(uint8(1))).kvs, alignment: 64}).header(),
		[]string{"key 2 of 2", "name of 0 bytes"}},

	{"key name of 2^63", keyName(1 << 63), []string{"key 1 of 1", "name of 9223372036854775808 bytes; expected 1 to 65535"}},
	{"key name beyond the end", keyName(200), []string{"key 1 of 1", "name of 200 bytes, but only 32 bytes follow"}},
	{"empty key name", keyName(0), []string{"key 1 of 1", "name of 0 bytes"}},
	{"cut before the type", newRaw().kv("key", kindUint64, le(uint64(1))).header()[:24+8+3+3], []string{`key "key"`, "ends before its type"}},
	{"cut in a value", newRaw().kv("key", kindUint64, le(uint64(1))).header()[:24+8+3+4+7], []string{`key "key"`, "ends inside its value"}},
	{"value type 13", newRaw().kv("key", 13, make([]byte, 8)).header(), []string{`key "key"`, "value type 13; expected 0 to 12"}},
	{"bool 2", newRaw().kv("key", kindBool, []byte{2}).header(), []string{`key "key"`, "bool of value 2"}},
	{"string beyond the end", newRaw().kv("key", kindString, le(uint64(1000))).header(), []string{`key "key"`, "string of 1000 bytes, but only 17 bytes follow"}},
	{"string of 2^64-1", newRaw().kv("key", kindString, le(uint64(math.MaxUint64))).header(), []string{`key "key"`, "string of 18446744073709551615 bytes"}},
	{"cut in a string's length", newRaw().kv("key", kindString, le(uint64(1))).header()[:24+8+3+4+4], []string{`key "key"`, "ends inside the length of its string"}},
	{"cut in an array's header", newRaw().array("key", kindInt32, 1, nil).header()[:24+8+3+4+4+2], []string{`key "key"`, "ends inside the header of its array"}},
	{"array of 2^61 int64", newRaw().array("key", kindInt64, 1<<61, nil).header(), []string{`key "key"`, "claims 2305843009213693952 values of at least 8 bytes"}},
	{"array one too long", newRaw().array("key", kindInt32, 4, make([]byte, 12)).bytes()[:24+8+3+4+12+12], []string{`key "key"`, "claims 4 values of at least 4 bytes, but only 12 bytes follow"}},
	{"array of 2^60 strings", newRaw().array("key", kindString, 1<<60, make([]byte, 64)).header(), []string{`key "key"`, "claims 1152921504606846976 values of at least 8 bytes"}},
	{"string in an array beyond the end", newRaw().array("key", kindString, 2, append(rawString("a"), le(uint64(99))...)).header(), []string{`key "key"`, "string 1 of 2", "string of 99 bytes"}},
	{"array of arrays", newRaw().array("key", kindArray, 1, make([]byte, 12)).header(), []string{`key "key"`, "array of arrays"}},
	{"array of type 13", newRaw().array("key", 13, 1, make([]byte, 8)).header(), []string{`key "key"`, "array of value type 13"}},
	{"bool 3 in an array", newRaw().array("key", kindBool, 3, []byte{1, 0, 3}).header(), []string{`key "key"`, "bool 2 of 3 has value 3"}},
	{"key twice", newRaw().kv("b", kindUint8, []byte{1}).kv("a", kindUint8, []byte{1}).kv("b", kindUint32, le(uint32(1))).header(), []string{`key "b" occurs twice in the header`}},

	{"alignment 0", newRaw().kv(keyAlignment, kindUint32, le(uint32(0))).header(), []string{keyAlignment, "is 0; expected a power of two from 8 to 65536"}},
	{"alignment 4", newRaw().kv(keyAlignment, kindUint32, le(uint32(4))).header(), []string{keyAlignment, "is 4; expected a power of two"}},
	{"alignment 48", newRaw().kv(keyAlignment, kindUint32, le(uint32(48))).header(), []string{keyAlignment, "is 48; expected a power of two"}},
	{"alignment 2^31", newRaw().kv(keyAlignment, kindUint32, le(uint32(1<<31))).header(), []string{keyAlignment, "is 2147483648; expected a power of two"}},
	{"alignment as uint64", newRaw().kv(keyAlignment, kindUint64, le(uint64(64))).header(), []string{keyAlignment, "is uint64; expected uint32"}},
	{"architecture as number", newRaw().kv(keyArchitecture, kindUint32, le(uint32(4))).header(), []string{keyArchitecture, "is uint32; expected a string"}},
	{"parameter count as string", newRaw().kv(keyParameterCount, kindString, rawString("7B")).header(), []string{keyParameterCount, "is string; expected an integer"}},

	{"0 dimensions", newRaw().tensor("w", F32, 0, 4).header(), []string{`tensor "w"`, "0 dimensions; expected 1 to 4"}},
	{"5 dimensions", newRaw().tensor("w", F32, 0, 4, 1, 1, 1, 1, 1).header(), []string{`tensor "w"`, "5 dimensions; expected 1 to 4"}},
	{"2^32-1 dimensions", badDims(), []string{`tensor "w"`, "4294967295 dimensions; expected 1 to 4"}},
	{"dimension 0", newRaw().tensor("w", F32, 0, 4, 8, 0).bytes(), []string{`tensor "w"`, "dimension 1 is 0"}},
	{"elements overflow", newRaw().tensor("w", F32, 0, 4, 1<<31, 1<<31, 1<<31).bytes(), []string{`tensor "w"`, "overflows"}},
	{"bytes overflow", newRaw().tensor("w", F32, 0, 4, 1<<62).bytes(), []string{`tensor "w"`, "overflows"}},
	{"bytes overflow the sign", newRaw().tensor("w", F32, 0, 4, 1<<61).bytes(), []string{`tensor "w"`, "overflows"}},
	{"elements overflow in blocks", newRaw().tensor("w", Q4_0, 0, 4, 1<<63).bytes(), []string{`tensor "w"`, "overflows"}},
	{"type 4", newRaw().tensor("blk.0.w", Type(4), 0, 4, 32).bytes(), []string{`"blk.0.w"`, "Q4_2 (GGML until 2024; 1 tensor"}},
	{"type 2^32-1", newRaw().tensor("w", Type(math.MaxUint32), 0, 4, 32).bytes(), []string{`"w"`, "type 4294967295 (unknown; 1 tensor", "newer than this program"}},
	{"type Q8_K, never stored", newRaw().tensor("w", Type(15), 0, 292, 256).bytes(), []string{`"w"`, "Q8_K (activations; 1 tensor", "compare the file with its source"}},
	{"half a block", newRaw().tensor("w", Q4_K, 0, 144, 128, 2).bytes(), []string{`tensor "w"`, "rows of 128 elements; Q4_K needs a multiple of 256"}},
	{"offset not aligned", newRaw().tensor("w", F32, 16, 16, 4).bytes(), []string{`tensor "w"`, "offset 16; expected a multiple of the alignment 32"}},
	{"offset 2^64-32", newRaw().tensor("w", F32, math.MaxUint64-31, 0, 4).bytes(), []string{`tensor "w"`, "offset 18446744073709551584 lies beyond any file"}},
	{"offset 2^63-32", newRaw().tensor("w", F32, math.MaxInt64-31, 0, 4).bytes(), []string{`tensor "w"`, "data section, which has 0 bytes"}},
	{"one byte short", cut(newRaw().tensor("w", F32, 0, 16, 4).bytes(), 1), []string{`tensor "w"`, "16 bytes at offset 0 of the data section, which has 15 bytes"}},
	{"no data section", cut(newRaw().tensor("w", F32, 0, 16, 4).bytes(), 17), []string{`tensor "w"`, "data section, which has 0 bytes"}},
	{"overlap", newRaw().tensor("a", F32, 32, 16, 4).tensor("b", F32, 0, 36, 9).bytes(), []string{`tensor "a" starts at offset 32 inside tensor "b", which ends at 36`}},
	{"same place", newRaw().tensor("a", F32, 0, 4, 1).tensor("b", F32, 0, 4, 1).bytes(), []string{`tensor "b" starts at offset 0 inside tensor "a"`}},
	{"tensor twice", newRaw().tensor("a", F32, 0, 4, 1).tensor("a", F32, 32, 4, 1).bytes(), []string{`tensor "a" occurs twice in the header`}},
	{"empty tensor name", newRaw().tensor("", F32, 0, 4, 1).bytes(), []string{"tensor 1 of 1", "name of 0 bytes"}},
	{"cut in a shape", newRaw().tensor("w", F32, 0, 0, 4, 4).header()[:24+8+1+4+12+8], []string{`tensor "w"`, "ends inside its entry"}},
	{"cut in an offset", newRaw().tensor("w", F32, 0, 0, 4, 4, 4, 4).header()[:24+8+1+4+32+4+4], []string{`tensor "w"`, "ends inside its entry"}},

	{"part of a split model", newRaw().kv(keySplitCount, kindUint16, le(uint16(3))).kv(keySplitNo, kindUint16, le(uint16(1))).header(),
		[]string{keySplitCount, "is 3; expected 1", "-00001-of-0000N.gguf"}},
	{"split count as string", newRaw().kv(keySplitCount, kindString, rawString("3")).header(), []string{keySplitCount, "is string of 1 bytes; expected the integer 1"}},
}

func pad(b []byte, n int) []byte { return append(b, make([]byte, n-len(b))...) }
func cut(b []byte, n int) []byte { return b[:len(b)-n] }

// keyName is a header whose only key claims a name of n bytes; 32 bytes follow.
func keyName(n uint64) []byte {
	r := &raw{version: 3, keys: 1, kvs: append(le(n), make([]byte, 32)...), alignment: 1}
	return r.header()
}

func badDims() []byte {
	b := newRaw().tensor("w", F32, 0, 4, 1).bytes()
	copy(b[24+8+1:], le(uint32(math.MaxUint32)))
	return b
}

func TestMalformed(t *testing.T) {
	dir := t.TempDir()
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read("the file", c.data)
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), "the file: "), err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			if len(c.data) == 0 {
				return // reported by Open before it looks at the header
			}
			path := testenv.WriteFile(t, filepath.Join(dir, "bad.gguf"), c.data)
			_, again := Open(path)
			require.EqualError(t, again, path+strings.TrimPrefix(err.Error(), "the file"))
		})
	}
}

// TestHugeClaimsCostNothing measures what is allocated, not how long it takes.
func TestHugeClaimsCostNothing(t *testing.T) {
	for _, c := range malformed {
		if len(c.data) > 1<<12 {
			continue
		}
		bytes := allocatedBytes(func() { _, _ = Read("x", c.data) })
		require.Less(t, bytes, uint64(128<<10), c.name)
	}
}

// TestEveryCutIsAnError truncates a valid file at every length: it never
// panics, and no truncated file passes, because the last tensor reaches to the
// end of the file.
func TestEveryCutIsAnError(t *testing.T) {
	r := everyKind()
	whole := r.tensor("b", Q8_0, 64, 68, 32, 2).tensor("a", F32, 0, 64, 4, 2, 2).bytes()
	_, err := Read("whole", whole)
	require.NoError(t, err)
	for n := range len(whole) {
		_, err := Read("cut", bytes.Clone(whole[:n]))
		require.Error(t, err, "cut to %d of %d bytes", n, len(whole))
	}
}
