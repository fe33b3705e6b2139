package deepseek41

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
)

// disk is a table in which every value of a row is its number.
type disk struct {
	reads atomic.Int64
	fails error
	hangs chan struct{} // a read waits until it is closed, unless nil
}

func (d *disk) ReadAt(b []byte, at int64) (int, error) {
	d.reads.Add(1)
	if d.hangs != nil {
		<-d.hangs
	}
	if d.fails != nil {
		return 0, d.fails
	}
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(at/int64(len(b)))))
	}
	return len(b), nil
}

func (*disk) Close() error { return nil }

const testWidth = 8

// tablesOf are tables over disks, with a deadline that a test which expects rows cannot reach.
func tablesOf(disks ...*disk) *tables {
	t := &tables{deadline: time.Hour, slots: make(chan struct{}, rowReaders), counts: &rowCounts{}}
	for _, d := range disks {
		t.all = append(t.all, table{gguf.Tensor{Name: "blk.1.engram_embd.weight", Type: gguf.F32}, "the.gguf", "", 4 * testWidth, d})
	}
	return t
}

func wantsOf(table int, rows ...uint64) (wants []want) {
	for _, r := range rows {
		wants = append(wants, want{key(table, r), make([]float32, testWidth)})
	}
	return wants
}

// TestReadRows: every row arrives where it is wanted, is read once, and then kept.
func TestReadRows(t *testing.T) {
	a, b := &disk{}, &disk{}
	x := tablesOf(a, b)
	var rows []uint64
	for i := range uint64(500) {
		rows = append(rows, (i*7919)%300)
	}
	wants := append(wantsOf(0, rows...), wantsOf(1, 5, 5, 1<<40)...)
	require.NoError(t, x.read(context.Background(), wants))
	for _, w := range wants {
		require.Equal(t, float32(w.key&(1<<rowBits-1)), w.dst[testWidth-1])
	}
	require.Equal(t, int64(300), a.reads.Load())
	require.Equal(t, int64(2), b.reads.Load())
	require.NoError(t, x.read(context.Background(), wantsOf(0, 299, 0, 17)))
	require.Equal(t, int64(300), a.reads.Load())
	require.Equal(t, uint64(302), x.counts.read.Load())
	require.Equal(t, uint64(len(wants)-302+3), x.counts.kept.Load())
}

// TestRowsAreBounded: the cache does not grow without end and keeps what comes back.
func TestRowsAreBounded(t *testing.T) {
	var c rowCache
	row := make([]byte, 1<<16)
	for i := range uint64(4 * rowCacheBytes / (1 << 16)) {
		c.put(i, row)
		require.NotNil(t, c.get(i))
		require.LessOrEqual(t, (len(c.young)+len(c.old))*len(row), rowCacheBytes+2*len(row))
		if i > 0 {
			require.NotNil(t, c.get(0), "a row that is used in every turn, after %d", i)
		} else {
			c.put(0, row)
		}
	}
}

// TestDiskThatFails: the error names the file, the table and the row.
func TestDiskThatFails(t *testing.T) {
	x := tablesOf(&disk{fails: errors.New("input/output error")})
	err := x.read(context.Background(), wantsOf(0, 77))
	require.ErrorContains(t, err, `the.gguf: tensor "blk.1.engram_embd.weight": row 77: input/output error`)
}

// TestDiskThatHangs: nothing waits longer than the deadline, not even for a free slot when
// all earlier reads hang, and the context ends the wait.
func TestDiskThatHangs(t *testing.T) {
	d := &disk{hangs: make(chan struct{})}
	defer close(d.hangs)
	x := tablesOf(d)
	x.deadline = time.Millisecond
	for range rowReaders + 1 {
		require.ErrorContains(t, x.read(context.Background(), wantsOf(0, 1, 2, 3)), "took more than 1ms; check the disk")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the epoch ended")
	cancel(cause)
	x.deadline = time.Hour
	require.ErrorIs(t, x.read(ctx, wantsOf(0, 1)), cause)
}

// TestRowsThatAreNoNumbers: a row with a NaN is refused and not kept.
func TestRowsThatAreNoNumbers(t *testing.T) {
	x := tablesOf(&disk{})
	x.cache.put(key(0, 9), []byte{0, 0, 0xc0, 0x7f, 31: 0})
	err := x.read(context.Background(), wantsOf(0, 9))
	require.ErrorIs(t, err, gguf.ErrNonFinite)
	require.ErrorContains(t, err, "row 9: value 0 is NaN")
}
