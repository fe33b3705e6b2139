package deepseek41

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"ringmaster/gguf"
)

// The tables of the engram layers are larger than the memory of most hosts, and a token
// needs few of their rows. They stay on disk: a step reads the rows of its tokens before its
// first layer, by position, and keeps rows that come back in a bounded cache. Every rank
// reads the rows of the tokens that it computes from its own copy of the file.

const (
	// rowDeadline bounds the reads of a step. A disk answers in milliseconds; a network file
	// system that is mounted again may take seconds.
	rowDeadline = 30 * time.Second
	// rowReaders bounds the goroutines that read at once, because a disk is fastest with
	// many requests, and one that hangs must not collect goroutines.
	rowReaders = 32
	// rowCacheBytes bounds the rows that are kept.
	rowCacheBytes = 64 << 20
)

// table is the rows of an engram layer.
type table struct {
	tensor   gguf.Tensor
	path     string // of the file that has it
	encoding string
	rowBytes int
	data     gguf.DataReader
}

// tables reads rows.
type tables struct {
	all      []table
	deadline time.Duration
	slots    chan struct{} // one for each goroutine that reads
	cache    rowCache
	counts   *rowCounts
}

// rowCounts are rows that steps took from the cache and rows that they read.
type rowCounts struct{ kept, read atomic.Uint64 }

// openTables opens the tables of a file, which must have them.
func openTables(f *gguf.File, e *Engram, counts *rowCounts) (*tables, error) {
	t := &tables{counts: counts, deadline: rowDeadline, slots: make(chan struct{}, rowReaders)}
	for _, layer := range e.Layers {
		tensor, _ := f.Tensor(layerTensor(layer, "engram_embd.weight"))
		encoding, _ := e.encodingOf(tensor)
		data, err := f.OpenData(tensor)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tensor %q: %w", tensor.Name, err), t.close())
		}
		t.all = append(t.all, table{tensor, f.PathOf(tensor), encoding, tensor.Type.RowBytes(int(tensor.Shape[0])), data})
	}
	return t, nil
}

func (t *tables) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, x := range t.all {
		errs = append(errs, x.data.Close())
	}
	return errors.Join(errs...)
}

// want is a row of a table and where its values go.
type want struct {
	key uint64
	dst []float32 // [width]
}

// read reads rows. Its error names the table and the row, or the file that gives no answer
// until the deadline.
func (t *tables) read(ctx context.Context, wants []want) error {
	rows := make(map[uint64][]byte, len(wants))
	var missing []uint64
	for _, w := range wants {
		if _, seen := rows[w.key]; seen {
			continue
		}
		row := t.cache.get(w.key)
		if rows[w.key] = row; row == nil {
			missing = append(missing, w.key)
		}
	}
	t.counts.kept.Add(uint64(len(wants) - len(missing)))
	t.counts.read.Add(uint64(len(missing)))
	if len(missing) > 0 {
		found, err := t.fetch(ctx, missing)
		if err != nil {
			return err
		}
		maps.Copy(rows, found)
	}
	for _, w := range wants {
		x := &t.all[w.key>>rowBits]
		if err := decodeRow(w.dst, x.encoding, x.tensor.Type, rows[w.key]); err != nil {
			return fmt.Errorf("%s: tensor %q: row %d: %w", x.path, x.tensor.Name, w.key&(1<<rowBits-1), err)
		}
	}
	for _, k := range missing {
		t.cache.put(k, rows[k])
	}
	return nil
}

// part is what a goroutine has read.
type part struct {
	rows map[uint64][]byte
	err  error
}

// fetch reads rows from disk in the order of the file, each goroutine a stretch of them.
func (t *tables) fetch(ctx context.Context, keys []uint64) (map[uint64][]byte, error) {
	slices.Sort(keys)
	each := max(1, (len(keys)+rowReaders-1)/rowReaders)
	stretches := slices.Collect(slices.Chunk(keys, each))
	done := make(chan part, len(stretches)) // room for all, so that late ones end
	timer := time.NewTimer(t.deadline)
	defer timer.Stop()
	late := func() error {
		x := &t.all[keys[0]>>rowBits]
		return fmt.Errorf("%s: reading %d rows of tensor %q and others took more than %v; check the disk that has the file", x.path, len(keys), x.tensor.Name, t.deadline)
	}
	for _, stretch := range stretches {
		select {
		case t.slots <- struct{}{}:
		case <-timer.C:
			return nil, late()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		go func() {
			rows, err := t.stretch(stretch)
			<-t.slots
			done <- part{rows, err}
		}()
	}
	rows := make(map[uint64][]byte, len(keys))
	for range stretches {
		select {
		case p := <-done:
			if p.err != nil {
				return nil, p.err
			}
			maps.Copy(rows, p.rows)
		case <-timer.C:
			return nil, late()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return rows, nil
}

// stretch reads some rows one after another.
func (t *tables) stretch(keys []uint64) (map[uint64][]byte, error) {
	rows := make(map[uint64][]byte, len(keys))
	for _, k := range keys {
		x, row := &t.all[k>>rowBits], k&(1<<rowBits-1)
		b := make([]byte, x.rowBytes)
		if n, err := x.data.ReadAt(b, int64(row)*int64(x.rowBytes)); n < len(b) {
			return nil, fmt.Errorf("%s: tensor %q: row %d: %w", x.path, x.tensor.Name, row, err)
		}
		rows[k] = b
	}
	return rows, nil
}

// rowCache keeps rows that were used lately: those of the running generation and of the one
// before it. A row of the older that is used again moves to the younger. The zero value is
// empty. It is used by one goroutine at a time.
type rowCache struct {
	young, old map[uint64][]byte
	bytes      int // of young
}

func (c *rowCache) get(key uint64) []byte {
	if row := c.young[key]; row != nil {
		return row
	}
	row := c.old[key]
	if row != nil {
		c.put(key, row)
	}
	return row
}

// rowOverhead is about what a map needs for a row beside its bytes.
const rowOverhead = 64

func (c *rowCache) put(key uint64, row []byte) {
	if c.young == nil || c.bytes > rowCacheBytes/2 {
		c.old, c.young, c.bytes = c.young, map[uint64][]byte{}, 0
	}
	c.young[key] = row
	c.bytes += len(row) + rowOverhead
}
